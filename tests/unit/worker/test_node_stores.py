"""NodeModelStores come with the plugin, follow the Settings, and go with the driver."""

from __future__ import annotations

from gpustack_delivery.vocabulary import settings
from gpustack_delivery.vocabulary.resources import (
    CSI_DRIVERS,
    DRIVER_NAME,
    EVENTS,
    MODEL_STORES,
    NODE_MODEL_STORES,
    NODES,
)
from tests.unit.fakes import eventually
from tests.unit.worker.node_stores_run import cluster, running, set_setting, spec
from tests.unit.worker.world import (
    ClusterKube,
    add_driver,
    add_node,
    register,
)


def owners(kube: ClusterKube) -> list[str]:
    """Return the UIDs of whoever owns the node's object."""
    found = kube.find(NODE_MODEL_STORES, "node-a")
    assert found is not None
    return [owner["uid"] for owner in found["metadata"]["ownerReferences"]]


def test_object_is_made_for_a_node_that_runs_the_plugin() -> None:
    """It bears the Node's name, is owned by it, and holds the Settings and kubelet's thresholds."""
    kube = cluster()
    add_node(kube, "node-b", registered=False)
    with running(kube) as run:
        run.until(lambda: spec(kube))
    (store,) = kube.all(NODE_MODEL_STORES)
    assert store["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "node-a",
            "uid": "uid-node-a",
            "controller": True,
        }
    ]
    assert store["spec"] == {
        "watermarks": {"highPercent": 80, "lowPercent": 70},
        "download": {"concurrency": 8},
        "hub": {
            "huggingFaceEndpoint": "https://huggingface.co",
            "modelScopeEndpoint": "https://www.modelscope.cn",
        },
        "kubelet": {"nodefsAvailable": "10%", "imageGCHighThresholdPercent": 85},
        "peerSyncEnabled": True,
    }
    assert kube.changes(NODE_MODEL_STORES) == 1


def test_object_appears_with_the_registration_and_survives_its_flicker() -> None:
    """The driver's entry makes it; its going, as at a plugin restart, does not unmake it."""
    kube = ClusterKube()
    add_driver(kube)
    add_node(kube, "node-a", registered=False)
    with running(kube) as run:
        run.rest()
        assert spec(kube) == {}
        register(kube, "node-a")
        run.until(lambda: spec(kube))
        register(kube, "node-a", registered=False)
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "3")
        eventually(lambda: spec(kube)["download"]["concurrency"] == 3, "the refresh")
    assert kube.count("delete") == 0


def test_deleted_object_is_made_again() -> None:
    """While the node runs the plugin, deleting its object only makes a new one."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        kube.delete(NODE_MODEL_STORES, "node-a")
        eventually(lambda: spec(kube))


def test_no_driver_no_objects() -> None:
    """All objects go while there is no CSIDriver, and come back with it."""
    kube = cluster()
    add_node(kube, "node-b")
    with running(kube) as run:
        eventually(lambda: len(kube.all(NODE_MODEL_STORES)) == 2)
        kube.remove(CSI_DRIVERS, DRIVER_NAME)
        run.until(lambda: not kube.all(NODE_MODEL_STORES))
        register(kube, "node-a")
        run.rest()
        assert kube.all(NODE_MODEL_STORES) == []
        add_driver(kube)
        eventually(lambda: len(kube.all(NODE_MODEL_STORES)) == 2)


def test_pins_belong_to_another_writer() -> None:
    """A Setting's change never drops a pin, and a pin causes no write of ours."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        before = kube.count("apply")
        pins = {"metadata": {"name": "node-a"}, "spec": {"pinned": ["sha256:a"]}}
        kube.apply(NODE_MODEL_STORES, pins, field_manager="prefetch")
        run.rest()
        assert kube.count("apply") == before + 1, "the pin's own write, and no other"
        set_setting(kube, settings.HIGH_WATERMARK, "90")
        run.until(lambda: spec(kube)["watermarks"]["highPercent"] == 90)
    assert spec(kube)["pinned"] == ["sha256:a"]


