"""artifact#resolution-and-revalidation: from a revision to a commit, and what a no means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from emulator.hubs.broken_bodies import Hangup
from emulator.hubs.faults import Fault
from emulator.hubs.wrong_answers import HtmlPage, NextLink, Rewrite, Status, mask_digests
from spec_tests.deciding import decided
from spec_tests.oracle import File, Tree
from spec_tests.scenario import World
from spec_tests.worlds import TINY, Repository

Worlds = Callable[..., World]


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and a hub."""
    return worlds(nodes=(), worker=True)


@pytest.mark.rule("AR-HF-01")
@pytest.mark.parametrize("revision", ["main", "dev", "v1", "refs/pr/1", "commit"])
def test_a_revision_becomes_a_commit(world: World, revision: str) -> None:
    """A branch, a tag, a pull request and a commit each resolve to a 40-character commit."""
    repository = world.repository("acme/refs")
    commit = repository.hub.commit({"config.json": b"dev"}, branch="dev")
    repository.hub.tag("v1", repository.commit)
    repository.hub.point("refs/pr/1", commit)
    wanted = repository.commit if revision == "commit" else revision
    expected = commit if revision in {"dev", "refs/pr/1"} else repository.commit
    source = {"huggingFace": {"repository": "acme/refs", "revision": wanted}}
    artifact = world.unresolved("a", repository, spec={"source": source})
    assert decided(world, artifact) == ("True", "Resolved")
    assert world.resolved(artifact)["revision"] == expected
    listings = world.hub_requests("/api/models/acme/refs/tree/*")
    assert {entry.path.rpartition("/")[2] for entry in listings} == {expected}


@pytest.mark.rule("AR-HF-01")
def test_the_whole_tree_is_listed_on_every_page(world: World) -> None:
    """The listing is recursive, at the commit, and every page of it counts."""
    files = tuple(File(f"d/{number}.txt", b"x", lfs=False) for number in range(1100))
    repository = world.repository("acme/pages", Tree(files))
    artifact = world.artifact(repository=repository)
    assert world.resolved(artifact)["fileCount"] == 1100
    pages = world.hub_requests(f"/api/models/acme/pages/tree/{repository.commit}")
    assert len(pages) >= 2
    assert all("recursive=" in page.query.lower() for page in pages)


@pytest.mark.rule("AR-HF-01")
def test_nothing_follows_the_branch_afterwards(world: World) -> None:
    """A branch that moves changes neither commit nor digest, after the next checks either."""
    repository = world.usual_repository()
    world.set_setting("model-artifact-revalidate-interval", "1m")
    artifact = world.artifact()
    before = world.resolved(artifact)
    repository.hub.commit({"config.json": b"something else"})
    world.advance(200)
    after = world.resolved(artifact)
    assert after["lastValidatedTime"] > before["lastValidatedTime"], "it was checked meanwhile"
    for field in ("revision", "manifestDigest", "fileCount", "sizeBytes", "resolvedTime"):
        assert after[field] == before[field]
    assert world.resolution(artifact) == ("True", "Resolved")


@pytest.mark.rule("AR-HF-01")
def test_the_default_revision_is_main(world: World) -> None:
    """An artifact without a revision is given main when it is stored."""
    repository = world.usual_repository()
    source = {"huggingFace": {"repository": repository.name}}
    artifact = world.unresolved("a", repository, spec={"source": source})
    assert world.stored(artifact)["spec"]["source"]["huggingFace"]["revision"] == "main"
    assert decided(world, artifact) == ("True", "Resolved")
    assert world.resolved(artifact)["revision"] == repository.commit


@pytest.mark.rule("AR-HF-02")
def test_a_revision_nobody_knows(world: World) -> None:
    """404 with RevisionNotFound is RevisionNotFound, and the artifact has no digest."""
    repository = world.usual_repository()
    source = {"huggingFace": {"repository": repository.name, "revision": "no-such-branch"}}
    artifact = world.unresolved("a", repository, spec={"source": source})
    assert decided(world, artifact) == ("False", "RevisionNotFound")
    assert world.resolved(artifact) == {}


@pytest.mark.rule("AR-HF-02")
@pytest.mark.parametrize("kind", ["missing", "private", "gated"])
def test_a_repository_that_one_may_not_read(world: World, kind: str) -> None:
    """Missing, private and gated all read AccessDenied to somebody without a token."""
    if kind != "missing":
        world.repository("acme/closed", private=kind == "private", gated=kind == "gated")
    name = "acme/nobody" if kind == "missing" else "acme/closed"
    artifact = world.unresolved("a", Repository(name, "", TINY, None))
    if kind == "gated":
        world.hub.faults.add(Rewrite(mask_digests), at="tree")
    assert decided(world, artifact) == ("False", "AccessDenied")


