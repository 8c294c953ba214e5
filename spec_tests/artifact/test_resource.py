"""artifact#the-resource: what an artifact may say, and that it says the same for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from emulator.errors import ApiError
from spec_tests import oracle
from spec_tests.scenario import World

Worlds = Callable[..., World]
Json = dict[str, Any]
HUB: Final[Json] = {"huggingFace": {"repository": "acme/tiny", "revision": "main"}}
CLAIM: Final[Json] = {"persistentVolumeClaim": {"claimName": "weights"}}
DIGEST: Final = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker, whose webhooks judge."""
    world = worlds(nodes=(), worker=True)
    world.namespace("team-a")
    return world


def create(world: World, spec: Json, name: str = "a") -> Json:
    """Create an artifact."""
    metadata = {"name": name, "namespace": "team-a"}
    body = {"apiVersion": oracle.API, "kind": "ModelArtifact", "metadata": metadata, "spec": spec}
    created: Json = world.api.create(body)
    return created


def refusal(act: Callable[[], object]) -> str:
    """Do what must be refused as invalid, and return the message."""
    with pytest.raises(ApiError) as refused:
        act()
    assert refused.value.code == 422
    return str(refused.value.message)


def refused(world: World, spec: Json) -> str:
    """Create an artifact that must be refused, and return the message."""
    return refusal(lambda: create(world, spec))


def get(world: World, name: str = "a") -> Json:
    """Return an artifact."""
    found: Json = world.api.get(oracle.API, "ModelArtifact", name, namespace="team-a")
    return found


def of_hub(**fields: Any) -> Json:
    """Return a spec of a Hugging Face source with other fields."""
    return {"source": {"huggingFace": {**HUB["huggingFace"], **fields}}}


@pytest.mark.rule("AR-RES-01")
def test_the_kind_is_as_people_know_it(world: World) -> None:
    """Namespaced, `mart` for short, and one of `kubectl get gpustack`."""
    listed = world.as_user("", {}).read(f"/apis/{oracle.API}")["resources"]
    found = [entry for entry in listed if entry["name"] == "modelartifacts"]
    assert [entry["kind"] for entry in found] == ["ModelArtifact"]
    assert found[0]["namespaced"] is True
    assert found[0].get("shortNames") == ["mart"]
    assert found[0].get("categories") == ["gpustack"]


SOURCES: Final[dict[str, Json]] = {
    "none": {},
    "two hubs": {**HUB, "modelScope": {"repository": "acme/tiny"}},
    "a hub and a claim": {**HUB, **CLAIM},
    "a claim and an image": {**CLAIM, "image": {"reference": f"acme/tiny@{DIGEST}"}},
}


@pytest.mark.rule("AR-RES-01")
@pytest.mark.parametrize("name", SOURCES)
def test_a_source_has_exactly_one_member(world: World, name: str) -> None:
    """None, and any two, are refused; each alone is taken."""
    assert "spec.source" in refused(world, {"source": SOURCES[name]})
    create(world, {"source": HUB})
    create(world, {"source": {"modelScope": {"repository": "acme/tiny"}}}, "b")
    create(world, {"source": CLAIM}, "c")


CHANGES: Final[dict[str, Json]] = {
    "another repository": of_hub(repository="acme/other"),
    "another revision": of_hub(revision="dev"),
    "a Secret": of_hub(secretRef={"name": "hub"}),
    "patterns": {"source": HUB, "allowPatterns": ["*.json"]},
    "an expected digest": {"source": HUB, "expectedDigest": DIGEST},
    "another source": {"source": CLAIM},
}


@pytest.mark.rule("AR-RES-02")
@pytest.mark.parametrize("name", CHANGES)
def test_no_field_of_the_spec_can_change(world: World, name: str) -> None:
    """Whatever is changed, the refusal says that an artifact is an identity."""
    create(world, {"source": HUB})
    world.advance(1)
    before = get(world)
    message = refusal(lambda: world.api.update(before | {"spec": CHANGES[name]}))
    assert "a ModelArtifact is an identity" in message
    assert get(world)["spec"] == before["spec"]


@pytest.mark.rule("AR-RES-02")
def test_an_unchanged_spec_is_not_judged_again(world: World) -> None:
    """An artifact that came in before a rule did still takes labels, and can be let go."""
    version, kind = "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"
    (guard,) = world.api.list(version, kind)
    world.api.delete(version, kind, guard["metadata"]["name"])
    create(world, of_hub(repository="no such--repository"))
    world.api.create(guard | {"metadata": {"name": guard["metadata"]["name"]}})
    refused(world, of_hub(repository="no such--repository"))
    world.advance(1)
    labels = {"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/mine"]}}
    world.api.patch(oracle.API, "ModelArtifact", "a", labels, namespace="team-a")
    assert get(world)["metadata"]["labels"] == {"team": "a"}
    world.api.delete(oracle.API, "ModelArtifact", "a", namespace="team-a")
    world.advance(15)
    none = {"metadata": {"finalizers": None}}
    world.api.patch(oracle.API, "ModelArtifact", "a", none, namespace="team-a")
    assert not world.api.list(oracle.API, "ModelArtifact", namespace="team-a")


