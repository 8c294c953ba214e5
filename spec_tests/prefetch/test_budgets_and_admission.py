"""prefetch#budgets-and-admission: what is counted, what is refused, and what drifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from emulator.hubs.broken_bodies import Stall
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming

NODES: Final = ("node-a", "node-b")
TEN: Final = Tree((File("model.bin", pseudo_random(10_000, seed=3), lfs=True),))
Worlds = Callable[..., World]


@pytest.fixture
def warming(worlds: Worlds) -> Warming:
    """Give a worker, two nodes whose plugins deliver, and a store over both."""
    warming = Warming(worlds(nodes=NODES, worker=True))
    warming.store()
    return warming


@pytest.fixture
def granted(worlds: Worlds) -> Warming:
    """Give a worker, two nodes without plugins, and a grant of 30,000 bytes over both."""
    warming = Warming(worlds(nodes=NODES, worker=True, plugins=False))
    warming.label("node-a", {"pool": "a"})
    warming.store()
    warming.binding(quota=30_000)
    return warming


def ten(warming: Warming, name: str = "ten", seed: int = 3, **where: str) -> Artifact:
    """Make an artifact of ten thousand bytes."""
    tree = Tree((File("model.bin", pseudo_random(10_000, seed=seed), lfs=True),))
    repository = warming.world.repository(f"acme/{name}-{where.get('namespace', 'team-a')}", tree)
    return warming.world.artifact(name, repository=repository, **where)  # type: ignore[arg-type]  # one key


def until_used(warming: Warming, wanted: int | None, namespace: str = "team-a") -> None:
    """Wait until a grant's measured figure is the wanted one."""
    warming.world.until(
        lambda: warming.used(namespace=namespace) == wanted, f"{wanted} used", within_seconds=120
    )


@pytest.mark.rule("MP-BUD-01", "MP-BUD-03")
def test_every_distinct_digest_counts_once_for_every_node_that_holds_it(warming: Warming) -> None:
    """Zero at first, then full size times holders; two artifacts of one tree count once."""
    warming.binding()
    until_used(warming, 0)
    first = ten(warming)
    warming.prefetch(first)
    until_used(warming, 20_000)
    twin = warming.world.artifact("twin", repository=warming.world.repository("acme/twin", TEN))
    assert twin.digest == first.digest
    warming.prefetch(twin, "second")
    warming.wait("Available", "MinReadyReached", "second")
    warming.world.advance(60)
    assert warming.used() == 20_000


@pytest.mark.rule("MP-BUD-01")
def test_an_entry_counts_in_full_in_any_state(warming: Warming) -> None:
    """A copy that is still downloading weighs as much as one that is there."""
    warming.binding()
    artifact = ten(warming)
    warming.world.hub.faults.add(Stall(offset=100))
    warming.prefetch(artifact)
    until_used(warming, 20_000)
    states = {warming.world.nodes[node].entry(artifact.digest)["state"] for node in NODES}
    assert states == {"Downloading"}
    warming.world.hub.faults.clear()
    warming.world.hub.faults.release()


@pytest.mark.rule("MP-BUD-01")
def test_a_holder_counts_that_no_prefetch_aims_at(warming: Warming) -> None:
    """A node that holds the digest by a consumer's mount is charged as well."""
    warming.label("node-a", {"pool": "a"})
    warming.binding()
    artifact = ten(warming)
    warming.prefetch(artifact, placement={"nodeSelector": {"matchLabels": {"pool": "a"}}})
    until_used(warming, 10_000)
    warming.world.nodes["node-b"].mount(artifact)
    until_used(warming, 20_000)


@pytest.mark.rule("MP-BUD-02")
def test_a_shared_tree_counts_fully_against_both(warming: Warming) -> None:
    """The second namespace gains nothing from what the first has warmed."""
    warming.binding()
    warming.binding(namespace="team-b")
    warming.prefetch(ten(warming))
    warming.prefetch(ten(warming, namespace="team-b"), namespace="team-b")
    until_used(warming, 20_000)
    until_used(warming, 20_000, "team-b")


@pytest.mark.rule("MP-BUD-03", "MP-BUD-04")
def test_nothing_is_measured_while_an_artifact_is_unresolved(granted: Warming) -> None:
    """The figure is absent, not zero, and OverQuota is Unknown, until the artifact resolves."""
    repository = granted.world.repository("acme/later", TEN)
    granted.world.hub.remove_repository("acme/later")
    later = granted.world.unresolved("later", repository)
    granted.prefetch(later)
    found = granted.wait("OverQuota", "Unmeasured", "grant", "ModelStoreBinding")
    assert found["status"] == "Unknown"
    assert granted.used() is None
    assert granted.status("grant", "ModelStoreBinding")["phase"] == "Error"
    granted.world.hub.add_repository("acme/later", TEN.contents())
    granted.world.advance(600)
    found = granted.wait("OverQuota", "WithinBudget", "grant", "ModelStoreBinding")
    assert found["status"] == "False"
    assert granted.used() == 0


