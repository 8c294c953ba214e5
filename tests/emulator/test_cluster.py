"""The cluster as one object: files, objects, hubs, several of them side by side, and its time."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.contracts import ListOptions, Target
from emulator.errors import ApiError
from emulator.faults import Refuse
from emulator.gpu import GPU_LABELS, GPU_RESOURCES
from emulator.node import NodeOptions

Json = dict[str, Any]


def test_everything_goes_with_stop() -> None:
    """Threads and the private folder are gone after stop; stopping twice is no error."""
    before = set(threading.enumerate())
    cluster = Cluster()
    with pytest.raises(RuntimeError, match="call start"):
        cluster.kubeconfig()
    cluster.start()
    cluster.add_node("node-a")
    cluster.add_hub().add_repository("org/name", {"a": b"1"})
    folder = cluster.folder
    assert folder.is_dir()
    cluster.stop()
    cluster.stop()
    assert not folder.exists()
    assert set(threading.enumerate()) == before


def test_two_clusters_know_nothing_of_each_other() -> None:
    """Objects, nodes and tokens of one do not exist for the other."""
    with Cluster() as one, Cluster(kubernetes="1.29") as other:
        one.add_node("node-a")
        other.add_node("node-a")
        one.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}})
        with pytest.raises(ApiError, match="not found"):
            other.client.get("v1", "Namespace", "only-here")
        versions = [
            c.client.get("v1", "Node", "node-a")["status"]["nodeInfo"]["kubeletVersion"]
            for c in (one, other)
        ]
        assert versions == ["v1.30.0", "v1.29.0"]
        assert one.url != other.url
        assert one.ca_pem != other.ca_pem


@pytest.mark.parametrize(("kubernetes", "at_rest"), [("1.32", []), ("1.33", ["BOOKMARK"])])
def test_an_old_server_sends_no_bookmarks_of_a_kind_at_rest(
    kubernetes: str, at_rest: list[str]
) -> None:
    """Up to 1.32 bookmarks begin with the first change after a start of the server."""
    clock = ManualClock()
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "a.b"}}
    with Cluster(kubernetes=kubernetes, clock=clock) as cluster:
        assert _watched_for_a_while(cluster, clock) == at_rest
        cluster.client.create({**driver, "spec": {}})
        assert _watched_for_a_while(cluster, clock) == ["BOOKMARK"]
        cluster.faults.restart_api_server()
        assert _watched_for_a_while(cluster, clock) == at_rest


def _watched_for_a_while(cluster: Cluster, clock: ManualClock) -> list[str]:
    """Return what kinds of events a watch of CSIDrivers saw until it ended."""
    api = cluster.client.api
    drivers = Target(api.resource("storage.k8s.io", "v1", "csidrivers"))
    version = str(api.store.version)
    options = ListOptions(resource_version=version, timeout_seconds=180, allow_watch_bookmarks=True)
    seen: list[str] = []
    watch = api.watch(drivers, options)
    reader = threading.Thread(target=lambda: seen.extend(event.type for event in watch))
    reader.start()
    while reader.is_alive():
        clock.advance(10)
    return sorted(set(seen))


def test_kubeconfig_is_private_and_names_its_user() -> None:
    """The file is readable by its owner alone, and holds server, CA and a token of the user."""
    with Cluster() as cluster:
        path = cluster.kubeconfig()
        content = json.loads(path.read_text("utf-8"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert content["clusters"][0]["cluster"]["server"] == cluster.url
        assert content["users"][0]["user"]["token"]
        assert cluster.kubeconfig("alice") != path
        with pytest.raises(LookupError, match="create it first"):
            cluster.kubeconfig("system:serviceaccount:default:nobody")


def test_a_kubeconfigs_token_outlives_a_test() -> None:
    """A file's token is accepted after hours on a manual clock, unless its Pod has gone."""
    with Cluster(clock=ManualClock()) as cluster:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        metadata = {"name": "p", "namespace": "default"}
        cluster.client.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
        account = "system:serviceaccount:default:default"
        path = cluster.kubeconfig(account, pod=("default", "p"))
        token = json.loads(path.read_text("utf-8"))["users"][0]["user"]["token"]

        def authenticated() -> bool:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
            body = {**review, "metadata": {}, "spec": {"token": token}}
            return bool(cluster.client.create(body)["status"].get("authenticated"))

        assert isinstance(cluster.clock, ManualClock)
        cluster.clock.advance(3 * 3600)
        assert authenticated()
        cluster.client.delete("v1", "Pod", "p", namespace="default")
        cluster.clock.advance(60)
        assert not authenticated()