ANSWERS: Final[dict[str, tuple[Fault, str]]] = {
    "401": (Status(401), "AccessDenied"),
    "403": (Status(403), "AccessDenied"),
    "404 without a code": (Status(404), "AccessDenied"),
    "404 RepoNotFound": (Status(404, headers=(("X-Error-Code", "RepoNotFound"),)), "AccessDenied"),
    "403 GatedRepo": (Status(403, headers=(("X-Error-Code", "GatedRepo"),)), "AccessDenied"),
    "404 RevisionNotFound": (
        Status(404, headers=(("X-Error-Code", "RevisionNotFound"),)),
        "RevisionNotFound",
    ),
    "429": (Status(429, retry_after=1), "SourceUnavailable"),
    "500": (Status(500), "SourceUnavailable"),
    "502": (Status(502), "SourceUnavailable"),
    "503": (Status(503), "SourceUnavailable"),
    "a closed connection": (Hangup(), "SourceUnavailable"),
    "a sign-in page": (HtmlPage(), "SourceUnavailable"),
}


@pytest.mark.rule("AR-HF-02")
@pytest.mark.parametrize("place", ["info", "tree"])
@pytest.mark.parametrize("name", ANSWERS)
def test_what_an_answer_means(world: World, name: str, place: str) -> None:
    """Refusals are AccessDenied, a missing revision is itself, all else is SourceUnavailable."""
    fault, reason = ANSWERS[name]
    world.hub.faults.add(fault, at=place)
    artifact = world.unresolved("a", world.usual_repository())
    assert decided(world, artifact) == ("False", reason)


@pytest.mark.rule("AR-HF-02")
def test_masked_digests_are_a_refusal(world: World) -> None:
    """A tree whose LFS digests are starred out means that the files are not for us."""
    world.hub.faults.add(Rewrite(mask_digests), at="tree")
    artifact = world.unresolved("a", world.usual_repository())
    assert decided(world, artifact) == ("False", "AccessDenied")


@pytest.mark.rule("AR-HF-02")
def test_a_hub_that_comes_back_resolves(world: World) -> None:
    """An outage is asked again within minutes, and then all is well."""
    rule = world.hub.faults.add(Status(503), at="info")
    artifact = world.unresolved("a", world.usual_repository())
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    assert world.resolution(artifact, "Degraded")[0] == "True"
    world.hub.faults.remove(rule)
    world.until(
        lambda: world.resolution(artifact) == ("True", "Resolved"), "it resolves", within_seconds=90
    )
    assert world.resolution(artifact, "Degraded") == ("False", "Healthy")


@pytest.mark.rule("AR-HF-03")
def test_a_next_page_elsewhere_is_not_followed(world: World) -> None:
    """A link to another host is refused: nothing is asked there, and the token stays here."""
    repository = world.repository("acme/private", private=True)
    elsewhere = world.seat.second_hub()
    elsewhere.add_repository("acme/private", TINY.contents())
    link = f"{elsewhere.url}/api/models/acme/private/tree/main?recursive=true&cursor=x"
    world.hub.faults.add(NextLink(link), at="tree")
    artifact = world.unresolved("a", repository)
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    assert elsewhere.requests.entries() == []


@pytest.mark.rule("AR-HF-03")
@pytest.mark.parametrize("change", ["port", "scheme", "user"])
def test_a_next_page_that_only_looks_alike_is_refused(world: World, change: str) -> None:
    """Another port, another scheme and a host hidden behind a user name are other hosts."""
    repository = world.repository("acme/private", private=True)
    scheme, _, host = world.hub.url.partition("://")
    other = "http" if scheme == "https" else "https"
    base = {
        "port": f"{scheme}://{host.rpartition(':')[0]}:9",
        "scheme": f"{other}://{host}",
        "user": f"{scheme}://{host}@elsewhere.invalid",
    }[change]
    world.hub.faults.add(NextLink(f"{base}/api/models/acme/private/tree/main?cursor=x"), at="tree")
    artifact = world.unresolved("a", repository)
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    assert len(world.hub_requests("/api/models/acme/private/tree/*")) == 1
