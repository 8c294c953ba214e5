"""node-store#configuration-ownership: where a node's configuration comes from, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests.observe import ApiAs
from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.targets import Ended
from spec_tests.warming import Warming

Worlds = Callable[..., World]
HALF_AN_HOUR: Final = 1800


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a worker and one registered node; what its kubelet says is the test's to set."""
    world = worlds(worker=True, plugins=False)
    Warming(world).register("node-a")
    return world


def spec(world: World) -> dict[str, Any]:
    """Return the node's configuration, empty while it has none."""
    found: dict[str, Any] = world.node.store().get("spec", {})
    return found


def machine(world: World) -> Any:
    """Return the emulated node, whose kubelet can be told what to answer."""
    (found,) = world.seat.cluster.nodes
    return found


@pytest.mark.rule("NS-OWN-04", "OP-CAP-02")
def test_a_setting_reaches_the_node_within_a_minute(world: World) -> None:
    """Each Setting that a node follows stands in its spec a minute later."""
    before = world.node.store()["metadata"]["generation"]
    wanted = {
        "model-store-high-watermark": "90",
        "model-store-low-watermark": "60",
        "model-store-download-concurrency": "4",
        "model-store-download-bandwidth": "100Mi",
        "model-store-peer-sync": "false",
        "model-artifact-no-proxy": "internal.example",
        "model-artifact-https-proxy": "http://proxy.example:3128",
        "model-artifact-modelscope-endpoint": "https://mirror.example",
        "model-artifact-ca-bundle": "company-ca",
    }
    for name, value in wanted.items():
        set_setting(world, name, value)
    world.advance(60)
    found = spec(world)
    assert found["watermarks"] == {"highPercent": 90, "lowPercent": 60}
    assert found["download"] == {"concurrency": 4, "bytesPerSecond": 100 << 20}
    assert found["peerSyncEnabled"] is False
    assert found["hub"]["noProxy"] == "internal.example"
    assert found["hub"]["httpsProxy"] == "http://proxy.example:3128"
    assert found["hub"]["modelScopeEndpoint"] == "https://mirror.example"
    assert found["hub"]["caBundleConfigMap"] == "company-ca"
    assert world.node.store()["metadata"]["generation"] > before


@pytest.mark.rule("NS-OWN-04")
def test_a_store_wins_over_a_setting(world: World) -> None:
    """The layers are merged field by field; the Setting counts again when the store is gone."""
    warming = Warming(world)
    warming.store(download={"concurrency": 3})
    set_setting(world, "model-store-download-concurrency", "4")
    set_setting(world, "model-store-download-bandwidth", "1Mi")
    world.advance(60)
    assert spec(world)["download"] == {"concurrency": 3, "bytesPerSecond": 1 << 20}
    assert spec(world)["store"] == "pool"
    warming.delete("ModelStore", "pool")
    world.advance(60)
    assert spec(world)["download"] == {"concurrency": 4, "bytesPerSecond": 1 << 20}


@pytest.mark.rule("NS-OWN-05")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("model-store-download-concurrency", "65"),
        ("model-store-download-concurrency", "many"),
        ("model-store-high-watermark", "96"),
        ("model-store-low-watermark", "80"),
        ("model-artifact-huggingface-endpoint", "ftp://hub.example"),
        ("model-artifact-https-proxy", "http://user:secret@proxy.example"),
        ("model-store-download-bandwidth", "-1"),
    ],
)
def test_a_value_that_fails_its_check_is_never_written(world: World, name: str, wrong: str) -> None:
    """The last valid value stays, while other Settings still arrive."""
    set_setting(world, "model-artifact-no-proxy", "before.example")
    world.advance(60)
    before = spec(world)
    set_setting(world, name, wrong)
    set_setting(world, "model-artifact-no-proxy", "after.example")
    world.advance(60)
    before["hub"]["noProxy"] = "after.example"
    assert spec(world) == before


