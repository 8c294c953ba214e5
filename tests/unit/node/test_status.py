"""The status: what it says, when it is written, and that a quiet node is quiet."""

from __future__ import annotations

import json

import pytest

from gpustack_delivery.errors import AttemptFault, ConfigurationFault, Conflict, Reason, Unreachable
from gpustack_delivery.node.ledger import USED_STEP_SECONDS
from gpustack_delivery.node.reporter import AT_ONCE
from gpustack_delivery.vocabulary.node_store import ByteSource
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES
from tests.unit.fakes import eventually
from tests.unit.node.fake_hub import manifest_of
from tests.unit.node.stage import FILES, NODE, Stage

SIZE = sum(map(len, FILES.values()))


def writes(stage: Stage) -> int:
    """Return how many status writes there were."""
    return len(stage.kube.writes)


def serving(stage: Stage) -> None:
    """Start, and wait for the first report."""
    stage.start()
    eventually(lambda: stage.condition("Ready").get("reason") == "Serving")


def test_the_first_report_states_the_node(stage: Stage) -> None:
    """Generation, capacity in steps of five, and exactly two conditions."""
    stage.disk.used_bytes = 423_000_000
    serving(stage)
    status = stage.status()
    assert status["observedGeneration"] == 1
    assert status["capacity"] == {"totalBytes": 1_000_000_000, "storedBytes": 0, "usedPercent": 40}
    assert [c["type"] for c in status["conditions"]] == ["Ready", "CapacityLow"]
    assert stage.condition("CapacityLow")["reason"] == "WithinWatermarks"


def test_a_ready_model_has_its_facts(stage: Stage) -> None:
    """Size, source, reference, and the hour of its last use; stored bytes count it."""
    digest = stage.artifact()
    serving(stage)
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"))
    entry = stage.model(digest)
    assert (entry["state"], entry["sizeBytes"], entry["source"]) == ("Ready", SIZE, "Hub")
    assert entry["lastUsedTime"].endswith(":00:00Z")
    assert stage.status()["capacity"]["storedBytes"] == SIZE


def test_nothing_in_the_status_names_a_tenant(stage: Stage) -> None:
    """Not the namespace, the artifact, the repository, the Pod or the token."""
    digest = stage.artifact("secretive", "hidden-ns", repository="quiet/repo")
    stage.hub.fetch_fault = AttemptFault(
        Reason.SOURCE_UNAVAILABLE, "HTTP 503", detail="https://hub/quiet/repo?X-Amz-Signature=1"
    )
    serving(stage)
    args = {"namespace": "hidden-ns", "name": "secretive", "token": "hf_canary"}
    eventually(lambda: stage.publish(digest, "podname", **args)[0] == "UNAVAILABLE")
    eventually(lambda: stage.model(digest).get("state") == "Failed")
    entry = stage.model(digest)
    assert entry["message"] == "no source delivered the content: HTTP 503"
    assert entry["retryTime"].endswith("Z")
    text = str(stage.kube.writes) + stage.https("/metrics")[1].decode()
    for word in ("hidden-ns", "secretive", "quiet", "podname", "canary", "Signature"):
        assert word not in text


def test_a_lying_status_is_rewritten_after_a_restart(stage: Stage) -> None:
    """The status is made from the node, never from what stood there."""
    serving(stage)
    stage.stop()
    body = stage.kube.get(NODE_MODEL_STORES, NODE)
    lie = {"digest": "sha256:" + "ab" * 32, "state": "Ready", "referenced": True}
    stage.kube.put(NODE_MODEL_STORES, body | {"status": {"models": [lie], "conditions": []}})
    stage.start()
    eventually(lambda: not stage.status().get("models"))
    assert stage.condition("Ready")["reason"] == "Serving"


@pytest.mark.parametrize("nonsense", ["text", {"models": [{"state": "?"}]}, {"capacity": 3}])
def test_a_status_that_cannot_be_read_is_replaced(stage: Stage, nonsense: object) -> None:
    """Whatever a broken writer left."""
    body = stage.kube.get(NODE_MODEL_STORES, NODE)
    stage.kube.put(NODE_MODEL_STORES, body | {"status": nonsense})
    serving(stage)