@pytest.mark.rule("AR-RES-03")
@pytest.mark.parametrize(("hub", "branch"), [("huggingFace", "main"), ("modelScope", "master")])
def test_the_revision_has_a_default(world: World, hub: str, branch: str) -> None:
    """The hub's default branch, on creation; and on an update, which thereby changes nothing."""
    create(world, {"source": {hub: {"repository": "acme/tiny"}}})
    world.advance(1)
    stored = get(world)
    assert stored["spec"]["source"][hub].get("revision") == branch

    def applied_again() -> bool:
        applied = get(world)
        applied["spec"]["source"][hub].pop("revision")
        applied["metadata"]["labels"] = {"applied": "again"}
        try:
            world.api.update(applied)
        except ApiError as error:  # the worker's status came first: read again
            if error.code != 409:
                raise
            return False
        return True

    world.until(applied_again, "the manifest is applied again")
    assert get(world)["spec"]["source"][hub].get("revision") == branch
    assert get(world)["metadata"]["labels"] == {"applied": "again"}


BAD: Final[dict[str, tuple[Json, str]]] = {
    "an empty repository": (of_hub(repository=""), "repository"),
    "a space": (of_hub(repository="acme/ti ny"), "repository"),
    "three parts": (of_hub(repository="a/b/c"), "repository"),
    "a newline at the end": (of_hub(repository="acme/tiny\n"), "repository"),
    "two dots": (of_hub(repository="acme/../tiny"), "repository"),
    "two dashes": (of_hub(repository="acme/ti--ny"), "repository"),
    "a dash in front": (of_hub(repository="acme/-tiny"), "repository"),
    "97 characters": (of_hub(repository="acme/" + "a" * 97), "repository"),
    "a URL": (of_hub(repository="https://hub/acme/tiny"), "repository"),
    "a revision with a space": (of_hub(revision="my branch"), "revision"),
    "a revision with a newline": (of_hub(revision="main\n"), "revision"),
    "256 characters of revision": (of_hub(revision="a" * 256), "revision"),
    "33 patterns": ({"source": HUB, "allowPatterns": ["*"] * 33}, "allowPatterns"),
    "an empty pattern": ({"source": HUB, "ignorePatterns": [""]}, "ignorePatterns"),
    "257 characters of pattern": ({"source": HUB, "allowPatterns": ["a" * 257]}, "allowPatterns"),
    "a control character": ({"source": HUB, "allowPatterns": ["a\x01"]}, "allowPatterns"),
}


@pytest.mark.rule("AR-RES-04", "AR-RES-05")
def test_bad_syntax_is_refused_at_admission(world: World) -> None:
    """Each is refused with its field named, and nothing is stored."""
    for name, (spec, field) in BAD.items():
        assert field in refused(world, spec), name
    assert world.api.list(oracle.API, "ModelArtifact", namespace="team-a") == []


GOOD: Final[dict[str, Json]] = {
    "one part": of_hub(repository="gpt2"),
    "dots, dashes and underscores": of_hub(repository="a-c.me_/T.i-n_y"),
    "96 characters": of_hub(repository="acme/" + "a" * 96),
    "a pull request": of_hub(revision="refs/pr/1"),
    "a long revision": of_hub(revision="r" * 255),
    "32 patterns of 256": {"source": HUB, "allowPatterns": ["a" * 256] * 32},
    "an anchor": {"source": HUB, "expectedDigest": DIGEST},
}


@pytest.mark.rule("AR-RES-04", "AR-RES-05", "AR-RES-06")
def test_good_syntax_is_taken(world: World) -> None:
    """What stands at the edges of the rules is inside."""
    for number, spec in enumerate(GOOD.values()):
        create(world, spec, f"good-{number}")


@pytest.mark.rule("AR-RES-04")
def test_secret_and_claim_may_come_later(world: World) -> None:
    """Neither is read at admission: an artifact that names what is not there is stored."""
    create(world, of_hub(secretRef={"name": "not-there"}), "of-hub")
    create(world, {"source": CLAIM}, "of-claim")
    assert len(world.api.list(oracle.API, "ModelArtifact", namespace="team-a")) == 2


@pytest.mark.rule("AR-RES-06")
@pytest.mark.feature("expected-digest")
@pytest.mark.parametrize(
    "digest",
    ["abc", DIGEST[:-1], DIGEST + "0", DIGEST.upper(), DIGEST[7:], "sha512:" + "0" * 64],
)
def test_an_expected_digest_is_a_sha256(world: World, digest: str) -> None:
    """Anything but sha256: and 64 lowercase hex digits is refused."""
    assert "expectedDigest" in refused(world, {"source": HUB, "expectedDigest": digest})


@pytest.mark.rule("AR-RES-05", "AR-RES-06")
@pytest.mark.parametrize(
    "extra", [{"expectedDigest": DIGEST}, {"allowPatterns": ["*"]}, {"ignorePatterns": ["*"]}]
)
def test_patterns_and_digest_are_for_hub_sources(world: World, extra: Json) -> None:
    """A claim has neither."""
    (field,) = extra
    assert field in refused(world, {"source": CLAIM, **extra})
