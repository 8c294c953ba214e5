"""artifact#resolution-and-revalidation: access that is asked for again, lost, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from emulator.hubs.wrong_answers import Status
from spec_tests import oracle
from spec_tests.deciding import healthy
from spec_tests.model_scope import ModelScope
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import Repository

Worlds = Callable[..., World]
Json = dict[str, Any]
PERIOD: Final = 300
"""The interval of these tests, in seconds; what is a day by default takes long to pass."""
INTERVAL: Final = "model-artifact-revalidate-interval"
WEIGHTS: Final = Tree((File("model.safetensors", pseudo_random(9_000, seed=7), lfs=True),))
"""One file, which a hub hands out by redirect."""


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and a hub, where access is checked every five minutes."""
    world = worlds(nodes=(), worker=True)
    world.set_setting(INTERVAL, "5m")
    return world


@dataclass
class Held:
    """A private artifact that is resolved, and the hub that it came from."""

    world: World
    hub: Any
    repository: Repository
    artifact: Artifact

    def heads(self) -> list[Any]:
        """Return the HEAD requests that the hub has seen."""
        return [entry for entry in self.hub.requests.entries("*") if entry.method == "HEAD"]

    def asked(self) -> int:
        """Return how many requests the hub has seen."""
        return len(self.hub.requests.entries("*"))

    def state(self) -> tuple[str, str, str]:
        """Return Resolved's status, Degraded's status, and Degraded's reason."""
        degraded = self.world.resolution(self.artifact, "Degraded")
        return self.world.resolution(self.artifact)[0], *degraded

    def is_so(self, resolved: str, degraded: str, reason: str) -> bool:
        """Wait until the conditions are these."""
        return self.world.until(
            lambda: self.state() == (resolved, degraded, reason), f"{resolved} {degraded} {reason}"
        )

    def close(self) -> None:
        """Take the right to read from the token."""
        self.repository.hub.readers.clear()

    def reopen(self) -> None:
        """Give it back."""
        self.repository.hub.readers.add(self.repository.name)


@pytest.fixture(
    params=[
        "hugging face",
        pytest.param("model scope", marks=pytest.mark.feature("modelscope")),
    ]
)
def held(world: World, request: pytest.FixtureRequest) -> Held:
    """Give a resolved artifact of a private repository, on each hub."""
    if request.param == "hugging face":
        return hold(world)
    scope = ModelScope(world)
    repository = scope.repository("acme/weights", WEIGHTS, private=True)
    artifact = scope.unresolved("a", repository)
    healthy(world, artifact)
    return Held(world, scope.hub, repository, artifact)


def hold(world: World) -> Held:
    """Return a resolved artifact of a private repository on Hugging Face."""
    repository = world.repository("acme/weights", WEIGHTS, private=True)
    artifact = world.artifact("a", repository=repository)
    healthy(world, artifact)
    return Held(world, world.hub, repository, artifact)


@pytest.mark.rule("AR-REV-01")
def test_access_is_checked_again_by_one_head(held: Held) -> None:
    """Nothing before the time; then one HEAD at the commit, whose redirect is not followed."""
    world, before = held.world, held.world.resolved(held.artifact)
    asked = held.asked()
    world.advance(PERIOD - 30)
    assert held.asked() == asked
    world.advance(60)
    assert len(held.heads()) == 1
    head = held.heads()[0]
    target = f"{head.path}?{head.query}"
    assert held.repository.commit in target
    assert "model.safetensors" in target
    assert head.status == 302
    assert not held.hub.requests.entries("*", host="cdn")
    assert head.carries(held.repository.token)
    after = world.resolved(held.artifact)
    assert after.pop("lastValidatedTime") > before.pop("lastValidatedTime")
    assert after == before
    healthy(world, held.artifact)
    world.advance(2 * PERIOD)
    assert len(held.heads()) == 3


