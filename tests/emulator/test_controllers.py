"""What happens in the background: garbage, namespaces, and how Pods die."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from emulator.api import Steps
from emulator.client import Client
from emulator.contracts import DeleteOptions, ListOptions
from emulator.controllers.definitions import DefinitionController
from emulator.errors import ApiError
from tests.emulator.rig import Gatekeeper, config_map, definition, running


@pytest.fixture
def client() -> Iterator[Client]:
    """Give a client of a fresh server."""
    with running() as opened:
        yield opened


def test_refused_garbage_is_collected_later() -> None:
    """A dependent whose deletion a webhook refuses goes as soon as the webhook lets it go."""
    gate = Gatekeeper()
    with running(Steps(admission=gate)) as client:
        owner = client.create(config_map("owner"))
        reference = {
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner["metadata"]["uid"],
        }  # fmt: skip
        body = config_map("dependent")
        body["metadata"]["ownerReferences"] = [reference]
        client.create(body)
        gate.refusals = 1
        gone = threading.Event()
        client.api.store.taps.append(
            lambda change: gone.set() if change.key == "default/dependent" else None
        )
        client.delete("v1", "ConfigMap", "owner", namespace="default")
        assert gone.wait(30)
        assert [one["metadata"]["name"] for one in client.list("v1", "ConfigMap")] == []
        assert gate.refusals == 0


def test_namespaces_go_with_all_they_hold(client: Client) -> None:
    """A deleted namespace takes its objects along, those of custom resources too."""
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    client.create(definition("gones", "Gone"))
    client.create({**config_map("m"), "metadata": {"name": "m", "namespace": "team"}})
    gone = {"apiVersion": "rig.example.io/v1", "kind": "Gone", "metadata": {"name": "g"}}
    client.create(gone, namespace="team")
    client.delete("v1", "Namespace", "team")
    client.api.settle()
    assert client.list("v1", "ConfigMap", namespace="team") == []
    assert client.list("rig.example.io/v1", "Gone") == []
    with pytest.raises(ApiError, match="not found"):
        client.get("v1", "Namespace", "team")


@pytest.mark.parametrize("code", [404, 409])
def test_a_lost_race_is_looked_at_again(code: int) -> None:
    """A namespace goes although something in it changed while it was emptied."""
    gate = Gatekeeper()
    with running(Steps(admission=gate)) as client:
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        body = config_map("dependent")
        body["metadata"]["namespace"] = "team"
        client.create(body)
        gate.refusals, gate.code = 1, code
        client.delete("v1", "Namespace", "team")
        client.api.settle()
        assert gate.refusals == 0
        with pytest.raises(ApiError, match="not found"):
            client.get("v1", "Namespace", "team")


def test_some_namespaces_are_for_life(client: Client) -> None:
    """The namespaces that a cluster cannot be without are not deleted."""
    with pytest.raises(ApiError, match="this namespace may not be deleted"):
        client.delete("v1", "Namespace", "default")
    assert client.get("v1", "Namespace", "default")["status"]["phase"] == "Active"


def test_a_pod_is_seen_to_die(client: Client) -> None:
    """A Pod on a node gets its grace period; kubelet's final delete removes it."""
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }  # fmt: skip
    client.create(pod)
    client.bind("default", "p", "node-a")
    with client.watch(
        "v1", "Pod", options=ListOptions(resource_version=str(client.api.store.version))
    ) as watch:
        marked = client.delete("v1", "Pod", "p", namespace="default")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        at_once_gone = DeleteOptions(grace_period_seconds=0)
        client.delete("v1", "Pod", "p", namespace="default", options=at_once_gone)
        watch.close()
        types = [type_ for type_, _ in watch]
    assert types == ["MODIFIED", "MODIFIED", "DELETED"]


@pytest.mark.parametrize("write", ["delete", "update"])
def test_a_definition_that_is_gone_is_not_served_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """A request that wrote to it, and is slower than its end in the background, revives nothing."""
    api_version, kind, name = "apiextensions.k8s.io/v1", "CustomResourceDefinition", "gones"
    client.create(definition(name, "Gone"))
    held = client.get(api_version, kind, f"{name}.rig.example.io")
    serve, late = DefinitionController._serve, [True]

    def serve_late(self: DefinitionController, found: str) -> None:
        if late:
            late.clear()
            if write == "update":
                client.delete(api_version, kind, f"{name}.rig.example.io")
            client.api.settle()
        serve(self, found)

    monkeypatch.setattr(DefinitionController, "_serve", serve_late)
    if write == "update":
        client.update({**held, "metadata": {**held["metadata"], "labels": {"a": "b"}}})
    else:
        client.delete(api_version, kind, f"{name}.rig.example.io")
    assert not late
    assert [one.plural for one in client.api.resources() if one.custom] == []
    assert client.api.store.collection(("rig.example.io", name)) is None
