"""artifact#resolution-and-revalidation: the digest that an administrator wrote down beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from emulator.hubs.wrong_answers import Rewrite, Status
from spec_tests.deciding import decided, healthy
from spec_tests.model_scope import ModelScope
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY, Repository

Worlds = Callable[..., World]
INTERVAL: Final = "model-artifact-revalidate-interval"
OTHER: Final = "sha256:" + "ab" * 32
DOWN: Final = Status(503)
REFUSED: Final = Status(403)


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and a hub, where access is checked every five minutes."""
    world = worlds(nodes=(), worker=True)
    world.set_setting(INTERVAL, "5m")
    return world


def anchored(
    world: World, digest: str = TINY.digest, repository: Repository | None = None
) -> Artifact:
    """Make an artifact that names its digest, and wait for nothing."""
    source = repository or world.usual_repository()
    return world.unresolved("a", source, spec={"expectedDigest": digest})


def message(world: World, artifact: Artifact) -> str:
    """Return what the Resolved condition says."""
    conditions = world.stored(artifact)["status"]["conditions"]
    found: str = next(c["message"] for c in conditions if c["type"] == "Resolved")
    return found


@pytest.mark.rule("AR-ANC-01")
def test_another_digest_than_expected_is_a_mismatch(world: World) -> None:
    """The artifact is not resolved, and its message has what is there and what should be."""
    artifact = anchored(world, OTHER)
    assert decided(world, artifact) == ("False", "DigestMismatch")
    assert world.resolved(artifact) == {}
    assert TINY.digest in message(world, artifact)
    assert OTHER in message(world, artifact)


@pytest.mark.rule("AR-ANC-01")
@pytest.mark.feature("modelscope")
def test_another_digest_on_model_scope_is_a_mismatch(world: World) -> None:
    """A digest of the other hub's listing is another one, and both are named."""
    scope = ModelScope(world)
    repository = scope.repository()
    artifact = scope.unresolved("a", repository, spec={"expectedDigest": TINY.digest})
    assert decided(world, artifact) == ("False", "DigestMismatch")
    assert repository.tree.digest in message(world, artifact)
    assert TINY.digest in message(world, artifact)


@pytest.mark.rule("AR-ANC-01")
def test_the_expected_digest_resolves_as_the_hubs(world: World) -> None:
    """What the hub lists as expected is the hub's word, with all that belongs to it."""
    artifact = anchored(world)
    healthy(world, artifact)
    resolved = world.resolved(artifact)
    assert (resolved["manifestDigest"], resolved["digestSource"]) == (TINY.digest, "Hub")
    assert resolved["fileCount"] == len(TINY.files)


@pytest.mark.rule("AR-ANC-02")
def test_two_outages_a_minute_apart_make_the_anchor_the_resolution(world: World) -> None:
    """Not resolved for a minute, then Expected: a digest and a time, and nothing else."""
    world.hub.faults.add(DOWN, at="any")
    artifact = anchored(world)
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    first = world.now()
    assert world.resolution(artifact, "Degraded") == ("True", "SourceUnavailable")
    world.advance(50)
    assert world.resolution(artifact) == ("False", "SourceUnavailable")
    healthy(world, artifact, within_seconds=20)
    assert world.now() - first >= 55
    resolved = world.resolved(artifact)
    assert set(resolved) == {"manifestDigest", "digestSource", "resolvedTime"}
    assert (resolved["manifestDigest"], resolved["digestSource"]) == (TINY.digest, "Expected")


@pytest.mark.rule("AR-ANC-02")
def test_an_outage_asked_about_twice_within_the_minute_is_one(world: World) -> None:
    """A pass that comes early, because the Secret changed, does not make the minute shorter."""
    repository = world.repository("acme/private", private=True)
    rule = world.hub.faults.add(DOWN, at="info")
    artifact = anchored(world, repository=repository)
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    world.advance(20)
    hits = rule.hits
    world.secret("a-token", "another_token", namespace="team-a")
    world.until(lambda: rule.hits > hits, "it was asked again")
    world.advance(10)
    assert world.resolution(artifact) == ("False", "SourceUnavailable")
    healthy(world, artifact, within_seconds=40)
    assert world.resolved(artifact)["digestSource"] == "Expected"


@pytest.mark.rule("AR-ANC-02")
def test_an_outage_alone_resolves_nothing(world: World) -> None:
    """Without an expected digest there is nothing to hold on to, however long it lasts."""
    world.hub.faults.add(DOWN, at="any")
    artifact = world.unresolved("a", world.usual_repository())
    world.advance(300)
    assert world.resolution(artifact) == ("False", "SourceUnavailable")
    assert world.resolved(artifact) == {}


@pytest.mark.rule("AR-ANC-02")
def test_an_outage_that_ends_in_time_leaves_the_hubs_word(world: World) -> None:
    """The second pass that reaches the hub resolves from it, and no anchor is needed."""
    rule = world.hub.faults.add(DOWN, at="any")
    artifact = anchored(world)
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    world.hub.faults.remove(rule)
    healthy(world, artifact, within_seconds=70)
    assert world.resolved(artifact)["digestSource"] == "Hub"