@pytest.mark.rule("AR-REV-01")
def test_the_interval_is_a_day_unless_set(worlds: Worlds) -> None:
    """A last check of a day ago, less two minutes, is not repeated before these have passed.

    The check is dated back instead of letting a day pass, which takes minutes even here.
    """
    world = worlds(nodes=(), worker=True)
    held = hold(world)
    path = f"/apis/{oracle.API}/namespaces/team-a/modelartifacts/a"
    stored = world.stored(held.artifact)
    moment = datetime.fromtimestamp(int(world.now()) - 86_400 + 120, UTC)
    stored["status"]["resolved"]["lastValidatedTime"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    code, message = world.as_user(world.seat.worker_user, {}).put(f"{path}/status", stored)
    assert code == 200, message
    world.advance(90)
    assert held.heads() == []
    world.advance(60)
    assert len(held.heads()) == 1


@pytest.mark.rule("AR-REV-01")
def test_a_changed_secret_is_checked_at_once(held: Held) -> None:
    """The new token is asked with, without waiting for the day's end."""
    world = held.world
    held.hub.add_token("another_token", user=held.repository.name)
    world.secret("a-token", "another_token", namespace="team-a")
    world.until(held.heads, "a check with the new token")
    assert [head.carries("another_token") for head in held.heads()] == [True]
    healthy(world, held.artifact)


@pytest.mark.rule("AR-REV-01")
def test_other_changes_ask_nothing(held: Held) -> None:
    """Another Secret, labels and the worker's own writes are no reason to ask a hub."""
    world, asked = held.world, held.asked()
    world.secret("unrelated", "a_token", namespace="team-a")
    labels = {"metadata": {"labels": {"team": "a"}}}
    world.api.patch(oracle.API, "ModelArtifact", "a", labels, namespace="team-a")
    world.advance(PERIOD - 30)
    assert held.asked() == asked


def later(held: Held) -> None:
    """Let the next check come; what it finds is up to the test."""
    held.world.advance(PERIOD + 15)


@pytest.mark.rule("AR-REV-02")
def test_a_refusal_revokes_when_it_is_repeated_a_minute_later(held: Held) -> None:
    """First Degraded alone, a minute later Resolved=False, and access given back restores all."""
    world, before = held.world, held.world.resolved(held.artifact)
    held.close()
    world.advance(PERIOD - 15)
    assert held.state() == ("True", "False", "Healthy")
    first = world.until(
        lambda: held.state()[1] == "True" and world.now(), "Degraded", within_seconds=60
    )
    assert held.state() == ("True", "True", "AccessDenied")
    world.advance(55)
    assert held.state() == ("True", "True", "AccessDenied")
    world.until(lambda: held.state()[0] == "False", "it is revoked", within_seconds=10)
    assert 58 <= world.now() - first <= 65
    assert world.resolution(held.artifact) == ("False", "AccessDenied")
    assert world.resolved(held.artifact) == before, "what it was resolved to is not forgotten"
    held.reopen()
    world.advance(600)
    healthy(world, held.artifact, within_seconds=60)
    after = world.resolved(held.artifact)
    assert after.pop("lastValidatedTime") > before.pop("lastValidatedTime")
    assert after == before


@pytest.mark.rule("AR-REV-02")
def test_a_refusal_that_is_taken_back_revokes_nothing(world: World) -> None:
    """Access that is there again a minute later was never lost."""
    held = hold(world)
    rule = held.hub.faults.add(Status(403), at="resolve", times=1)
    world.advance(PERIOD - 15)
    world.until(lambda: rule.hits == 1, "the refusal", within_seconds=60)
    held.is_so("True", "True", "AccessDenied")
    healthy(world, held.artifact, within_seconds=70)


@pytest.mark.rule("AR-REV-02")
def test_another_refusal_begins_a_minute_of_its_own(world: World) -> None:
    """Two different refusals confirm nothing; the second one has to be repeated too."""
    held = hold(world)
    gone = Status(404, headers=(("X-Error-Code", "RevisionNotFound"),))
    denied = held.hub.faults.add(Status(403), at="resolve", times=1)
    held.hub.faults.add(gone, at="resolve")
    world.advance(PERIOD - 15)
    world.until(lambda: denied.hits == 1, "the first refusal", within_seconds=60)
    held.is_so("True", "True", "AccessDenied")
    world.advance(62)
    held.is_so("True", "True", "RevisionNotFound")
    world.advance(50)
    assert held.state()[0] == "True"
    world.advance(15)
    held.is_so("False", "True", "RevisionNotFound")


@pytest.mark.rule("AR-REV-03")
def test_an_outage_never_revokes(held: Held) -> None:
    """Only Degraded says so, the hub is asked every minute, and then all is well."""
    world = held.world
    rule = held.hub.faults.add(Status(503), at="any")
    later(held)
    held.is_so("True", "True", "SourceUnavailable")
    hits = rule.hits
    world.advance(600)
    assert held.state() == ("True", "True", "SourceUnavailable")
    assert 9 <= rule.hits - hits <= 11
    held.hub.faults.remove(rule)
    healthy(world, held.artifact, within_seconds=70)


@pytest.mark.rule("AR-REV-03")
def test_a_hub_that_is_not_there_never_revokes(world: World) -> None:
    """Refused connections are an outage like any other."""
    held = hold(world)
    held.hub.stop()
    later(held)
    world.advance(130)
    assert held.state() == ("True", "True", "SourceUnavailable")
    held.hub.start()
    healthy(world, held.artifact, within_seconds=70)


@contextmanager
def secrets_unreadable(world: World) -> Iterator[None]:
    """Take the right to read other namespaces' Secrets from the worker, and give it back."""
    version, kind = "rbac.authorization.k8s.io/v1", "ClusterRole"
    name = world.seat.worker_user.rpartition(":")[2]
    bindings = world.api.list(version, "ClusterRoleBinding")
    named = {
        b["roleRef"]["name"] for b in bindings if any(s["name"] == name for s in b["subjects"])
    }
    (role,) = (
        found
        for found in world.api.list(version, kind)
        if found["metadata"]["name"] in named
        and any("secrets" in rule.get("resources", ()) for rule in found["rules"])
    )
    rules = [
        rule | {"resources": [r for r in rule["resources"] if r != "secrets"]}
        if "secrets" in rule.get("resources", ())
        else rule
        for rule in role["rules"]
    ]
    change(world, role["metadata"]["name"], rules)
    try:
        yield
    finally:
        change(world, role["metadata"]["name"], role["rules"])


def change(world: World, role: str, rules: list[Json]) -> None:
    """Replace a ClusterRole's rules."""
    version, kind = "rbac.authorization.k8s.io/v1", "ClusterRole"
    found = world.api.get(version, kind, role)
    world.api.update(found | {"rules": rules})
    world.advance(0)


@pytest.mark.rule("AR-REV-03")
def test_an_unreadable_secret_is_an_outage(world: World) -> None:
    """Whoever may not look cannot say that access is gone: only Degraded, asked every minute."""
    held = hold(world)
    asked = held.asked()
    with secrets_unreadable(world):
        later(held)
        held.is_so("True", "True", "SourceUnavailable")
        world.advance(180)
        assert held.state() == ("True", "True", "SourceUnavailable")
        assert held.asked() == asked, "without its token nobody is asked"
    healthy(world, held.artifact, within_seconds=70)


WITHOUT_TOKEN: Final[dict[str, Json | None]] = {
    "deleted": None,
    "another key": {"password": "eA=="},
    "empty": {"token": ""},
    "blank": {"token": "IAo="},
}


def leave(world: World, data: Json | None) -> None:
    """Delete the artifact's Secret, or leave it with other data."""
    if data is None:
        world.api.delete("v1", "Secret", "a-token", namespace="team-a")
    else:
        found = world.api.get("v1", "Secret", "a-token", namespace="team-a")
        world.api.update(found | {"data": data})


@pytest.mark.rule("AR-REV-04")
@pytest.mark.parametrize("how", WITHOUT_TOKEN)
def test_a_secret_that_is_gone_revokes_at_once(world: World, how: str) -> None:
    """Without a minute's grace and without asking the hub; its return restores everything."""
    held = hold(world)
    before, asked = world.resolved(held.artifact), held.asked()
    leave(world, WITHOUT_TOKEN[how])
    world.until(
        lambda: world.resolution(held.artifact) == ("False", "SecretNotFound"), "it is revoked"
    )
    assert world.resolution(held.artifact, "Degraded") == ("True", "SecretNotFound")
    assert held.asked() == asked
    world.secret("a-token", held.repository.token, namespace="team-a")
    healthy(world, held.artifact, within_seconds=0)
    after = world.resolved(held.artifact)
    assert after.pop("lastValidatedTime") >= before.pop("lastValidatedTime")
    assert after == before


@pytest.mark.rule("AR-REV-04")
def test_a_secret_that_comes_later_resolves(world: World) -> None:
    """An artifact may be there before its Secret; it says what it lacks."""
    repository = world.repository("acme/weights", WEIGHTS, private=True)
    source = {"huggingFace": {"repository": repository.name, "secretRef": {"name": "later"}}}
    artifact = world.unresolved("a", repository, spec={"source": source})
    world.until(
        lambda: world.resolution(artifact) == ("False", "SecretNotFound"), "it lacks its Secret"
    )
    world.secret("later", repository.token, namespace="team-a")
    healthy(world, artifact, within_seconds=0)
