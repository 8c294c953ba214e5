"""Attempts: who joins, who is tried next, how they end, and how they wait."""

from __future__ import annotations

import pytest

from gpustack_delivery.errors import AttemptFault, HubFault, Reason, Verdict
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry
from tests.unit.fakes import eventually
from tests.unit.node.fake_hub import manifest_of
from tests.unit.node.stage import FILES, Stage


def test_concurrent_mounts_join_one_attempt_and_bring_their_own_credentials(stage: Stage) -> None:
    """One listing and one download, with the newest token of the artifact that asked first."""
    digest = stage.artifact()
    stage.artifact("copy", "team-b", repository="other/copy")
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest, token="first")[0] == "ABORTED")
    assert stage.publish(digest, "u2", namespace="team-b", name="copy", token="b")[0] == "ABORTED"
    assert stage.publish(digest, token="rotated")[0] == "ABORTED"
    eventually(lambda: stage.hub.fetching == 1, "the download")
    stage.hub.gate.set()
    stage.mounted(digest)
    assert [repository for repository, _, _ in stage.hub.listed] == ["org/name"]
    assert set(stage.hub.tokens) == {Token("rotated")}


def test_a_refused_source_gives_way_to_the_next_artifact(stage: Stage) -> None:
    """Tokens never cross: each source is listed with its own."""
    digest = stage.artifact()
    stage.artifact("copy", "team-b", repository="other/copy")
    entered = stage.hub.gate
    seen: list[Token | None] = []

    def judge(token: Token | None) -> HubFault | None:
        seen.append(token)
        if token == Token("bad"):
            entered.wait(20)
            return HubFault(Verdict.ACCESS_DENIED, "HTTP 403")
        return None

    stage.hub.fault_of_token = judge
    entered.clear()
    stage.start()
    eventually(lambda: stage.publish(digest, token="bad")[0] == "ABORTED")
    assert (
        stage.publish(digest, "u2", namespace="team-b", name="copy", token="good")[0] == "ABORTED"
    )
    entered.set()
    stage.mounted(digest, "u2", namespace="team-b", name="copy")
    assert seen == [Token("bad"), Token("good")]
    assert [repository for repository, _, _ in stage.hub.listed] == ["org/name", "other/copy"]


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict.ACCESS_DENIED, "AccessDenied"),
        (Verdict.SOURCE_UNAVAILABLE, "SourceUnavailable"),
        (Verdict.REVISION_NOT_FOUND, "IntegrityMismatch"),
        (Verdict.EMPTY_MANIFEST, "IntegrityMismatch"),
    ],
)
def test_a_listing_that_fails_has_its_reason(stage: Stage, verdict: Verdict, reason: str) -> None:
    """In the answer and in the status, with the tenant-free detail."""
    digest = stage.artifact()
    stage.hub.listing_fault = HubFault(verdict, "HTTP 418", detail="https://hub/org/name")
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    message = stage.publish(digest)[1]
    assert f"failed, {reason}: " in message
    assert "HTTP 418" in message
    eventually(lambda: stage.model(digest).get("state") == "Failed")
    entry = stage.model(digest)
    assert (entry["reason"], "org/name" in str(stage.status())) == (reason, False)


SHA = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "entries",
    [
        [("private", 1, "md5:0")],
        [("private", -1, SHA)],
        [("private\n", 1, SHA)],
        [("../private", 1, SHA)],
        [("private\udcff", 1, SHA)],
        [("private", 1, SHA), ("private", 1, SHA)],
        [("private", 1, SHA), ("private/x", 1, SHA)],
    ],
)
def test_no_file_name_of_a_listing_leaves_the_log(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    entries: list[tuple[str, int, str]],
) -> None:
    """A status is the whole cluster's, and the names are one tenant's."""
    digest = stage.artifact()
    monkeypatch.setattr(stage.hub, "list_tree", lambda *_: tuple(Entry(*one) for one in entries))
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    eventually(lambda: stage.model(digest).get("state") == "Failed")
    said = stage.publish(digest)[1] + str(stage.status())
    assert ("failed, IntegrityMismatch: " in said, "private" in said) == (True, False)
    assert "private" in caplog.text