@pytest.mark.rule("AR-ANC-02")
def test_a_refusal_is_never_anchored_around(world: World) -> None:
    """A hub that says no has answered: however often, the artifact stays unresolved."""
    rule = world.hub.faults.add(REFUSED, at="info")
    artifact = anchored(world)
    assert decided(world, artifact) == ("False", "AccessDenied")
    world.advance(605)
    world.until(lambda: rule.hits > 1, "it was asked again", within_seconds=60)
    assert world.resolution(artifact) == ("False", "AccessDenied")
    assert world.resolved(artifact) == {}


@pytest.mark.rule("AR-ANC-02")
def test_a_refusal_between_two_outages_begins_the_minute_again(world: World) -> None:
    """An outage, a refusal, an outage: that is one outage, and not yet two in a row."""
    world.hub.faults.add(DOWN, at="info", times=1)
    refusal = world.hub.faults.add(REFUSED, at="info", times=1)
    artifact = anchored(world)
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    world.until(lambda: refusal.hits == 1, "the refusal", within_seconds=70)
    world.hub.faults.add(DOWN, at="any")
    world.advance(590)
    world.until(
        lambda: world.resolution(artifact) == ("False", "SourceUnavailable"),
        "the second outage",
        within_seconds=60,
    )
    world.advance(50)
    assert world.resolution(artifact) == ("False", "SourceUnavailable")
    healthy(world, artifact, within_seconds=20)
    assert world.resolved(artifact)["digestSource"] == "Expected"


@pytest.mark.rule("AR-ANC-02")
def test_another_digest_is_never_anchored_around(world: World) -> None:
    """A hub that lists something else, and then goes away, has answered too."""
    artifact = anchored(world, OTHER)
    assert decided(world, artifact) == ("False", "DigestMismatch")
    world.advance(120)
    assert world.resolution(artifact) == ("False", "DigestMismatch")


@pytest.mark.rule("AR-ANC-02")
def test_an_expected_resolution_asks_the_hub_no_more(world: World) -> None:
    """There is no commit to ask about, and the digest is its own proof."""
    rule = world.hub.faults.add(DOWN, at="any")
    artifact = anchored(world)
    healthy(world, artifact, within_seconds=80)
    before = world.resolved(artifact)
    world.hub.faults.remove(rule)
    asked = len(world.hub_requests())
    world.advance(2 * 300 + 60)
    assert len(world.hub_requests()) == asked
    assert world.resolved(artifact) == before


def listings(world: World, commit: str) -> list[Any]:
    """Return the requests for the whole tree of a commit."""
    asked = world.hub_requests(f"/api/models/acme/tiny/tree/{commit}")
    return [entry for entry in asked if "recursive" in entry.query]


@pytest.mark.rule("AR-ANC-03")
def test_an_anchored_artifact_is_listed_again(world: World) -> None:
    """Its whole tree, at the resolved commit, also when the branch moved; nothing is probed."""
    repository = world.usual_repository()
    artifact = anchored(world)
    healthy(world, artifact)
    before = world.resolved(artifact)
    repository.hub.commit({"config.json": b"something else"})
    assert len(listings(world, repository.commit)) == 1
    world.advance(330)
    assert len(listings(world, repository.commit)) == 2
    assert not [entry for entry in world.hub_requests() if entry.method == "HEAD"]
    after = world.resolved(artifact)
    assert after.pop("lastValidatedTime") > before.pop("lastValidatedTime")
    assert after == before
    healthy(world, artifact)


@pytest.mark.rule("AR-ANC-03")
def test_a_listing_that_changed_revokes_when_it_is_repeated(world: World) -> None:
    """A commit that lists other files is a mismatch: degraded, and a minute later revoked."""
    artifact = anchored(world)
    healthy(world, artifact)
    rule = world.hub.faults.add(Rewrite(lambda entries: entries[:-1]), at="tree")
    world.advance(290)
    world.until(lambda: rule.hits == 1, "it is listed again", within_seconds=30)
    world.until(
        lambda: world.resolution(artifact, "Degraded") == ("True", "DigestMismatch"), "degraded"
    )
    assert world.resolution(artifact) == ("True", "Resolved")
    world.advance(65)
    world.until(lambda: world.resolution(artifact) == ("False", "DigestMismatch"), "revoked")
    world.hub.faults.remove(rule)
    world.advance(600)
    healthy(world, artifact, within_seconds=60)
    assert world.resolved(artifact)["manifestDigest"] == TINY.digest


@pytest.mark.rule("AR-ANC-03")
@pytest.mark.feature("modelscope")
def test_an_anchored_artifact_of_model_scope_is_listed_again(world: World) -> None:
    """On ModelScope likewise: a listing at the commit, and no ref is asked for."""
    scope = ModelScope(world)
    repository = scope.repository()
    artifact = scope.unresolved("a", repository, spec={"expectedDigest": repository.tree.digest})
    healthy(world, artifact)
    asked = len(scope.requests())
    world.advance(330)
    again = scope.requests()[asked:]
    assert [entry.path for entry in again] == ["/api/v1/models/acme/tiny/repo/files"]
    assert f"Revision={repository.commit}" in again[0].query
    healthy(world, artifact)
