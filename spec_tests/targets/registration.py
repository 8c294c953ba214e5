"""The registration sidecar that stands beside a node plugin in a cluster, played by the suite.

An implementation brings its two programs; that kubelet hears of the driver is the work of
Kubernetes' own registrar, so its part is taken here: ask the driver for its name, announce it in
kubelet's plugins_registry, and take the announcement away again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from gpustack_delivery.csi_wire import (
    csi_pb2,
    csi_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)


def driver_name(socket: Path) -> str:
    """Return the name that a driver gives itself, empty while nobody answers at its socket."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        try:
            answer = csi_pb2_grpc.IdentityStub(channel).GetPluginInfo(
                csi_pb2.GetPluginInfoRequest(), timeout=2
            )
        except grpc.RpcError:
            return ""
        return str(answer.name)


class Registration(
    pluginregistration_pb2_grpc.RegistrationServicer  # type: ignore[misc]  # stubs are untyped
):
    """The announcement of one driver, from its making to `withdraw`."""

    def __init__(self, name: str, csi_socket: Path, registry: Path) -> None:
        """Announce a driver that answers at a socket."""
        self._info = pluginregistration_pb2.PluginInfo(
            type="CSIPlugin", name=name, endpoint=str(csi_socket), supported_versions=["1.0.0"]
        )
        self._socket = registry / f"{name}-reg.sock"
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="registration")
        self._server = grpc.server(self._threads)
        pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def withdraw(self) -> None:
        """Take the announcement away; twice is no error."""
        self._server.stop(grace=None).wait()
        self._threads.shutdown()
        self._socket.unlink(missing_ok=True)

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the wire's name
        """Say which driver it is and where it listens."""
        return self._info

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Hear whether kubelet took it; what it refused is in kubelet's own Events and CSINode."""
        return pluginregistration_pb2.RegistrationStatusResponse()
