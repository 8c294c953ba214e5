"""node-store#configuration-ownership: who writes what, and what becomes of others who try."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from spec_tests import oracle
from spec_tests.scenario import World

EXTRA: Final = "authentication.kubernetes.io"
PLUGIN_ONLY: Final = "only the model-manager plugin writes a NodeModelStore's status"
BOUND: Final = "the plugin's token must be bound to its Pod"
OWN_NODE: Final = "the plugin writes only the status of the node its Pod runs on"
WORKER_ONLY: Final = "only the worker writes a ModelArtifact's status"
OTHER_DIGEST: Final = "sha256:" + "ab" * 32
Worlds = Callable[..., World]


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world with a worker, two nodes and no plugin: the CSINodes are the test's to write."""
    return worlds(nodes=("node-a", "node-b"), worker=True, plugins=False)


def set_driver(world: World, node: str, *, listed: bool) -> None:
    """Let a node's CSINode list the driver, or no longer; another vendor's is always there."""
    found = world.api.get("storage.k8s.io/v1", "CSINode", node)
    drivers = ["other.csi.example", oracle.DRIVER] if listed else ["other.csi.example"]
    found["spec"] = {"drivers": [{"name": name, "nodeID": node} for name in drivers]}
    world.api.update(found)


def stored(world: World, node: str = "node-a") -> dict[str, Any]:
    """Let the worker create a node's object, and return it."""
    set_driver(world, node, listed=True)
    return world.until(
        lambda: world.nodes[node].store() or None, f"{node}'s object", within_seconds=60
    )


def plugin_pod(world: World, node: str, name: str = "plugin") -> dict[str, str]:
    """Make a Pod of the plugin's account on a node; return the extras of a token bound to it."""
    pod = world.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": oracle.OPERATOR_NAMESPACE},
            "spec": {
                "nodeName": node,
                "serviceAccountName": world.seat.plugin_user.rpartition(":")[2],
                "containers": [{"name": "main", "image": "plugin"}],
            },
        }
    )
    return {f"{EXTRA}/pod-name": name, f"{EXTRA}/pod-uid": pod["metadata"]["uid"]}


def write_status(
    world: World, store: Mapping[str, Any], user: str, extra: Mapping[str, str]
) -> tuple[int, str]:
    """Write a node's status as somebody, and return the answer."""
    now = world.api.get(oracle.API, "NodeModelStore", store["metadata"]["name"])
    now["status"] = {
        "observedGeneration": 1,
        "capacity": {"totalBytes": 1, "storedBytes": 0, "usedPercent": 0},
    }
    path = f"/apis/{oracle.API}/nodemodelstores/{store['metadata']['name']}/status"
    return world.as_user(user, extra).put(path, now)


@pytest.mark.rule("NS-OWN-01", "NS-RES-01")
def test_the_object_comes_with_the_driver(world: World) -> None:
    """No object before CSINode lists the driver, and one of the Node's name soon after."""
    set_driver(world, "node-a", listed=False)
    set_driver(world, "node-b", listed=False)
    world.advance(60)
    assert world.nodes["node-a"].store() == {}
    stored(world)
    assert world.nodes["node-a"].store()["metadata"]["name"] == "node-a"
    assert world.nodes["node-b"].store() == {}, "its CSINode does not list the driver"


@pytest.mark.rule("NS-RES-02")
def test_the_object_is_owned_by_its_node(world: World) -> None:
    """The owner reference names the Node and carries its UID."""
    (owner,) = stored(world)["metadata"]["ownerReferences"]
    node = world.api.get("v1", "Node", "node-a")
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("v1", "Node", "node-a")
    assert owner["uid"] == node["metadata"]["uid"]


