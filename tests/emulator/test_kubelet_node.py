"""What kubelet writes about its node, what its endpoints show, and Pods it does not take in."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from emulator import Cluster
from emulator.kubelet.pods import EXIT_CODE, RUN_SECONDS
from emulator.node import NodeOptions
from tests.emulator.kubelet_world import World, anonymous, recorded, world

Json = dict[str, Any]
FILE = "35-kubelet-node-objects"


def test_node_and_csinode() -> None:
    """Labels, annotations, conditions and addresses have the recorded form."""
    with world() as there:
        node, wanted = there.node_object(), recorded(FILE, "Node")["object"]
        assert node["metadata"]["labels"] == wanted["metadata"]["labels"]
        facts = [
            (c["type"], c["status"], c["reason"], c["message"])
            for c in node["status"]["conditions"]
        ]
        assert facts == [
            (c["type"], c["status"], c["reason"], c["message"])
            for c in wanted["status"]["conditions"]
        ]
        kinds = [address["type"] for address in node["status"]["addresses"]]
        assert kinds == [address["type"] for address in wanted["status"]["addresses"]]
        assert set(node["status"]["nodeInfo"]) >= {
            "kubeletVersion",
            "operatingSystem",
            "architecture",
        }
        assert node["spec"].get("taints") is None
        assert there.csinode()["spec"] == recorded(FILE, "CSINode")["object"]["spec"]


def test_the_lease_is_renewed() -> None:
    """The Lease has the recorded form, and its time moves every ten seconds."""
    with world() as there:
        client = there.cluster.client

        def lease() -> Json:
            return client.get(
                "coordination.k8s.io/v1", "Lease", "node-a", namespace="kube-node-lease"
            )

        wanted = recorded(FILE, "Lease")["object"]
        first = lease()
        assert anonymous(first["metadata"]["ownerReferences"]) == anonymous(
            wanted["metadata"]["ownerReferences"]
        )
        assert {**first["spec"], "renewTime": ""} == {**wanted["spec"], "renewTime": ""}
        assert first["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
        there.advance(25)
        assert lease()["spec"]["renewTime"] == "2026-01-01T00:00:20.000000Z"


def test_a_quiet_node_writes_nothing_but_its_heartbeat() -> None:
    """An hour passes with a renewed Lease every ten seconds and a status every five minutes."""
    with world() as there:
        before = there.cluster.api.store.version
        there.advance(3600)
        written = there.cluster.api.store.version - before
        assert written == 360 + 12


def fetch(cluster: Cluster, kubeconfig: Path, path: str) -> tuple[int, str]:
    """GET a path of the API server as a kubeconfig's user."""
    token = json.loads(kubeconfig.read_text("utf-8"))["users"][0]["user"]["token"]
    request = urllib.request.Request(cluster.url + path)  # noqa: S310 - our own server
    request.add_header("Authorization", f"Bearer {token}")
    context = ssl.create_default_context(cadata=cluster.ca_pem)
    try:
        opened = urllib.request.urlopen(request, context=context, timeout=30)  # noqa: S310 - as above
        with opened as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_kubelet_has_no_port_of_its_own() -> None:
    """What kubelet shows on its port is shown by the API server alone."""
    with world() as there, pytest.raises(ConnectionRefusedError):
        socket.create_connection((there.node.address, 10250), 5.0)


def test_configz_through_the_proxy() -> None:
    """configz has kubelet's thresholds, follows a node's configuration, needs nodes/proxy."""
    path = "/api/v1/nodes/node-a/proxy/configz"
    with Cluster() as cluster:
        node = cluster.add_node("node-a")
        admin, alice = cluster.kubeconfig(), cluster.kubeconfig("alice")
        status, text = fetch(cluster, admin, path)
        shown = json.loads(text)["kubeletconfig"]
        wanted = recorded(FILE, "configz directly as admin")["response"]["body"]["kubeletconfig"]
        assert status == 200
        assert {key: shown[key] for key in wanted} == wanted

        node.configuration |= {
            "evictionHard": {"nodefs.available": "5%"},
            "imageGCHighThresholdPercent": None,
        }
        shown = json.loads(fetch(cluster, admin, path)[1])["kubeletconfig"]
        assert shown["evictionHard"] == {"nodefs.available": "5%"}
        assert "imageGCHighThresholdPercent" not in shown

        status, text = fetch(cluster, alice, path)
        refused = recorded(FILE, "proxy forbidden")["response"]
        assert (status, json.loads(text)["message"]) == (403, refused["body"]["message"])
        status, text = fetch(cluster, admin, "/api/v1/nodes/nope/proxy/configz")
        assert (status, json.loads(text)) == (
            404,
            recorded(FILE, "proxy to a missing node")["response"]["body"],
        )
        assert fetch(cluster, admin, "/api/v1/nodes/node-a/proxy/healthz") == (200, "ok")
        assert fetch(cluster, admin, "/api/v1/nodes/node-a/proxy/nope") == (
            404,
            "404 page not found\n",
        )
        node.stop_kubelet()
        status, text = fetch(cluster, admin, path)
        assert (status, json.loads(text)["reason"]) == (503, "ServiceUnavailable")