def test_a_listing_of_other_files_downloads_nothing(stage: Stage) -> None:
    """The digest binds the listing before the first file is asked for."""
    digest = stage.artifact()
    stage.hub.repositories["org/name"]["config.json"] = b"changed"
    stage.start()
    eventually(lambda: "IntegrityMismatch" in stage.publish(digest)[1], "the mismatch")
    assert not stage.hub.fetched


def test_an_anchored_artifact_never_asks_the_hub(stage: Stage) -> None:
    """Without peers no node holds it; the message names the digest in full."""
    digest = stage.artifact(revision="")
    stage.start()
    eventually(lambda: "SourceUnavailable" in stage.publish(digest)[1], "the failure")
    assert digest in stage.publish(digest)[1]
    assert not stage.hub.listed


def test_backoff_doubles_survives_a_restart_and_ends_with_a_success(stage: Stage) -> None:
    """Until the retry time nothing is asked of the hub."""
    digest = stage.artifact()
    stage.hub.fetch_fault = AttemptFault(Reason.SOURCE_UNAVAILABLE, "HTTP 503")
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    listed = len(stage.hub.listed)
    stage.clock.advance(59)
    stage.stop()
    stage.start()
    assert stage.publish(digest)[0] == "UNAVAILABLE"
    assert len(stage.hub.listed) == listed
    stage.clock.advance(1)
    eventually(lambda: len(stage.hub.listed) == listed + 1 or not stage.publish(digest))
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the second failure")
    stage.clock.advance(119)
    assert stage.publish(digest)[0] == "UNAVAILABLE"
    stage.hub.fetch_fault = None
    stage.clock.advance(1)
    stage.mounted(digest)
    eventually(lambda: stage.model(digest).get("state") == "Ready")
    assert "retryTime" not in stage.model(digest)


def test_an_attempt_nobody_asks_for_is_canceled_and_resumes_at_once(stage: Stage) -> None:
    """After five minutes; the partial stays, and nothing is listed as failed."""
    digest = stage.artifact()
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1, "the download")
    stage.clock.advance(299)
    assert stage.publish(digest)[0] == "ABORTED"
    stage.clock.advance(299)
    assert stage.hub.fetching == 1
    stage.clock.advance(2)
    eventually(lambda: stage.hub.fetching == 0, "the cancellation")
    name = 'gpustack_model_manager_materializations_total{result="Canceled"}'
    eventually(lambda: stage.metric(name) == 1)
    eventually(lambda: not stage.model(digest), "an empty status")
    assert (stage.cache / "partial" / digest.removeprefix("sha256:")).is_dir()
    stage.hub.gate.set()
    stage.mounted(digest)


def test_a_mount_published_before_stays_mountable_under_an_invalid_spec(stage: Stage) -> None:
    """No download starts, and the reason is said in the answer and in the status."""
    digest = stage.artifact()
    other = stage.artifact("other", repository="org/other", files={"a": b"other"})
    stage.start()
    stage.mounted(digest)
    stage.configure(generation=2, download={"concurrency": 0})
    eventually(lambda: stage.condition("Ready").get("reason") == "InvalidConfiguration")
    assert stage.status()["observedGeneration"] == 2
    assert stage.publish(digest, "u2") == ("OK", "")
    code, message = stage.publish(other, "u3", name="other")
    assert (code, "InvalidRequest" in message) == ("UNAVAILABLE", True)
    eventually(lambda: stage.model(other).get("reason") == "InvalidRequest")
    stage.configure(generation=3)
    eventually(lambda: stage.condition("Ready").get("reason") == "Serving")
    stage.mounted(other, "u3", name="other")


def test_manifest_helper_matches_the_plugin(stage: Stage) -> None:
    """The stage's digests are the product's own."""
    assert stage.artifact() == manifest_of(FILES).digest