@pytest.mark.rule("NS-RES-03")
def test_the_spec_is_the_effective_configuration(world: World) -> None:
    """Watermarks, limits and the hub's endpoint are the Settings', the thresholds are kubelet's."""
    spec = stored(world)["spec"]
    thresholds = world.until(
        lambda: world.nodes["node-a"].store()["spec"].get("kubelet"),
        "kubelet's thresholds",
        within_seconds=60,
    )
    assert spec["watermarks"] == {"highPercent": 80, "lowPercent": 70}
    assert spec["download"]["concurrency"] == 8
    assert spec["download"].get("bytesPerSecond", 0) == 0
    assert spec["hub"]["huggingFaceEndpoint"] == world.hub.url
    assert thresholds == {
        "nodefsAvailable": "10%",
        "imagefsAvailable": "15%",
        "imageGCHighThresholdPercent": 85,
    }


@pytest.mark.rule("NS-OWN-02")
def test_the_object_goes_with_its_node(world: World) -> None:
    """Deleting the Node removes its object."""
    stored(world)
    world.api.delete("v1", "Node", "node-a")
    world.until(lambda: not world.nodes["node-a"].store(), "the object is gone", within_seconds=120)


@pytest.mark.rule("NS-OWN-03")
def test_without_the_driver_object_there_is_none(world: World) -> None:
    """Deleting the CSIDriver removes every object, and none is created while it is away."""
    stored(world)
    world.api.delete("storage.k8s.io/v1", "CSIDriver", oracle.DRIVER)
    world.until(lambda: not world.nodes["node-a"].store(), "the object is gone", within_seconds=120)
    set_driver(world, "node-b", listed=True)
    world.advance(120)
    assert world.nodes["node-b"].store() == {}


@pytest.mark.rule("NS-OWN-10")
def test_a_deleted_object_comes_back(world: World) -> None:
    """The worker creates it again while the node runs the plugin."""
    uid = stored(world)["metadata"]["uid"]
    world.api.delete(oracle.API, "NodeModelStore", "node-a")
    world.until(
        lambda: world.nodes["node-a"].store().get("metadata", {}).get("uid", uid) != uid,
        "a new object",
        within_seconds=60,
    )


@pytest.mark.rule("NS-OWN-11")
def test_the_object_stays_when_the_driver_leaves(world: World) -> None:
    """A driver that leaves CSINode, as at every plugin restart, does not remove the object."""
    uid = stored(world)["metadata"]["uid"]
    set_driver(world, "node-a", listed=False)
    world.advance(600)
    assert world.nodes["node-a"].store().get("metadata", {}).get("uid") == uid


@pytest.mark.rule("NS-OWN-12")
def test_the_status_has_a_guard_that_fails_closed(world: World) -> None:
    """A validating webhook with failurePolicy Fail judges updates of nodemodelstores/status."""
    kind = "ValidatingWebhookConfiguration"
    guards = [
        webhook
        for found in world.api.list("admissionregistration.k8s.io/v1", kind)
        for webhook in found["webhooks"]
        for rule in webhook["rules"]
        if "nodemodelstores/status" in rule["resources"] and "UPDATE" in rule["operations"]
    ]
    assert [guard["failurePolicy"] for guard in guards] == ["Fail"]
    assert not any(guards[0].get("objectSelector") or {}), "some updates are not judged"
    assert not guards[0].get("matchConditions"), "some updates are not judged"


@pytest.mark.rule("NS-OWN-13")
@pytest.mark.parametrize("account", ["", "system:serviceaccount:team-a:model-manager", "worker"])
def test_nobody_but_the_plugin_writes_the_status(world: World, account: str) -> None:
    """The cluster's admin and other accounts with the right are refused, and told by which rule."""
    store = stored(world)
    user = world.seat.worker_user if account == "worker" else account
    world.allow(user, "nodemodelstores/status", "update")
    code, message = write_status(world, store, user, plugin_pod(world, "node-a"))
    assert code >= 400
    assert PLUGIN_ONLY in message


@pytest.mark.rule("NS-OWN-14")
@pytest.mark.parametrize("missing", ["pod-name", "pod-uid", "both"])
def test_an_unbound_token_is_refused(world: World, missing: str) -> None:
    """A token that does not say which Pod it belongs to is refused."""
    store, extra = stored(world), plugin_pod(world, "node-a")
    for key in list(extra):
        if missing == "both" or key.endswith(missing):
            del extra[key]
    code, message = write_status(world, store, world.seat.plugin_user, extra)
    assert code >= 400
    assert BOUND in message