def simple(there: World, name: str, **spec: Any) -> Json:
    """Create a Pod without volumes and return it as it is when all has settled."""
    there.add_pod(
        name, containers=[{"name": "c", "image": "rig.local/pause:1"}], volumes=[], **spec
    )
    found = there.pod(name)
    assert found is not None
    return found


def test_a_pod_bound_to_a_node_that_it_does_not_want_is_rejected() -> None:
    """kubelet judges affinity and room again, whoever set nodeName, and fails the Pod."""
    with world() as there:
        status = simple(there, "far", nodeSelector={"zone": "moon"})["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "NodeAffinity")
        assert status["message"] == "Pod was rejected: Predicate NodeAffinity failed"
        there.add_pod(
            "big",
            volumes=[],
            containers=[
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "65"}}},
            ],
        )
        big = there.pod("big")
        assert big is not None
        assert (big["status"]["phase"], big["status"]["reason"]) == ("Failed", "OutOfcpu")
        there.delete_pod("far")
        assert there.pod("far") is None


@pytest.mark.parametrize(
    ("annotations", "phase", "code", "reason"),
    [({}, "Succeeded", 0, "Completed"), ({EXIT_CODE: "3"}, "Failed", 3, "Error")],
)
def test_a_pod_that_is_not_restarted_ends(
    annotations: Json, phase: str, code: int, reason: str
) -> None:
    """Its containers end as told, its volumes are taken down, its object stays."""
    with world() as there:
        there.add_driver()
        containers = [
            {"name": "c", "image": "i", "volumeMounts": [{"name": "vol", "mountPath": "/vol"}]}
        ]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "job",
                "namespace": "n1",
                "annotations": {**annotations, RUN_SECONDS: "30"},
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": containers,
                "volumes": [{"name": "vol", "csi": {"driver": "rig.csi.example.io"}}],
            },
        }
        there.cluster.client.create(pod)
        there.advance(29)
        running = there.pod("job")
        assert running is not None
        assert running["status"]["phase"] == "Running"
        assert there.plugin.named("NodeUnpublishVolume") == []
        there.advance(1)
        ended = there.pod("job")
        assert ended is not None
        assert ended["status"]["phase"] == phase
        state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (state["exitCode"], state["reason"]) == (code, reason)
        assert len(there.plugin.named("NodeUnpublishVolume")) == 1
        there.advance(60)
        there.node.restart_kubelet()
        there.delete_pod("job")
        assert there.pod("job") is None
        assert len(there.plugin.named("NodeUnpublishVolume")) == 1


def test_pods_have_addresses_of_their_own() -> None:
    """Each Pod gets an address in its node's network; a freed one is given again."""
    with world() as there:
        first = simple(there, "one", hostNetwork=False)["status"]["podIP"]
        second = simple(there, "two", hostNetwork=False)["status"]["podIP"]
        assert first != second
        assert first.rpartition(".")[0] == there.node.address.rpartition(".")[0]
        there.delete_pod("one")
        assert simple(there, "three", hostNetwork=False)["status"]["podIP"] == first
        assert simple(there, "host")["status"]["podIP"] == there.node.address


def test_older_versions_speak_as_they_did() -> None:
    """What newer versions added to a status is not there, and events have the older words."""
    with world(kubernetes="1.29") as there:
        pod = simple(there, "old")
        assert "observedGeneration" not in pod["status"]
        assert "volumeMounts" not in pod["status"]["containerStatuses"][0]
        assert [event["message"] for event in there.events("old")][1:] == [
            "Created container c",
            "Started container c",
        ]


def test_a_name_that_makes_sockets_impossible_is_refused() -> None:
    """A node whose socket paths exceed 107 bytes is refused with the length and what to do."""
    with Cluster() as cluster:
        with pytest.raises(ValueError, match="107 are possible: give the node a shorter name"):
            cluster.add_node("n" * 80)
        assert cluster.nodes == ()
        cluster.add_node("node-a", options=NodeOptions(disk_bytes=1000))
        with pytest.raises(ValueError, match="there is a node 'node-a' already"):
            cluster.add_node("node-a")
