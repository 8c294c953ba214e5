"""artifact#resolution-and-revalidation: what ModelScope says, and what git must say as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from emulator.hubs.broken_bodies import Hangup
from emulator.hubs.faults import Fault
from emulator.hubs.modelscope_api import Habits
from emulator.hubs.wrong_answers import HtmlPage, Rewrite, Status
from spec_tests.deciding import decided
from spec_tests.model_scope import ModelScope, as_listed
from spec_tests.oracle import File, Tree
from spec_tests.scenario import World
from spec_tests.worlds import TINY, Repository

pytestmark = pytest.mark.feature("modelscope")
Worlds = Callable[..., World]
COMMITS: Final = "/api/v1/models/acme/tiny/commits"
FILES: Final = "/api/v1/models/acme/tiny/repo/files"
GIT: Final = "/acme/tiny.git/info/refs"


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and its hubs."""
    return worlds(nodes=(), worker=True)


@pytest.fixture
def scope(world: World) -> ModelScope:
    """Give the world's ModelScope."""
    return ModelScope(world)


@pytest.mark.rule("AR-MS-01")
@pytest.mark.parametrize("revision", ["master", "dev", "v1", "annotated"])
def test_a_branch_or_tag_becomes_the_commit_that_hub_and_git_name(
    scope: ModelScope, revision: str
) -> None:
    """Both are asked, and the tree is listed at their commit; of a tag object its commit counts."""
    repository = scope.repository()
    commit = repository.hub.commit({"config.json": b"dev"}, branch="dev")
    repository.hub.point("refs/tags/v1", commit)
    repository.hub.tag("annotated", commit)
    expected = repository.commit if revision == "master" else commit
    artifact = scope.unresolved("a", repository, revision=revision)
    assert decided(scope.world, artifact) == ("True", "Resolved")
    assert scope.world.resolved(artifact)["revision"] == expected
    assert len(scope.requests(COMMITS)) == 1
    assert len(scope.requests(GIT)) == 1
    assert all(f"Revision={expected}" in entry.query for entry in scope.requests(FILES))


@pytest.mark.rule("AR-MS-01")
def test_a_full_commit_is_taken_as_it_is(scope: ModelScope) -> None:
    """Nobody is asked which commit a commit is, also when a branch has moved on."""
    repository = scope.repository()
    repository.hub.commit({"config.json": b"later"}, branch="master")
    artifact = scope.unresolved("a", repository, revision=repository.commit)
    assert decided(scope.world, artifact) == ("True", "Resolved")
    resolved = scope.world.resolved(artifact)
    assert resolved["revision"] == repository.commit
    assert resolved["manifestDigest"] == repository.tree.digest
    assert not scope.requests(COMMITS)
    assert not scope.requests(GIT)


def naming(commit: str) -> Rewrite:
    """Return a fault: the commits API names another commit."""
    return Rewrite(lambda answer: answer | {"Data": {"Commit": [{"Id": commit}]}})


@pytest.mark.rule("AR-MS-01")
def test_a_disagreement_is_an_outage(scope: ModelScope) -> None:
    """Hub and git that name two commits are believed neither, until they agree again."""
    repository = scope.repository()
    other = repository.hub.commit({"config.json": b"dev"}, branch="dev")
    rule = scope.hub.faults.add(naming(other), at="info")
    artifact = scope.unresolved("a", repository)
    assert decided(scope.world, artifact) == ("False", "SourceUnavailable")
    assert scope.world.resolved(artifact) == {}
    assert not scope.requests(FILES), "the tree is not even listed"
    scope.hub.faults.remove(rule)
    scope.world.until(
        lambda: scope.world.resolution(artifact) == ("True", "Resolved"),
        "it resolves once they agree",
        within_seconds=90,
    )
    assert scope.world.resolved(artifact)["revision"] == repository.commit


@pytest.mark.rule("AR-MS-01")
def test_an_unknown_ref_is_not_the_default_branch(world: World) -> None:
    """A hub that answers for its default branch is found out by git, which lacks the ref."""
    scope = ModelScope(world, Habits(unknown_ref_is_default=True))
    artifact = scope.unresolved("a", scope.repository(), revision="no-such-branch")
    assert decided(world, artifact) == ("False", "SourceUnavailable")
    assert world.resolved(artifact) == {}