@pytest.mark.rule("NS-OWN-15")
def test_the_bound_pod_must_exist_with_its_uid(world: World) -> None:
    """A Pod that never was, and a recreated one of the same name, are refused."""
    store, old = stored(world), plugin_pod(world, "node-a")
    user = world.seat.plugin_user
    never = {f"{EXTRA}/pod-name": "never", f"{EXTRA}/pod-uid": old[f"{EXTRA}/pod-uid"]}
    code, message = write_status(world, store, user, never)
    assert code >= 400
    assert OWN_NODE in message
    world.remove_pod(oracle.OPERATOR_NAMESPACE, "plugin")
    new = plugin_pod(world, "node-a")
    code, message = write_status(world, store, user, old)
    assert code >= 400
    assert OWN_NODE in message
    assert write_status(world, store, user, new)[0] == 200


@pytest.mark.rule("NS-OWN-16")
def test_the_pod_must_run_on_the_objects_node(world: World) -> None:
    """A plugin writes its own node's status and is refused any other's."""
    mine, theirs = stored(world, "node-a"), stored(world, "node-b")
    extra = plugin_pod(world, "node-a")
    assert write_status(world, mine, world.seat.plugin_user, extra)[0] == 200
    code, message = write_status(world, theirs, world.seat.plugin_user, extra)
    assert code >= 400
    assert OWN_NODE in message


@pytest.mark.rule("NS-OWN-16", "NS-OWN-17")
def test_a_tokens_node_name_decides_alone(world: World) -> None:
    """Where the token carries its node, that is compared, and the Pod is not looked up."""
    mine, theirs = stored(world, "node-a"), stored(world, "node-b")
    user = world.seat.plugin_user
    unseen = {
        f"{EXTRA}/pod-name": "not-looked-up",
        f"{EXTRA}/pod-uid": "00000000-0000-0000-0000-000000000000",
        f"{EXTRA}/node-name": "node-a",
    }
    assert write_status(world, mine, user, unseen)[0] == 200
    code, message = write_status(world, theirs, user, unseen)
    assert code >= 400
    assert OWN_NODE in message


@pytest.mark.rule("NS-OWN-17", "NS-REQ-01")
@pytest.mark.parametrize("kubernetes", ["1.29", "1.30"])
def test_real_tokens_of_both_shapes_are_accepted(worlds: Worlds, kubernetes: str) -> None:
    """A plugin's own token passes the guard with the node's name in it and without."""
    world = worlds(worker=True, kubernetes=kubernetes)
    world.until(
        lambda: world.node.store().get("status", {}).get("observedGeneration"),
        "the plugin has written its status",
        within_seconds=120,
    )


@pytest.mark.rule("NS-OWN-18")
@pytest.mark.parametrize("account", ["", "system:serviceaccount:team-a:tenant", "plugin"])
def test_nobody_but_the_worker_writes_an_artifacts_status(world: World, account: str) -> None:
    """A tenant, the plugin and even the admin cannot make an artifact look resolved."""
    # Resolved first: nothing else writes this status then, and only the guard can refuse.
    artifact = world.artifact("mine", repository=world.repository("acme/none", private=True))
    world.advance(60)
    user = world.seat.plugin_user if account == "plugin" else account
    world.allow(user, "modelartifacts/status", "update")
    before, found = world.resolved(artifact), world.stored(artifact)
    found["status"] = {
        "conditions": [],
        "resolved": {"manifestDigest": OTHER_DIGEST, "resolvedTime": "2026-01-01T00:00:00Z"},
    }
    path = f"/apis/{oracle.API}/namespaces/team-a/modelartifacts/mine/status"
    code, message = world.as_user(user, {}).put(path, found)
    assert code >= 400
    assert WORKER_ONLY in message
    assert world.resolved(artifact) == before
