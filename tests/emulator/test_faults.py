"""Faults a test can ask a cluster for, as a client over HTTPS meets them."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.contracts import DeleteOptions
from emulator.errors import ApiError
from emulator.faults import Conflict, Delay, Gone, Hangup, Refuse, Silence
from tests.emulator.csi_plugin import NAME
from tests.emulator.http_client import HttpClient, event
from tests.emulator.kubelet_world import world
from tests.emulator.webhook_rig import RecordedHook, recorded_hook

Json = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
WATCH = f"{MAPS}?watch=true"
MERGE = "application/merge-patch+json"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Return a cluster on a clock that stands still."""
    with Cluster(clock=ManualClock()) as started:
        yield started


@pytest.fixture
def client(cluster: Cluster) -> HttpClient:
    """Return the administrator over HTTPS."""
    return HttpClient(cluster.kubeconfig())


def _map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _named(cluster: Cluster, name: str) -> list[Json]:
    return cluster.client.list(
        "v1", "ConfigMap", namespace="default", fields=f"metadata.name={name}"
    )


def test_a_refused_write_is_not_done(cluster: Cluster, client: HttpClient) -> None:
    """The chosen requests get the chosen answer, so many times, and others are left alone."""
    rule = cluster.faults.add(
        Refuse(503, retry_after=7), verb="create", resource="configmaps", times=2, skip=1
    )
    assert client.send("POST", MAPS, _map("a"))[0] == 201
    status, body = client.send("POST", MAPS, _map("b"))
    assert (status, body["reason"], body["code"]) == (503, "ServiceUnavailable", 503)
    assert client.send("GET", f"{MAPS}/a")[0] == 200
    assert client.send("POST", MAPS, _map("b"))[0] == 503
    assert _named(cluster, "b") == []
    assert client.send("POST", MAPS, _map("b"))[0] == 201
    assert rule.hits == 2


def test_faults_strike_by_user_name_and_kind_of_verb(cluster: Cluster) -> None:
    """A rule for one user's writes of one object leaves everything else alone."""
    admin, alice = HttpClient(cluster.kubeconfig()), HttpClient(cluster.kubeconfig("alice"))
    cluster.faults.add(Refuse(500), user="alice", verb="write", name="a")
    assert alice.send("DELETE", f"{MAPS}/a")[0] == 500
    assert alice.send("DELETE", f"{MAPS}/b")[0] == 403
    assert alice.send("GET", f"{MAPS}/a")[0] == 403
    assert admin.send("DELETE", f"{MAPS}/a")[0] == 404
    cluster.faults.clear()
    assert alice.send("DELETE", f"{MAPS}/a")[0] == 403