@pytest.mark.rule("AR-MS-01")
@pytest.mark.parametrize("status", [401, 404, 500])
def test_git_that_does_not_answer_is_an_outage(scope: ModelScope, status: int) -> None:
    """Without git's word nothing resolves, whatever its refusal is."""
    scope.hub.faults.add(Status(status), at="git")
    artifact = scope.unresolved("a", scope.repository())
    assert decided(scope.world, artifact) == ("False", "SourceUnavailable")


@pytest.mark.rule("AR-MS-01")
def test_git_gets_the_token_of_a_private_repository(scope: ModelScope) -> None:
    """A private repository resolves by its token, which the API and git both get."""
    repository = scope.repository(private=True)
    artifact = scope.unresolved("a", repository)
    assert decided(scope.world, artifact) == ("True", "Resolved")
    asked = [*scope.requests(COMMITS), *scope.requests(GIT), *scope.requests(FILES)]
    assert [entry.authorized for entry in asked] == [True] * 3


def wide(directories: int, files: int) -> Tree:
    """Return a tree of so many directories of so many files each, and one file at the root."""
    below = (
        File(f"d{directory}/{number}.txt", b"%d" % number, lfs=False)
        for directory in range(directories)
        for number in range(files)
    )
    return Tree((File("config.json", b"{}", lfs=False), *below))


@pytest.mark.rule("AR-MS-02")
def test_a_listing_that_was_cut_is_taken_by_directories(scope: ModelScope) -> None:
    """Of 3,600 files none is missing, and each directory was asked for by itself."""
    tree = wide(3, 1200)
    repository = scope.repository(tree=tree)
    artifact = scope.unresolved("a", repository)
    assert decided(scope.world, artifact) == ("True", "Resolved")
    resolved = scope.world.resolved(artifact)
    assert resolved["manifestDigest"] == as_listed(tree).digest
    assert resolved["fileCount"] == 3601
    asked = [entry.query for entry in scope.requests(FILES)]
    for directory in range(3):
        assert any(f"Root=d{directory}" in query for query in asked)


@pytest.mark.rule("AR-MS-02")
@pytest.mark.parametrize(("entries", "listings"), [(2999, 1), (3000, 3)])
def test_a_listing_of_3000_entries_counts_as_cut(
    scope: ModelScope, entries: int, listings: int
) -> None:
    """The directory counts as an entry: one fewer than 3000 is whole, 3000 are not."""
    tree = wide(1, entries - 2)  # the root's file and the directory are entries too
    artifact = scope.unresolved("a", scope.repository(tree=tree))
    assert decided(scope.world, artifact) == ("True", "Resolved")
    assert scope.world.resolved(artifact)["fileCount"] == entries - 1
    assert len(scope.requests(FILES)) == listings


@pytest.mark.rule("AR-MS-02")
@pytest.mark.parametrize("directories", [0, 1])
def test_too_many_direct_children_are_an_outage(scope: ModelScope, directories: int) -> None:
    """A directory of 3000 files cannot be listed whole, at the root or below it."""
    files = tuple(File(f"{'d/' * directories}{n}.txt", b"x", lfs=False) for n in range(3000))
    artifact = scope.unresolved("a", scope.repository(tree=Tree(files)))
    assert decided(scope.world, artifact) == ("False", "SourceUnavailable")
    assert scope.world.resolved(artifact) == {}


def without_digest(value: Any) -> Callable[[Any], Any]:
    """Return a change of a listing: one file's SHA-256 is something else."""

    def change(answer: Any) -> Any:
        files = answer["Data"]["Files"]
        odd = next(file for file in files if file["Path"] == "config.json")
        odd["Sha256"] = value
        return answer

    return change


@pytest.mark.rule("AR-MS-02", "AR-DIG-02")
@pytest.mark.parametrize("value", ["", None, "A" * 64, "a" * 40], ids=str)
def test_every_file_must_carry_its_sha256(scope: ModelScope, value: object) -> None:
    """One file without it fails the whole, LFS or not."""
    scope.hub.faults.add(Rewrite(without_digest(value)), at="tree")
    artifact = scope.unresolved("a", scope.repository())
    assert decided(scope.world, artifact) == ("False", "InvalidManifest")