@pytest.mark.rule("NS-OWN-06", "OP-CAP-02")
def test_kubelets_thresholds_are_read_every_half_hour(world: World) -> None:
    """They come from configz, and a change of them arrives without anybody asking."""
    assert spec(world)["kubelet"]["imageGCHighThresholdPercent"] == 85
    machine(world).configuration["imageGCHighThresholdPercent"] = 70
    machine(world).configuration["evictionHard"] = {"nodefs.available": "20%"}
    world.advance(HALF_AN_HOUR)
    world.advance(60)
    assert spec(world)["kubelet"]["imageGCHighThresholdPercent"] == 70
    assert spec(world)["kubelet"]["nodefsAvailable"] == "20%"


@pytest.mark.rule("NS-OWN-06")
def test_kubelets_thresholds_are_read_when_the_object_is_written(world: World) -> None:
    """What a kubelet is set to now stands beside a new configuration, long before half an hour."""
    assert spec(world)["kubelet"]["imageGCHighThresholdPercent"] == 85
    machine(world).configuration["imageGCHighThresholdPercent"] = 70
    set_setting(world, "model-store-download-concurrency", "4")
    world.until(
        lambda: spec(world)["kubelet"]["imageGCHighThresholdPercent"] == 70,
        "a fresh reading",
        within_seconds=60,
    )
    assert spec(world)["download"]["concurrency"] == 4


@pytest.mark.rule("NS-OWN-07")
def test_a_failed_reading_keeps_the_last(world: World) -> None:
    """A kubelet that does not answer for an hour changes nothing."""
    before = spec(world)["kubelet"]
    machine(world).stop_kubelet()
    world.advance(2 * HALF_AN_HOUR)
    set_setting(world, "model-store-download-concurrency", "4")
    world.advance(60)
    assert spec(world)["download"]["concurrency"] == 4
    assert spec(world)["kubelet"] == before


@pytest.mark.rule("NS-OWN-07")
def test_a_node_that_was_never_read_has_no_thresholds(worlds: Worlds) -> None:
    """Its object comes all the same."""
    world = worlds(worker=True, plugins=False)
    machine(world).stop_kubelet()
    Warming(world).register("node-a")
    assert spec(world)["watermarks"]["highPercent"] == 80
    assert "kubelet" not in spec(world)


@pytest.mark.rule("NS-OWN-08")
def test_the_plugin_may_not_reach_kubelets(world: World) -> None:
    """Its account holds no right on nodes/proxy, and the worker's holds the one it needs."""

    def allowed(user: str, verb: str) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": ["system:authenticated", "system:serviceaccounts"],
                "resourceAttributes": {
                    "verb": verb,
                    "resource": "nodes",
                    "subresource": "proxy",
                    "name": "node-a",
                },
            },
        }
        answer: dict[str, Any] = admin(world).create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews", review
        )
        return bool(answer["status"]["allowed"])

    verbs = ("get", "create", "update", "patch", "delete")
    assert not any(allowed(world.seat.plugin_user, verb) for verb in verbs)
    assert allowed(world.seat.worker_user, "get")


def admin(world: World) -> ApiAs:
    """Return the API server as its admin asks it."""
    return world.as_user("", {})


@pytest.mark.rule("NS-OWN-04")
def test_a_node_at_rest_is_not_written(world: World) -> None:
    """An hour without a change leaves the object as it is."""
    world.advance(120)
    before = world.node.store()["metadata"]["resourceVersion"]
    world.advance(2 * HALF_AN_HOUR)
    assert world.node.store()["metadata"]["resourceVersion"] == before


@pytest.mark.rule("NS-OWN-19")
@pytest.mark.parametrize("unserved", [(), ("selfsubjectreviews",), ("tokenreviews",)])
def test_the_worker_learns_who_it_is(worlds: Worlds, unserved: tuple[str, ...]) -> None:
    """By either review: an artifact resolves, so its own writes pass its own guard."""
    world = worlds(worker=True, plugins=False, unserved=unserved)
    assert world.resolved(world.artifact())


@pytest.mark.rule("NS-OWN-19")
def test_a_worker_that_cannot_learn_who_it_is_does_not_start(worlds: Worlds) -> None:
    """With neither review it ends, and says why."""
    with pytest.raises(Ended) as end:
        worlds(worker=True, plugins=False, unserved=("selfsubjectreviews", "tokenreviews"))
    assert "SelfSubjectReview" in str(end.value)