def test_progress_is_written_by_its_thresholds(stage: Stage) -> None:
    """Only after 30 seconds and 5 percent; the end of the download at once."""
    digest = stage.artifact(files={"weights": b"x" * 1000})
    stage.hub.gate.clear()
    serving(stage)
    eventually(lambda: stage.publish(digest)[0] == "ABORTED")
    eventually(lambda: stage.model(digest).get("sizeBytes") == 1000)
    assert stage.plugin is not None
    attempt = stage.plugin._attempts._running[digest]
    eventually(lambda: attempt.held_bytes() == 500, "half of the bytes")
    stage.in_time(lambda: stage.model(digest).get("downloadedBytes") == 500)
    before = writes(stage)
    for received, seconds, written in ((49, 60, 500), (1, 0, 550), (400, 29, 550), (0, 1, 950)):
        attempt.received(ByteSource.HUB, received)
        stage.clock.advance(seconds)
        rounds(stage)
        assert stage.model(digest)["downloadedBytes"] == written
    assert writes(stage) == before + 2
    stage.hub.gate.set()
    eventually(lambda: stage.model(digest).get("state") == "Ready")


def rounds(stage: Stage) -> None:
    """Let the reporter finish a round that began after now."""
    assert stage.plugin is not None
    reporter = stage.plugin._reporter
    # When the second is taken up, the first, which began after now, has ended.
    for _ in range(2):
        reporter.changed()
        eventually(lambda: not reporter._due, "a round")


def test_a_quiet_node_writes_nothing_in_an_hour(stage: Stage) -> None:
    """And its own writes start no round."""
    digest = stage.artifact()
    serving(stage)
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"))
    rounds(stage)
    before = writes(stage)
    for _ in range(12):
        stage.clock.advance(300)
        rounds(stage)
    assert writes(stage) == before


def test_a_conflict_is_taken_up_with_the_newer_object(stage: Stage) -> None:
    """Another writer's change of the object costs one more read."""
    serving(stage)
    digest = stage.artifact()
    with stage.kube.lock:
        body = stage.kube.objects["nodemodelstores", "", NODE]
        body["metadata"]["resourceVersion"] = "9999999"
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("state") == "Ready")


def test_an_api_that_refuses_writes_delays_the_status_and_nothing_else(stage: Stage) -> None:
    """Mounts go on; the report is tried again with the clock."""
    serving(stage)
    digest = stage.artifact()
    update = stage.kube.update

    def refuse(*args: object, **named: object) -> object:
        raise Unreachable("webhook down", code=500)

    stage.kube.update = refuse  # type: ignore[assignment]
    stage.mounted(digest)
    assert not stage.model(digest)
    stage.kube.update = update  # type: ignore[method-assign]

    stage.in_time(lambda: stage.model(digest), "the status")


def test_a_deleted_object_is_no_trouble_and_its_successor_is_served(stage: Stage) -> None:
    """The worker makes a new one while the plugin runs."""
    serving(stage)
    stage.kube.remove(NODE_MODEL_STORES, NODE)
    rounds(stage)
    stage.configure()
    eventually(lambda: stage.condition("Ready").get("reason") == "Serving")


def test_a_missing_ca_bundle_is_an_invalid_configuration_until_it_comes(stage: Stage) -> None:
    """Missing, empty, and then there: each change is noticed by itself."""
    hub = {"huggingFaceEndpoint": "https://hub.example", "caBundleConfigMap": "ca"}
    stage.configure(hub=hub)
    stage.start()
    eventually(lambda: "does not exist" in stage.condition("Ready").get("message", ""))
    assert stage.condition("Ready")["reason"] == "InvalidConfiguration"
    stage.config_map("ca", {"other": "x"})
    eventually(lambda: "has no ca.crt" in stage.condition("Ready")["message"])
    stage.config_map("ca", {"ca.crt": "PEM"})
    eventually(lambda: stage.condition("Ready")["reason"] == "Serving")
    assert stage.bundles == ["PEM"]


def test_a_connection_that_cannot_be_made_is_an_invalid_configuration(stage: Stage) -> None:
    """The adapter's own check counts like ours."""
    stage.connect_fault = ConfigurationFault("the CA bundle holds no certificate")
    stage.start()
    eventually(lambda: "holds no certificate" in stage.condition("Ready").get("message", ""))


def test_a_spec_change_applies_without_a_restart(stage: Stage) -> None:
    """Limits at once; connections only when the hub's part changed; the old ones are closed."""
    serving(stage)
    assert stage.limits is not None
    assert stage.limits.concurrency == 4
    stage.configure(generation=2, download={"concurrency": 2, "bytesPerSecond": 1000})
    eventually(lambda: stage.status().get("observedGeneration") == 2)
    assert (stage.limits.concurrency, stage.limits.bytes_per_second) == (2, 1000)
    assert len(stage.bundles) == 1
    stage.configure(generation=3, hub={"huggingFaceEndpoint": "https://other.example"})
    eventually(lambda: stage.status().get("observedGeneration") == 3)
    assert (len(stage.bundles), stage.hub.closed) == (2, 1)