def test_a_strangers_edit_is_mended() -> None:
    """What somebody wrote into the spec, or took from its owners, is put right again."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        kube.merge_patch(NODE_MODEL_STORES, "node-a", {"spec": {"download": {"concurrency": 64}}})
        run.until(lambda: spec(kube)["download"]["concurrency"] == 8)
        kube.merge_patch(NODE_MODEL_STORES, "node-a", {"metadata": {"ownerReferences": []}})
        eventually(lambda: kube.all(NODE_MODEL_STORES)[0]["metadata"]["ownerReferences"])


def test_bad_setting_is_said_and_changes_nothing() -> None:
    """The last valid value stays, an Event names the check, and the mended value holds at once."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "many")
        run.until(lambda: kube.all(EVENTS))
        assert spec(kube)["download"]["concurrency"] == 8
        (event,) = kube.all(EVENTS)
        assert event["involvedObject"]["name"] == settings.SECRET_NAME
        assert "model-store-download-concurrency must be a whole number" in event["message"]
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "5")
        eventually(lambda: spec(kube)["download"]["concurrency"] == 5)


def test_last_valid_value_outlives_the_worker() -> None:
    """A new leader that never saw the valid Setting keeps what the node's spec holds of it."""
    kube = cluster()
    set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "5")
    with running(kube) as run:
        run.until(lambda: spec(kube)["download"]["concurrency"] == 5)
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "many")
        run.rest()
    with running(kube) as run:
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "more")
        run.rest()
        assert spec(kube)["download"]["concurrency"] == 5
        add_node(kube, "node-b")
        run.rest()
        assert spec(kube, "node-b") == {}
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "6")
        run.until(lambda: spec(kube, "node-b"))
        assert spec(kube)["download"]["concurrency"] == 6


def test_store_layer_follows_labels_and_stores() -> None:
    """A ModelStore's overrides reach the nodes it selects, and leave with it."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        selector = {"matchLabels": {"pool": "gpu"}}
        pool = {"nodeSelector": selector, "download": {"concurrency": 2}}
        kube.put(MODEL_STORES, {"metadata": {"name": "pool"}, "spec": pool})
        run.until(lambda: spec(kube).get("store") == "pool")
        assert spec(kube)["download"] == {"concurrency": 2}
        kube.put(NODES, {"metadata": {"name": "node-a", "uid": "uid-node-a", "labels": {}}})
        run.until(lambda: "store" not in spec(kube))
        assert spec(kube)["download"] == {"concurrency": 8}


def test_steady_cluster_is_left_alone() -> None:
    """The plugin's status, and hours of nothing, cause no write."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        before = kube.count("apply")
        store = kube.all(NODE_MODEL_STORES)[0]
        kube.update(
            NODE_MODEL_STORES,
            store | {"status": {"capacity": {"totalBytes": 1}}},
            subresource="status",
        )
        for _ in range(8):
            run.advance(900)
        run.until(lambda: kube.count("raw") >= 2)
    assert kube.count("apply") == before


def test_node_that_leaves() -> None:
    """A Node's end is the garbage collector's work; an object nothing owns is ours to remove."""
    kube = cluster()
    orphan = {"metadata": {"name": "ghost"}, "spec": {}}
    kube.put(NODE_MODEL_STORES, orphan)
    with running(kube) as run:
        run.until(lambda: spec(kube))
        eventually(lambda: kube.find(NODE_MODEL_STORES, "ghost") is None)
        kube.remove(NODES, "node-a")
        run.rest()
        assert spec(kube)
        kube.delete(NODE_MODEL_STORES, "node-a")
        run.rest()
        assert spec(kube) == {}


def test_node_that_comes_back_under_its_name() -> None:
    """Its object is the new Node's, also if the collector still takes the one it found."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        kube.remove(NODES, "node-a")
        again = {"name": "node-a", "uid": "another", "labels": {"pool": "gpu"}}
        kube.put(NODES, {"metadata": again})
        run.rest()
        assert owners(kube) == ["another"]
        kube.delete(NODE_MODEL_STORES, "node-a")
        run.until(lambda: spec(kube))
        assert owners(kube) == ["another"]


def test_terminating_things_are_left_alone() -> None:
    """Neither a Node nor an object on its way out is written."""
    kube = cluster()
    leaving = {"name": "node-b", "uid": "u", "deletionTimestamp": "2026-09-25T06:00:00Z"}
    add_node(kube, "node-b")
    kube.put(NODES, {"metadata": leaving})
    held = {"name": "node-a", "deletionTimestamp": "2026-09-25T06:00:00Z", "finalizers": ["x/y"]}
    kube.put(NODE_MODEL_STORES, {"metadata": held, "spec": {}})
    with running(kube) as run:
        run.rest()
    assert kube.count("apply") == 0