@pytest.mark.rule("MP-BUD-04", "MP-BUD-10")
def test_what_the_projection_could_not_see_shows_as_over_quota(warming: Warming) -> None:
    """An unresolved artifact weighs nothing at admission; once it is there, the grant is passed."""
    warming.binding(quota=15_000)
    repository = warming.world.repository("acme/later", TEN)
    warming.world.hub.remove_repository("acme/later")
    later = warming.world.unresolved("later", repository)
    warming.prefetch(later)
    warming.world.hub.add_repository("acme/later", TEN.contents())
    warming.world.advance(600)
    found = warming.wait("OverQuota", "PastBudget", "grant", "ModelStoreBinding")
    assert found["status"] == "True"
    until_used(warming, 20_000)
    assert warming.status("grant", "ModelStoreBinding")["phase"] == "OverQuota"


@pytest.mark.rule("MP-BUD-04")
def test_a_grant_that_is_used_up_is_not_passed(warming: Warming) -> None:
    """The last granted byte is within the grant."""
    warming.binding(quota=20_000)
    warming.prefetch(ten(warming))
    until_used(warming, 20_000)
    assert warming.wait("OverQuota", "WithinBudget", "grant", "ModelStoreBinding")
    assert warming.status("grant", "ModelStoreBinding")["phase"] == "Ready"


@pytest.mark.rule("MP-BUD-05")
def test_a_missing_artifact_is_refused(granted: Warming) -> None:
    """Naming what does not exist is refused, on creation and on update."""
    assert "nothing" in granted.refused(granted.prefetch, "nothing")
    granted.prefetch(ten(granted))
    message = granted.refused(
        granted.change, "ModelPrefetch", "warm", artifactRef={"name": "nothing"}
    )
    assert "nothing" in message


@pytest.mark.rule("MP-BUD-06")
def test_a_missing_grant_is_refused(granted: Warming) -> None:
    """A binding that does not exist grants nothing, on creation and on update."""
    artifact = ten(granted)
    absent = {"name": "absent"}
    assert "absent" in granted.refused(granted.prefetch, artifact, bindingRef=absent)
    granted.prefetch(artifact)
    message = granted.refused(granted.change, "ModelPrefetch", "warm", bindingRef=absent)
    assert "absent" in message


@pytest.mark.rule("MP-BUD-07")
def test_targets_outside_the_grant_are_refused(granted: Warming) -> None:
    """Every target must be selected by a store that the grant names."""
    artifact = ten(granted)
    granted.store("small", {"pool": "a"})
    granted.binding("narrow", stores=("small",))
    narrow = {"name": "narrow"}
    message = granted.refused(granted.prefetch, artifact, bindingRef=narrow)
    assert "the target set leaves the grant" in message
    inside = {"nodeSelector": {"matchLabels": {"pool": "a"}}}
    granted.prefetch(artifact, bindingRef=narrow, placement=inside)


@pytest.mark.rule("MP-BUD-08")
def test_pinning_needs_the_grants_permission(granted: Warming) -> None:
    """It is refused, on creation and on update, until the binding allows it."""
    artifact = ten(granted)
    pinned = {"pinned": True}
    message = granted.refused(granted.prefetch, artifact, retention=pinned)
    assert "pinning is an admin-granted capability" in message
    granted.prefetch(artifact)
    message = granted.refused(granted.change, "ModelPrefetch", "warm", retention=pinned)
    assert "pinning is an admin-granted capability" in message
    granted.change("ModelStoreBinding", "grant", allowPinned=True)
    granted.change("ModelPrefetch", "warm", retention=pinned)
    granted.prefetch(artifact, "other", retention=pinned)


@pytest.mark.rule("MP-BUD-09")
def test_a_projection_past_the_budget_is_refused(granted: Warming) -> None:
    """Size times the widest node count of each distinct digest must fit, to the byte."""
    one = {"nodeSelector": {"matchLabels": {"pool": "a"}}}
    first, second = ten(granted), ten(granted, "second", seed=4)
    granted.prefetch(first)
    granted.prefetch(first, "narrower", placement=one)
    message = granted.refused(granted.prefetch, second, "other")
    assert "the namespace's warm footprint would reach" in message
    granted.prefetch(second, "other", placement=one)
    third = ten(granted, "third", seed=5)
    granted.refused(granted.prefetch, third, "third", placement=one)
    everywhere = {"nodeSelector": {"matchLabels": None}}
    granted.refused(granted.change, "ModelPrefetch", "other", placement=everywhere)


@pytest.mark.rule("MP-BUD-10")
def test_an_unresolved_artifact_weighs_nothing_in_the_projection(granted: Warming) -> None:
    """It is admitted however large it turns out, and the others fill the budget as without it."""
    huge = Tree((File("model.bin", pseudo_random(100_000, seed=6), lfs=True),))
    repository = granted.world.repository("acme/huge", huge)
    granted.world.hub.remove_repository("acme/huge")
    granted.prefetch(granted.world.unresolved("huge", repository), "huge")
    granted.prefetch(ten(granted))
    message = granted.refused(granted.prefetch, ten(granted, "second", seed=4), "other")
    assert "the namespace's warm footprint would reach" in message