def test_the_cap_beside_kubelet_is_said(stage: Stage) -> None:
    """On one filesystem with kubelet, and not on two."""
    stage.configure(watermarks={"highPercent": 90, "lowPercent": 70})
    serving(stage)
    assert "capped at 80%" in stage.condition("Ready")["message"]
    stage.stop()
    stage.disk.devices = {stage.cache: "8:2"}
    stage.start()
    eventually(lambda: "capped" not in stage.condition("Ready")["message"])


def test_running_downloads_are_served_live(stage: Stage) -> None:
    """An empty list, then the numbers of the running one; only GET."""
    digest = stage.artifact(files={"weights": b"x" * 1000})
    stage.hub.gate.clear()
    serving(stage)
    assert stage.https("/model/downloads") == (200, b'{"downloads":[]}')
    eventually(lambda: stage.publish(digest)[0] == "ABORTED")
    expected = (
        f'{{"downloads":[{{"digest":"{digest}","downloadedBytes":500,'
        f'"sizeBytes":1000,"source":"Hub"}}]}}'
    )
    eventually(lambda: stage.https("/model/downloads")[1].decode() == expected)
    assert stage.https("/model/downloads", "POST")[0] == 405
    assert stage.https("/nowhere")[0] == 404
    digests = [manifest_of({"weights": b"x" * 1000}).digest]
    assert digests == [digest]


def test_the_gauges_follow_the_cache(stage: Stage) -> None:
    """Stored bytes and the filesystem's size."""
    digest = stage.artifact()
    serving(stage)
    stage.mounted(digest)
    eventually(lambda: stage.metric("gpustack_model_manager_stored_bytes") == SIZE)
    assert stage.metric("gpustack_model_manager_capacity_bytes") == 1_000_000_000
    assert stage.metric('gpustack_model_manager_materializations_total{result="published"}') == 1
    assert stage.metric("gpustack_model_manager_publish_duration_seconds_count") == 1


def test_conflicts_without_end_are_left_for_the_next_round(stage: Stage) -> None:
    """Three tries a round, then another round; nothing spins and nothing is lost."""
    serving(stage)
    digest = stage.artifact()
    update, tries = stage.kube.update, []

    def conflict(*args: object, **named: object) -> object:
        tries.append(1)
        if len(tries) < 5:
            raise Conflict("moved on", code=409)
        return update(*args, **named)  # type: ignore[arg-type]

    stage.kube.update = conflict  # type: ignore[assignment]
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("referenced"))
    assert len(tries) >= 5


def test_many_changes_at_once_are_few_reports(stage: Stage) -> None:
    """A node that starts a hundred Pods tells the API server a few times, and at last the truth."""
    digest = stage.artifact()
    serving(stage)
    stage.mounted(digest)
    stage.unpublish()
    for number in range(50):
        stage.mounted(digest, f"u{number}")
        stage.unpublish(f"u{number}")
    stage.mounted(digest, "last")
    assert writes(stage) <= AT_ONCE + 2
    stage.clock.advance(1)
    eventually(lambda: stage.model(digest).get("referenced"), "the reference of the last")


def test_uses_within_a_minute_are_one_record(stage: Stage) -> None:
    """Every one counts at once; the disk hears of the first, and of the next minute's."""
    digest = stage.artifact()
    serving(stage)
    stage.clock.advance(USED_STEP_SECONDS - stage.clock.now() % USED_STEP_SECONDS)
    stage.mounted(digest)
    record = stage.cache / "ledger" / "digests" / f"{digest.removeprefix('sha256:')}.json"
    first = json.loads(record.read_text())["lastUsedTime"]
    stage.clock.advance(USED_STEP_SECONDS / 2)
    assert stage.publish(digest, "u2") == ("OK", "")
    assert json.loads(record.read_text())["lastUsedTime"] == first
    assert stage.plugin is not None
    assert stage.plugin._store.ledger.get(digest).used_at == stage.clock.now()
    stage.clock.advance(USED_STEP_SECONDS / 2)
    assert stage.unpublish("u2") == ("OK", "")
    assert json.loads(record.read_text())["lastUsedTime"] > first