@pytest.mark.needs("kubectl")
def test_kubectl_sees_the_cluster(tmp_path: Path) -> None:
    """A real kubectl lists ready nodes and a running Pod, and a Pod's token says whose it is."""
    with Cluster() as cluster:
        cluster.add_node("node-a")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "i"}]},
        }
        cluster.apply(pod)
        assert cluster.settle()

        def kubectl(config: Path, *arguments: str) -> str:
            done = subprocess.run(  # noqa: S603 - a fixed program on our own server
                [shutil.which("kubectl") or "kubectl", "--kubeconfig", str(config), *arguments],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
                env={"HOME": str(tmp_path)},
            )
            assert done.stderr == ""
            return done.stdout

        admin = cluster.kubeconfig()
        assert "Ready" in kubectl(admin, "get", "nodes", "--no-headers")
        assert "Running" in kubectl(admin, "get", "pods", "--no-headers")
        bound = cluster.kubeconfig("system:serviceaccount:default:default", pod=("default", "p"))
        who = json.loads(kubectl(bound, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
        assert who["username"] == "system:serviceaccount:default:default"
        assert who["extra"]["authentication.kubernetes.io/node-name"] == ["node-a"]


def test_apply_takes_files_and_folders(tmp_path: Path) -> None:
    """Documents of a folder are applied, namespaces and definitions before what needs them."""
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: late}\n"
    (tmp_path / "a.yaml").write_text(f"{config}data: {{a: '1'}}\n---\n", "utf-8")
    (tmp_path / "b.yml").write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n", "utf-8"
    )
    with Cluster() as cluster:
        assert [obj["kind"] for obj in cluster.apply(tmp_path)] == ["Namespace", "ConfigMap"]
        changed = cluster.apply(tmp_path / "a.yaml")
        assert changed[0]["data"] == {"a": "1"}
        listed = [
            obj["metadata"]["name"]
            for obj in cluster.client.list("v1", "ConfigMap", namespace="late")
        ]
        assert "c" in listed


def test_gpu_nodes() -> None:
    """Labels are put on by the administrator, and resources are the node's own."""
    with Cluster() as cluster:
        cluster.add_node(
            "gpu", labels=dict(GPU_LABELS), options=NodeOptions(allocatable=GPU_RESOURCES)
        )
        node = cluster.client.get("v1", "Node", "gpu")
        assert GPU_LABELS.items() <= node["metadata"]["labels"].items()
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_removed_node_is_gone() -> None:
    """Removing a machine ends its kubelet and deletes its Node."""
    with Cluster() as cluster:
        node = cluster.add_node("node-a")
        node.remove()
        node.remove()
        assert node.configz() is None
        assert cluster.client.list("v1", "Node") == []
        with pytest.raises(ApiError, match="not found"):
            cluster.client.get("v1", "Node", "node-a")


def test_a_removed_node_gives_its_name_free() -> None:
    """Another machine may have the name: a new Node with a new uid, and nothing on its disk."""
    with Cluster(clock=ManualClock()) as cluster:
        first = cluster.add_node("node-a")
        with pytest.raises(ValueError, match="already"):
            cluster.add_node("node-a")
        uid = cluster.client.get("v1", "Node", "node-a")["metadata"]["uid"]
        (first.cache_root / "left").touch()
        first.remove()
        second = cluster.add_node("node-a")
        assert cluster.nodes == (second,)
        assert cluster.client.get("v1", "Node", "node-a")["metadata"]["uid"] != uid
        assert list(second.cache_root.iterdir()) == []
        assert second.address != first.address