@pytest.mark.rule("AR-DIG-01", "AR-DIG-03")
def test_the_digest_is_of_sha256_alone(scope: ModelScope) -> None:
    """The canonical manifest has a SHA-256 for every file, wherever the repository is."""
    first = scope.unresolved("first", scope.repository())
    moved = scope.unresolved("second", scope.repository("somebody/else"), namespace="team-b")
    for artifact in (first, moved):
        assert decided(scope.world, artifact) == ("True", "Resolved")
        resolved = scope.world.resolved(artifact)
        assert resolved["manifestDigest"] == as_listed(TINY).digest != TINY.digest
        assert (resolved["fileCount"], resolved["sizeBytes"]) == (4, TINY.size_bytes)


def envelope(code: int) -> Rewrite:
    """Return a fault: an answer with HTTP 200 whose envelope says no."""
    return Rewrite(lambda _: {"Code": code, "Message": "no", "Data": None, "Success": False})


def coded(status: int, code: int) -> Status:
    """Return a fault: an answer with a status and an envelope."""
    return Status(status, f'{{"Code": {code}, "Message": "no", "Data": null}}')


ANSWERS: Final[dict[str, tuple[Fault, str]]] = {
    "10990101004": (envelope(10990101004), "RevisionNotFound"),
    "404 10990101004": (coded(404, 10990101004), "RevisionNotFound"),
    "500 10990101004": (coded(500, 10990101004), "RevisionNotFound"),
    "10010205001": (envelope(10010205001), "AccessDenied"),
    "500 10010205001": (coded(500, 10010205001), "AccessDenied"),
    "10010200001": (envelope(10010200001), "AccessDenied"),
    "401": (Status(401), "AccessDenied"),
    "403": (Status(403), "AccessDenied"),
    "404": (Status(404), "AccessDenied"),
    "404 another code": (coded(404, 10010299999), "AccessDenied"),
    "another code": (envelope(10010299999), "SourceUnavailable"),
    "429": (Status(429, retry_after=1), "SourceUnavailable"),
    "500": (Status(500), "SourceUnavailable"),
    "a closed connection": (Hangup(), "SourceUnavailable"),
    "a sign-in page": (HtmlPage(), "SourceUnavailable"),
}


@pytest.mark.rule("AR-MS-03")
@pytest.mark.parametrize("place", ["info", "tree"])
@pytest.mark.parametrize("name", ANSWERS)
def test_what_an_answer_means(scope: ModelScope, name: str, place: str) -> None:
    """The envelope's code counts first, then the status, and all else is SourceUnavailable."""
    fault, reason = ANSWERS[name]
    scope.hub.faults.add(fault, at=place)
    artifact = scope.unresolved("a", scope.repository())
    assert decided(scope.world, artifact) == ("False", reason)


@pytest.mark.rule("AR-MS-03")
@pytest.mark.parametrize("kind", ["missing", "private"])
def test_a_repository_that_one_may_not_read(scope: ModelScope, kind: str) -> None:
    """Missing and private both read AccessDenied to somebody without a token."""
    if kind == "private":
        scope.repository("acme/closed", private=True)
    artifact = scope.unresolved("a", Repository("acme/closed", "", TINY, None))
    assert decided(scope.world, artifact) == ("False", "AccessDenied")


@pytest.mark.rule("AR-MS-03")
def test_a_revision_nobody_knows(scope: ModelScope) -> None:
    """The hub's code for an unknown revision is RevisionNotFound."""
    artifact = scope.unresolved("a", scope.repository(), revision="no-such-branch")
    assert decided(scope.world, artifact) == ("False", "RevisionNotFound")


@pytest.mark.rule("NS-AUT-06")
@pytest.mark.parametrize("private", [False, True], ids=["public", "private"])
def test_a_node_delivers_from_model_scope(worlds: Worlds, *, private: bool) -> None:
    """A Pod that mounts such an artifact reads its files, small and large, byte by byte."""
    world = worlds(worker=True)
    scope = ModelScope(world)
    artifact = scope.unresolved("a", scope.repository(private=private))
    assert decided(world, artifact) == ("True", "Resolved")
    assert artifact.digest == world.resolved(artifact)["manifestDigest"]
    world.until(lambda: world.node.store() or None, "the node's object", within_seconds=60)
    pod = world.pod(artifact)
    pod.wait_until_running()
    assert {path: world.node.read_pod(pod, path) for path in TINY.contents()} == TINY.contents()
    assert not world.hub_requests("*acme/tiny*"), "the other hub is not asked"
    assert not any(entry.authorized for entry in scope.requests(host="cdn"))
