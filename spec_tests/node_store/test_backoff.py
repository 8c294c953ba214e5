"""node-store#download-and-verification: backoff, cancellation, resume and credentials."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import pytest

from emulator.hubs.broken_bodies import Stall
from emulator.hubs.wrong_answers import Delay, Redirect, Status
from spec_tests.nodes import lose
from spec_tests.observe import holds_secret
from spec_tests.oracle import File, Tree, large
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY

MODEL: Final = "model.safetensors"


def failed(world: World, artifact: Artifact, *, retry_after: float = 0.0) -> dict[str, Any]:
    """Wait for a failure whose retryTime is later than a moment, and return the entry."""

    def ask() -> dict[str, Any] | None:
        entry = world.node.entry(artifact.digest)
        return entry if entry.get("state") == "Failed" and retry_at(entry) > retry_after else None

    return world.until(ask, "the attempt has failed", within_seconds=120)


def retry_at(entry: dict[str, Any]) -> float:
    """Return an entry's retryTime in seconds since the epoch."""
    return datetime.fromisoformat(entry["retryTime"]).timestamp()


def unavailable(world: World) -> Any:
    """Let the hub fail every listing."""
    return world.hub.faults.add(Status(503), at="tree")


def slow(world: World, seconds: int) -> Artifact:
    """Make an artifact whose download takes so long under the node's bandwidth limit."""
    tree = Tree((File(MODEL, large(10, seed=6), lfs=True),))
    world.stand_in.reconfigure(
        world.node.name,
        lambda spec: spec["download"].update(bytesPerSecond=tree.size_bytes // seconds),
    )
    world.advance(1)
    return world.artifact(repository=world.repository("acme/slow", tree))


@pytest.mark.rule("NS-DL-24", "NS-RES-10", "NS-FR-03")
def test_backoff_doubles_from_a_minute_to_an_hour(world: World) -> None:
    """The first failure waits one minute, each further one twice as long, and none over an hour."""
    unavailable(world)
    artifact = world.artifact()
    call = world.node.call(artifact)
    waits, before = [], 0.0
    for _ in range(8):
        began = world.now()
        assert world.node.publish(call).code == "ABORTED"
        entry = failed(world, artifact, retry_after=before)
        assert entry["reason"] == "SourceUnavailable"
        assert entry["message"]
        before = retry_at(entry)
        assert before > began, "the earliest next attempt lies ahead"
        waits.append(round((before - began) / 60))
        world.advance(before - world.now() + 1)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.rule("NS-DL-24")
def test_a_success_resets_the_backoff(world: World) -> None:
    """After a publication nothing is left of the failures, and the next waits one minute again."""
    rule = unavailable(world)
    artifact = world.artifact()
    call = world.node.call(artifact)
    world.node.publish(call)
    first = failed(world, artifact)
    world.advance(61)
    world.node.publish(call)
    second = failed(world, artifact, retry_after=retry_at(first))
    world.hub.faults.remove(rule)
    world.advance(121)
    world.node.mount(artifact)
    world.until(
        lambda: world.node.entry(artifact.digest)["state"] == "Ready", "the entry is Ready again"
    )
    entry = world.node.entry(artifact.digest)
    assert "retryTime" not in entry
    assert not entry.get("reason")
    found = world.node.markers(call, artifact)
    assert world.node.unpublish(call).ok
    world.node.stop_plugin()
    lose(found)
    unavailable(world)
    world.node.start_plugin()
    world.advance(5)
    began = world.now()
    world.node.publish(call)
    third = failed(world, artifact, retry_after=retry_at(second))
    assert round((retry_at(third) - began) / 60) == 1


@pytest.mark.rule("NS-DL-26", "NS-FR-07")
def test_a_mount_in_backoff_answers_at_once_and_asks_nothing(world: World) -> None:
    """Until retryTime the answer is Unavailable with the reason, and the hub hears nothing."""
    unavailable(world)
    artifact = world.artifact()
    call = world.node.call(artifact)
    world.node.publish(call)
    entry = failed(world, artifact)
    asked = len(world.hub_requests())
    for _ in range(5):
        answer = world.node.publish(call)
        assert answer.code == "UNAVAILABLE", answer
        assert "SourceUnavailable" in answer.message
        world.advance(5)
    assert len(world.hub_requests()) == asked
    world.advance(retry_at(entry) - world.now() + 1)
    assert world.node.publish(call).code == "ABORTED"


@pytest.mark.rule("NS-DL-25")
def test_backoff_survives_a_restart(world: World) -> None:
    """A new plugin knows the failures, their number and the time of the next attempt."""
    unavailable(world)
    artifact = world.artifact()
    call = world.node.call(artifact)
    world.node.publish(call)
    first = failed(world, artifact)
    world.node.restart_plugin()
    world.advance(5)
    assert world.node.publish(call).code == "UNAVAILABLE"
    assert world.node.entry(artifact.digest)["retryTime"] == first["retryTime"]
    world.advance(retry_at(first) - world.now() + 1)
    began = world.now()
    assert world.node.publish(call).code == "ABORTED"
    second = failed(world, artifact, retry_after=retry_at(first))
    assert round((retry_at(second) - began) / 60) == 2, "the count went on"


@pytest.mark.rule("NS-DL-27", "NS-FR-02")
def test_a_corrected_secret_succeeds_after_the_backoff(world: World) -> None:
    """A refused credential backs off; the call after that brings the new one."""
    repository = world.repository("acme/private", private=True)
    artifact = world.artifact(repository=repository)
    wrong = artifact.presenting("hf_wrong")
    world.node.publish(world.node.call(wrong))
    entry = failed(world, artifact)
    assert entry["reason"] == "AccessDenied"
    assert world.node.publish(world.node.call(artifact)).code == "UNAVAILABLE"
    world.advance(61)
    call = world.node.mount(artifact)
    assert world.node.read_all(call) == TINY.contents()


@pytest.mark.rule("NS-DL-29", "NS-FR-06", "NS-DL-28")
def test_an_attempt_that_nobody_wants_is_canceled(world: World) -> None:
    """Five minutes without a mount end the attempt; the next mount resumes it at once."""
    artifact = slow(world, seconds=1200)
    call = world.node.call(artifact)
    assert world.node.publish(call).code == "ABORTED"
    world.advance(200)
    assert world.node.entry(artifact.digest)["state"] == "Downloading"
    world.advance(101)
    world.until(
        lambda: world.node.entry(artifact.digest).get("state") != "Downloading",
        "the attempt is over",
        within_seconds=60,
    )
    canceled = world.node.metrics().value(
        "gpustack_model_manager_materializations_total", result="Canceled"
    )
    assert canceled == 1
    held = world.hub.requests.sent_bytes(host="cdn")
    world.stand_in.reconfigure(
        world.node.name, lambda spec: spec["download"].update(bytesPerSecond=0)
    )
    world.advance(1)
    assert world.node.publish(call).code == "ABORTED", "no backoff"
    world.node.mount(artifact)
    again = world.hub.requests.sent_bytes(host="cdn") - held
    assert again < artifact.tree.size_bytes, "the partial was there for the resume"


@pytest.mark.rule("NS-DL-29")
def test_an_attempt_that_is_asked_for_goes_on(world: World) -> None:
    """A mount every two minutes, which is kubelet's slowest, keeps an attempt alive."""
    artifact = slow(world, seconds=1200)
    call = world.node.call(artifact)
    for _ in range(5):
        assert world.node.publish(call).code == "ABORTED"
        world.advance(120)
    assert world.node.entry(artifact.digest)["state"] == "Downloading"
    ended = world.node.metrics().samples
    name = "gpustack_model_manager_materializations_total"
    assert not [count for (sample, _), count in ended.items() if sample == name and count]


@pytest.mark.rule("NS-DL-15")
def test_a_silent_range_is_retried_from_its_last_byte(world: World) -> None:
    """Thirty seconds without a byte, and the rest of the range is asked for again."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=200_000), path=MODEL, times=1)
    call = world.node.call(artifact)
    world.node.publish(call)
    world.until(lambda: world.hub.faults.gate.waiting, "the range hangs", within_seconds=5)
    asked = len(world.hub_requests(host="cdn"))
    world.advance(25)
    assert len(world.hub_requests(host="cdn")) == asked, "not before thirty seconds"
    world.advance(10)
    world.node.mount(artifact)
    ranges = [entry.range for entry in world.hub_requests(host="cdn")]
    assert ranges[-1] == "bytes=200000-299999", ranges


@pytest.mark.rule("NS-DL-18")
def test_a_resumed_file_asks_only_for_the_rest(world: World) -> None:
    """A plugin that stopped in the middle of a file continues where its hash stood."""
    size = 200 * 2**20
    tree = Tree((File(MODEL, large(200, seed=5), lfs=True),))
    artifact = world.artifact(repository=world.repository("acme/large", tree))
    world.hub.faults.add(Stall(offset=150 * 2**20), path=MODEL)
    call = world.node.call(artifact)
    world.node.publish(call)
    world.until(lambda: world.hub.faults.gate.waiting, "the download hangs", within_seconds=5)
    world.advance(1)
    world.node.stop_plugin()
    world.hub.faults.clear()
    before = world.hub.requests.sent_bytes(host="cdn")
    world.node.start_plugin()
    world.node.mount(artifact)
    again = world.hub.requests.sent_bytes(host="cdn") - before
    assert again <= size - 100 * 2**20, "what had been hashed came again"
    assert world.node.read_all(call) == tree.contents()


@pytest.mark.rule("NS-DL-22", "NS-FR-08")
def test_a_credential_is_never_written(world: World) -> None:
    """Neither the cache, nor a status, an event or a log line holds the token of a mount."""
    repository = world.repository("acme/private", private=True)
    artifact = world.artifact(repository=repository)
    world.hub.faults.add(Status(500), path=MODEL, times=2)
    world.hub.faults.add(Stall(offset=100_000), path=MODEL, times=1)
    call = world.node.call(artifact)
    answers = [world.node.publish(call)]
    world.advance(1)
    assert holds_secret(world.node.cache_root, repository.token) == [], "while it runs"
    world.advance(120)
    answers.append(world.node.publish(call))
    world.node.mount(artifact)
    assert holds_secret(world.node.cache_root, repository.token) == []
    said = [answer.message for answer in answers]
    events = world.api.list("v1", "Event", namespace=artifact.namespace)
    for text in (*said, str(world.node.store()), str(events), world.log.text):
        assert repository.token not in text
        assert "Authorization" not in text
        assert "Signature=" not in text


def _deliver_beside_a_wrong_token(world: World, mine: Artifact, theirs: Artifact) -> None:
    """Have one artifact refused for its token while another waits for the same digest."""
    refused = world.hub.faults.add(Delay(), at="any", path="*", times=1)
    world.node.publish(world.node.call(mine.presenting("hf_wrong")))
    world.until(lambda: refused.hits == 1, "the wrong token is being judged", within_seconds=5)
    world.node.publish(world.node.call(theirs))
    world.hub.faults.release()
    world.node.mount(theirs, pod="late")


@pytest.mark.rule("NS-DL-22")
def test_a_credential_is_used_for_its_own_repository_only(world: World) -> None:
    """Two artifacts of one digest in two private repositories never lend each other a token."""
    first = world.repository("acme/first", private=True)
    second = world.repository("other/second", private=True)
    mine = world.artifact("mine", repository=first, namespace="team-a")
    theirs = world.artifact("theirs", repository=second, namespace="team-b")
    assert mine.digest == theirs.digest
    _deliver_beside_a_wrong_token(world, mine, theirs)
    assert first.token != second.token
    for entry in world.hub_requests("*other/second*", host="hub"):
        assert entry.headers.get("Authorization") in {None, f"Bearer {second.token}"}
    for entry in world.hub_requests("*acme/first*", host="hub"):
        assert entry.headers.get("Authorization") in {None, "Bearer hf_wrong"}


@pytest.mark.rule("NS-DL-22")
def test_an_artifact_without_a_credential_borrows_none(world: World) -> None:
    """A public repository is asked without a token, though the digest's neighbour brought one."""
    private, public = world.repository("acme/first", private=True), world.repository("other/open")
    mine = world.artifact("mine", repository=private, namespace="team-a")
    theirs = world.artifact("theirs", repository=public, namespace="team-b")
    _deliver_beside_a_wrong_token(world, mine, theirs)
    asked = world.hub_requests("*other/open*", host="hub")
    assert asked
    assert not [entry for entry in asked if entry.authorized]


@pytest.mark.rule("NS-DL-23")
def test_a_credential_does_not_follow_a_redirect_elsewhere(world: World) -> None:
    """Another host, another port, and https to http: none of them sees the token."""
    repository = world.repository("acme/private", private=True)
    artifact = world.artifact(repository=repository)
    world.node.mount(artifact)
    elsewhere = world.hub_requests(host="cdn")
    assert elsewhere, "an LFS file comes from another host"
    assert not [entry for entry in elsewhere if entry.carries(repository.token)]
    assert [entry for entry in world.hub_requests(host="hub") if entry.authorized]


@pytest.mark.rule("NS-DL-23")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_kind_of_redirect_carries_it(world: World, status: int) -> None:
    """Whatever the status of the redirect, the other host gets no credential."""
    repository = world.repository("acme/private", private=True)
    artifact = world.artifact(repository=repository)
    content = world.seat.second_hub()
    target = f"{content.url}/acme/copy/resolve/main/config.json"
    content.add_repository("acme/copy", TINY.contents())
    world.hub.faults.add(Redirect(target, status=status), path="config.json")
    world.node.mount(artifact)
    asked = content.requests.entries("/acme/copy/*")
    assert asked
    assert not [entry for entry in asked if entry.authorized]


@pytest.mark.rule("NS-DL-30")
def test_a_pod_starts_at_kubelets_next_retry(world: World) -> None:
    """A Pod that waited for a long download is up within kubelet's longest pause."""
    artifact = world.artifact()
    world.hub.faults.add(Stall(offset=200_000), path=MODEL)
    pod = world.pod(artifact)
    for _ in range(8):
        world.advance(20)
        assert pod.phase() == "Pending"
    world.hub.faults.clear()
    world.until(
        lambda: world.node.entry(artifact.digest).get("state") == "Ready",
        "the tree is published",
        within_seconds=60,
    )

    def told_to_wait() -> float:
        return world.node.metrics().value("gpustack_model_manager_mounts_total", result="pending")

    before = told_to_wait()
    pod.wait_until_running(within_seconds=130)
    assert told_to_wait() == before
