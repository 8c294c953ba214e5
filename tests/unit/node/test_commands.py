"""The commands: what the flags mean, and the registrar registers."""

from __future__ import annotations

import argparse
from pathlib import Path

import grpc
import pytest

from gpustack_delivery.csi_wire import pluginregistration_pb2, pluginregistration_pb2_grpc
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node import command
from gpustack_delivery.node.registrar import Registrar
from tests.unit.fakes import FakeKube, ManualClock
from tests.unit.node.stage import Stage


def parsed(*flags: str) -> argparse.Namespace:
    """Return the plugin's arguments."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(flags)


def test_the_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's name comes from the environment of the Pod."""
    monkeypatch.setenv("KUBERNETES_NODE_NAME", "node-a")
    monkeypatch.delenv("KUBERNETES_POD_NAMESPACE", raising=False)
    options = command.options_of(parsed())
    assert options.node_name == "node-a"
    assert options.namespace == "gpustack-system"
    assert options.kubelet_dir == Path("/var/lib/kubelet")
    assert options.cache_root == Path("/var/lib/gpustack/models")
    assert options.csi_socket == Path("/var/lib/kubelet/plugins/model.csi.gpustack.ai/csi.sock")
    assert (options.secure_port, options.peer_sync.port) == (32444, 0)
    assert options.peer_sync.token_file == Path("/var/run/secrets/gpustack-model-peer/token")


def test_peer_sync_needs_to_know_whose_tokens_count() -> None:
    """A port alone is half a configuration; the message names the other half."""
    with pytest.raises(ConfigurationFault, match="--peer-sync-service-account is required"):
        command.options_of(parsed("--node-name", "node-a", "--peer-sync-port", "1"))


@pytest.mark.parametrize(("flags", "direct"), [((), False), (("--direct-writes",), True)])
def test_writing_past_the_page_cache_is_asked_for(flags: tuple[str, ...], *, direct: bool) -> None:
    """The flag reaches the disk that all downloads write to; without it they are buffered."""
    world = command.world_of(parsed(*flags), FakeKube(), ManualClock())
    assert world.disk.direct_writes is direct


@pytest.fixture
def registry(stage: Stage) -> Path:
    """Return kubelet's plugins_registry beside a running plugin."""
    stage.start()
    directory = stage.kubelet / "plugins_registry"
    directory.mkdir()
    return directory


def test_the_registrar_announces_the_driver_and_takes_it_back(stage: Stage, registry: Path) -> None:
    """Kubelet's two calls, and the socket gone afterwards."""
    registrar = Registrar(stage.socket, registry)
    registrar.start()
    path = registry / "model.csi.gpustack.ai-reg.sock"
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
        info = stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=10)
        assert (info.type, info.name) == ("CSIPlugin", "model.csi.gpustack.ai")
        assert (info.endpoint, list(info.supported_versions)) == (str(stage.socket), ["1.0.0"])
        refusal = pluginregistration_pb2.RegistrationStatus(plugin_registered=False, error="no")
        stub.NotifyRegistrationStatus(refusal, timeout=10)
        assert registrar.refused == "no"
        accepted = pluginregistration_pb2.RegistrationStatus(plugin_registered=True)
        stub.NotifyRegistrationStatus(accepted, timeout=10)
        assert registrar.refused == ""
    registrar.stop()
    registrar.stop()
    assert not path.exists()