def test_a_picture_of_a_cluster() -> None:
    """What a failing test wants to see is in it; tokens are not."""
    with Cluster(clock=ManualClock()) as cluster:
        cluster.add_node("node-a")
        cluster.add_hub().add_repository("org/model", {"config.json": b"{}"})
        kubeconfig = json.loads(cluster.kubeconfig().read_text("utf-8"))
        cluster.faults.add(Refuse(503), verb="write", times=3)
        pod = {"name": "lost", "namespace": "default"}
        mount = {"name": "v", "mountPath": "/v"}
        spec = {
            "nodeName": "node-a",
            "containers": [{"name": "c", "image": "i", "volumeMounts": [mount]}],
            "volumes": [{"name": "v", "csi": {"driver": "absent.example.io"}}],
        }
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": spec})
        cluster.settle()
        picture = cluster.dump()
    lines = picture.splitlines()
    assert lines[0].startswith("2026-01-01T00:00:00Z, version ")
    assert "1 nodes" in lines[0]
    assert any(line.startswith("node node-a Ready 127.20.1.1, drivers none") for line in lines)
    assert any(line.startswith("pod default/lost Pending on node-a: ") for line in lines)
    assert any(
        "FailedMount" in line and line.startswith("event default Pod/lost") for line in lines
    )
    assert "fault refuse verb=write times=3, 0 hits" in lines
    assert any(line.startswith("hub http://127.0.0.1:") for line in lines)
    assert kubeconfig["users"][0]["user"]["token"] not in picture


def test_errors_of_disks_and_mounts_are_translated() -> None:
    """What a node's ports raise is what the cluster was told to make of an OSError."""

    class PortError(Exception):
        pass

    with Cluster(translate=lambda error: PortError(error.strerror)) as cluster:
        node = cluster.add_node("node-a")
        with pytest.raises(PortError):
            node.disk.sync_file(node.cache_root / "missing")
        with pytest.raises(PortError):
            node.mounts.bind_read_only(node.cache_root / "missing", node.cache_root)


def run_the_same_story() -> list[Any]:
    """Run nodes, Pods and a lost node over minutes; return what came of it, and when."""
    clock = ManualClock()
    with Cluster(clock=clock) as cluster:
        for name in ("node-a", "node-b"):
            cluster.add_node(name)
        for number in range(4):
            job = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
            metadata: Json = {
                "name": f"p{number}",
                "namespace": "default",
                "annotations": {"emulator/run-seconds": str(20 * number)},
            }
            pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job}
            cluster.client.create(pod)
            cluster.settle()
            clock.advance(7)
        cluster.nodes[1].stop_kubelet()
        clock.advance(120)
        story: list[Any] = []
        for pod in cluster.client.list("v1", "Pod"):
            status = pod["status"]
            states = [container["state"] for container in status["containerStatuses"]]
            for state in states:
                state.get("terminated", {}).pop("containerID", None)
            conditions = status["conditions"]
            story.append((pod["metadata"]["name"], pod["spec"]["nodeName"], states, conditions))
        for event in cluster.client.list("v1", "Event"):
            times = (event["firstTimestamp"], event["lastTimestamp"])
            story.append((event["involvedObject"]["name"], event["message"], event["count"], times))
        return sorted(story, key=repr)


def test_the_same_story_is_the_same_every_time() -> None:
    """On a manual clock the same steps lead to the same states, events, counts and times."""
    first = run_the_same_story()
    assert len(first) > 20
    for _ in range(4):
        assert run_the_same_story() == first


def test_watches_that_break_are_opened_again() -> None:
    """After every watch was cut and the past forgotten, Pods still come and go."""
    with Cluster(clock=ManualClock()) as cluster:
        cluster.add_node("node-a")
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "before", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        cluster.client.create(pod)
        cluster.settle()
        cluster.api.drop_watches()
        cluster.client.delete("v1", "Pod", "before", namespace="default")
        cluster.api.compact()
        cluster.client.create({**pod, "metadata": {"name": "after", "namespace": "default"}})
        cluster.settle()
        found = cluster.client.list("v1", "Pod")
        assert [(one["metadata"]["name"], one["status"]["phase"]) for one in found] == [
            ("after", "Running")
        ]


@pytest.mark.needs("kernel-mounts")
def test_kernel_mounts_show_in_a_pods_view(tmp_path: Path) -> None:
    """A node on the kernel's mounts binds for real, in a process of its own, and leaves nothing."""
    program = f"""
from emulator import Cluster
with Cluster(kernel_mounts=True) as cluster:
    node = cluster.add_node("node-a")
    source, target = node.cache_root / "tree", node.kubelet_dir / "pods" / "t"
    source.mkdir(); target.mkdir()
    (source / "file").write_bytes(b"x")
    node.mounts.bind_read_only(source, target)
    assert node.read_file(target, "file") == b"x"
    folder = cluster.folder
print(folder)
assert not folder.exists()
open({str(tmp_path / "done")!r}, "w").close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)  # noqa: S603 - our own program
    assert (tmp_path / "done").exists()