def test_an_injected_conflict_reads_like_a_real_one(cluster: Cluster, client: HttpClient) -> None:
    """The Status is the one of a write from an old version."""
    client.send("POST", MAPS, _map("a"))
    stale = {**_map("a"), "metadata": {"name": "a", "resourceVersion": "1"}}
    real = client.send("PUT", f"{MAPS}/a", stale)
    cluster.faults.add(Conflict(), verb="patch", resource="configmaps", times=1)
    assert client.send("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, MERGE) == real
    assert real[0] == 409
    assert client.send("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, MERGE)[0] == 200


def test_a_slow_write_takes_the_clusters_time(cluster: Cluster, client: HttpClient) -> None:
    """A delayed write is stored when its time has come on the manual clock."""
    assert isinstance(cluster.clock, ManualClock)
    cluster.faults.add(Delay(5.0), verb="create")
    answers: list[int] = []
    thread = threading.Thread(
        target=lambda: answers.append(client.send("POST", MAPS, _map("a"))[0])
    )
    thread.start()
    while cluster.faults.waiting == 0:
        cluster.clock.rest()
    cluster.clock.advance(4.9)
    assert _named(cluster, "a") == []
    cluster.clock.advance(0.2)
    thread.join(30)
    assert answers == [201]


def test_a_lost_answer_may_hide_a_write(cluster: Cluster, client: HttpClient) -> None:
    """The connection ends without an answer, before or after the write."""
    cluster.faults.add(Hangup(), verb="create", times=1)
    with pytest.raises((http.client.HTTPException, OSError)):
        client.send("POST", MAPS, _map("a"))
    assert _named(cluster, "a") == []
    cluster.faults.add(Hangup(done=True), verb="create", times=1)
    with pytest.raises((http.client.HTTPException, OSError)):
        client.send("POST", MAPS, _map("a"))
    assert len(_named(cluster, "a")) == 1


def test_a_restart_breaks_watches_and_keeps_objects(cluster: Cluster, client: HttpClient) -> None:
    """After the restart the address is the same, and a watch goes on from its last version."""
    url = cluster.url
    client.send("POST", MAPS, _map("a"))
    version = client.send("GET", MAPS)[1]["metadata"]["resourceVersion"]
    with client.watch(f"{WATCH}&resourceVersion={version}") as watch:
        cluster.faults.stop_api_server()
        assert _ended(watch)
    with pytest.raises(OSError, match="refused"):
        client.send("GET", MAPS)
    cluster.client.create(_map("b"), namespace="default")
    cluster.faults.start_api_server()
    assert cluster.url == url
    with client.watch(f"{WATCH}&resourceVersion={version}") as watch:
        found = event(watch)
        assert found is not None
        assert found["object"]["metadata"]["name"] == "b"


def _ended(watch: http.client.HTTPResponse) -> bool:
    """Say whether a watch is over: cleanly, or with its connection."""
    try:
        return event(watch) is None
    except (http.client.HTTPException, OSError):
        return True


def test_watches_can_be_dropped_by_resource(cluster: Cluster, client: HttpClient) -> None:
    """One kind's watches end, cleanly or by a reset; another's goes on."""
    version = client.send("GET", MAPS)[1]["metadata"]["resourceVersion"]
    with (
        client.watch(f"{WATCH}&resourceVersion={version}") as maps,
        client.watch("/api/v1/namespaces?watch=true") as others,
    ):
        assert cluster.faults.drop_watches("configmaps") == 1
        assert maps.read(1) == b""
        assert event(others) is not None
    with client.watch(f"{WATCH}&resourceVersion={version}") as maps:
        assert cluster.faults.drop_watches("configmaps", reset=True) == 1
        with pytest.raises((http.client.HTTPException, OSError)):
            maps.read(1)


def test_a_silenced_watch_stays_open_and_tells_nothing(
    cluster: Cluster, client: HttpClient
) -> None:
    """A change is not told to it, while a new watch sees it; clearing the faults ends it."""
    version = client.send("GET", MAPS)[1]["metadata"]["resourceVersion"]
    with client.watch(f"{WATCH}&resourceVersion={version}") as dead:
        assert cluster.faults.silence_watches("configmaps") == 1
        cluster.client.create(_map("a"), namespace="default")
        with client.watch(f"{WATCH}&resourceVersion={version}") as alive:
            assert event(alive) is not None
        cluster.faults.clear()
        assert event(dead) is None


def test_a_watch_that_is_silent_from_its_start(cluster: Cluster, client: HttpClient) -> None:
    """The watch opens with 200 and nothing comes, not even what is there already."""
    client.send("POST", MAPS, _map("a"))
    cluster.faults.add(Silence(), verb="watch", resource="configmaps", times=1)
    with client.watch(WATCH) as watch:
        cluster.faults.clear()
        assert event(watch) is None
    with client.watch(WATCH) as watch:
        assert event(watch) is not None


def test_410_at_will(cluster: Cluster, client: HttpClient) -> None:
    """A list gets the Status, a watch the event; forgotten history does it to everyone."""
    cluster.faults.add(Gone(), resource="configmaps", times=2)
    status, body = client.send("GET", f"{MAPS}?resourceVersion=7&resourceVersionMatch=Exact")
    assert (status, body["reason"]) == (410, "Expired")
    with client.watch(f"{WATCH}&resourceVersion=7") as watch:
        found = event(watch)
        assert found is not None
        assert (found["type"], found["object"]["code"]) == ("ERROR", 410)
        assert event(watch) is None
    version = client.send("GET", MAPS)[1]["metadata"]["resourceVersion"]
    client.send("POST", MAPS, _map("a"))
    cluster.faults.forget_history()
    with client.watch(f"{WATCH}&resourceVersion={version}") as watch:
        found = event(watch)
        assert found is not None
        assert found["object"]["reason"] == "Expired"


def test_tokens_expire_and_rotate(cluster: Cluster) -> None:
    """An expired token is 401; the file's next one works, and so does the old one till it ends."""
    account = "system:serviceaccount:default:default"
    file = cluster.kubeconfig(account)
    old = file.read_text("utf-8")
    client = HttpClient(file)
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    document = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    cluster.faults.rotate_token(file)
    assert file.read_text("utf-8") != old
    assert file.stat().st_mode & 0o777 == 0o600
    other = file.with_name("old")
    other.write_text(old, "utf-8")
    for each in (file, other):
        status, body = HttpClient(each).send("POST", review, document)
        assert (status, body["status"]["userInfo"]["username"]) == (201, account)
    cluster.faults.expire_token(file)
    assert client.send("POST", review, document)[0] == 401
    assert HttpClient(other).send("POST", review, document)[0] == 201
    cluster.faults.rotate_token(file)
    assert client.send("POST", review, document)[0] == 201
    with pytest.raises(LookupError, match="not a kubeconfig of this cluster"):
        cluster.faults.rotate_token(other)


def test_a_webhook_is_down_and_up(cluster: Cluster) -> None:
    """While nothing listens behind its Service, writes fail; then they are judged again."""
    with recorded_hook("hook.default.svc") as hook:
        _configure(cluster, hook)
        with pytest.raises(LookupError, match="no route stands for service"):
            cluster.faults.cut_service("default", "nothing")
        cluster.client.create(_map("a"), namespace="default")
        cluster.faults.cut_service("default", "hook")
        with pytest.raises(ApiError, match="connection refused"):
            cluster.client.create(_map("b"), namespace="default")
        cluster.faults.mend_service("default", "hook")
        cluster.client.create(_map("b"), namespace="default")
        assert len(hook.requests) == 2


def _configure(cluster: Cluster, hook: RecordedHook) -> None:
    """Let a webhook that allows everything judge ConfigMaps, behind a Service."""
    cluster.webhooks.routes["default", "hook"] = ("127.0.0.1", hook.server.port)
    client = hook.config({"service": {"namespace": "default", "name": "hook", "path": "/allow"}})
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    webhook = {
        "name": "hook.example.io",
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [webhook],
    }
    cluster.apply(document)


def test_csinode_flickers() -> None:
    """The driver leaves CSINode and comes back by a registration of its own."""
    with world() as built:
        watch = built.cluster.client.watch("storage.k8s.io/v1", "CSINode")
        seen: list[list[str]] = []

        def follow() -> None:
            for _, found in watch:
                drivers = [one["name"] for one in found["spec"]["drivers"] or ()]
                if not seen or seen[-1] != drivers:
                    seen.append(drivers)

        thread = threading.Thread(target=follow)
        thread.start()
        built.plugin.forget()
        built.node.flicker_drivers()
        built.advance(1.0)
        watch.close()
        thread.join(30)
        assert seen == [[NAME], [], [NAME]]
        assert [call.method for call in built.plugin.calls][:2] == ["GetInfo", "NodeGetInfo"]


def test_a_mount_is_uncertain_after_a_deadline() -> None:
    """kubelet gives up, the plugin mounts all the same; when the Pod goes, unpublish follows."""
    with world() as built:
        built.add_driver()
        held = threading.Event()

        def publish(_: Json) -> None:
            held.wait(30)

        built.plugin.script.publish = publish
        built.node.shorten_deadline("NodePublishVolume", 1.0)
        built.add_pod("p")
        built.advance(1.1)
        assert len(built.plugin.named("NodePublishVolume")) == 1
        failed = built.events("p", "FailedMount")
        assert "code = DeadlineExceeded" in failed[0]["message"]
        options = DeleteOptions(grace_period_seconds=0)
        built.cluster.client.delete("v1", "Pod", "p", namespace="n1", options=options)
        held.set()
        built.advance(5.0)
        assert len(built.plugin.named("NodeUnpublishVolume")) >= 1
