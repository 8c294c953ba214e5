"""views#resources, views#table-columns: the public API, asked through the cluster's API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests import oracle
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.warming import Warming

PUBLIC: Final = f"{oracle.GROUP}/v1"
ROOT: Final = f"/apis/{PUBLIC}"
ARTIFACTS: Final = f"{ROOT}/namespaces/team-a/modelartifacts"
MERGE: Final = "application/merge-patch+json"
EVERY_VERB: Final = {"create", "get", "list", "watch", "update", "patch", "delete"}
Worlds = Callable[..., World]


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a worker that serves the public API, and a node whose reports the test writes."""
    world = worlds(worker=True, plugins=False)
    admin = world.as_user("", {})
    world.until(
        lambda: admin.ask("GET", ROOT)[0] == 200, "the public API answers", within_seconds=60
    )
    return world


def artifact_spec(world: World) -> dict[str, Any]:
    """Return the spec of an artifact of the usual repository."""
    name = world.usual_repository().name
    return {"source": {"huggingFace": {"repository": name, "revision": "main"}}}


def public(world: World, artifact: Artifact) -> dict[str, Any]:
    """Return an artifact as the public API shows it."""
    return world.as_user("", {}).read(f"{ARTIFACTS}/{artifact.name}")


@pytest.mark.rule("VW-RES-01")
def test_discovery_lists_the_resources_and_their_verbs(world: World) -> None:
    """The five kinds with the ruled verbs, progress with get alone, and nothing of status."""
    listed = world.as_user("", {}).read(ROOT)["resources"]
    verbs = {resource["name"]: set(resource["verbs"]) for resource in listed}
    assert verbs == {
        "modelartifacts": EVERY_VERB,
        "modelartifacts/progress": {"get"},
        "nodemodelstores": {"get", "list", "watch", "delete"},
        "modelstores": EVERY_VERB,
        "modelstorebindings": EVERY_VERB,
        "modelprefetches": EVERY_VERB,
    }


@pytest.mark.rule("VW-RES-01")
def test_objects_are_made_changed_listed_and_deleted(world: World) -> None:
    """What is made in one version is the same object in the other, and goes from both."""
    world.namespace("team-a")
    grant = {"storeRefs": [{"name": "pool"}], "quota": {"bytes": "1Gi"}}
    wish = {
        "artifactRef": {"name": "model"},
        "bindingRef": {"name": "grant"},
        "placement": {"nodeSelector": {}},
    }
    things = [
        Thing(world, "ModelStore", "pool", {"nodeSelector": {}}, namespace=""),
        Thing(world, "ModelStoreBinding", "grant", grant),
        Thing(world, "ModelArtifact", "model", artifact_spec(world)),
        Thing(world, "ModelPrefetch", "warm", wish),
    ]
    for thing in things:
        thing.make()
        thing.change()
    for thing in reversed(things):
        thing.remove()


class Thing:
    """One object that a user keeps through the public API alone."""

    def __init__(
        self, world: World, kind: str, name: str, spec: dict[str, Any], namespace: str = "team-a"
    ) -> None:
        """Think of an object that is not there yet."""
        self.world, self.admin = world, world.as_user("", {})
        self.kind, self.name, self.spec, self.namespace = kind, name, spec, namespace
        plural = "modelprefetches" if kind == "ModelPrefetch" else f"{kind.lower()}s"
        self.everywhere = f"{ROOT}/{plural}"
        space = f"/namespaces/{namespace}" if namespace else ""
        self.collection = f"{ROOT}{space}/{plural}"
        self.path = f"{self.collection}/{name}"

    def make(self) -> None:
        """Create it, and find it under the stored version."""
        body = {"apiVersion": PUBLIC, "kind": self.kind, "metadata": {"name": self.name}}
        made = self.admin.create(self.collection, {**body, "spec": self.spec})
        assert made["apiVersion"] == PUBLIC
        stored = self.world.api.get(oracle.API, self.kind, self.name, namespace=self.namespace)
        assert stored["metadata"]["uid"] == made["metadata"]["uid"]

    def change(self) -> None:
        """Patch its labels, replace it with others, and find them in the list."""
        patch = {"apiVersion": PUBLIC, "metadata": {"labels": {"team": "a"}}}
        code, patched = self.admin.ask("PATCH", self.path, patch, content_type=MERGE)
        assert (code, patched["apiVersion"]) == (200, PUBLIC), patched
        self.world.until(self._replaced, "the object is replaced")
        listed = self.admin.read(self.everywhere)
        assert (listed["kind"], listed["apiVersion"]) == (f"{self.kind}List", PUBLIC)
        found = [(item["apiVersion"], item["metadata"]["labels"]) for item in listed["items"]]
        assert found == [(PUBLIC, {"team": "b"})]

    def _replaced(self) -> bool:
        # The worker writes the status meanwhile: a conflict is answered by reading again.
        current = self.admin.read(self.path)
        current["metadata"]["labels"]["team"] = "b"
        return bool(self.admin.ask("PUT", self.path, current)[0] == 200)

    def remove(self) -> None:
        """Delete it, and find it in neither version."""
        assert self.admin.ask("DELETE", self.path)[0] == 200
        self.world.until(
            lambda: self.admin.ask("GET", self.path)[0] == 404, "it is gone", within_seconds=60
        )
        assert self.world.api.list(oracle.API, self.kind, namespace=self.namespace) == []


@pytest.mark.rule("VW-RES-01")
def test_a_watch_goes_on_from_a_list(world: World) -> None:
    """It tells what happened since the list's version, in the public version."""
    admin = world.as_user("", {})
    artifact = world.unresolved("one", world.usual_repository())
    version = admin.read(ARTIFACTS)["metadata"]["resourceVersion"]
    world.unresolved("two", world.usual_repository())
    path = f"{ARTIFACTS}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Dtwo"
    event = admin.watched(path, 1)[0]
    seen = (event["type"], event["object"]["metadata"]["name"], event["object"]["apiVersion"])
    assert seen == ("ADDED", "two", PUBLIC)
    first = admin.watched(f"{ARTIFACTS}?watch=1&timeoutSeconds=5", 1)[0]
    assert first["object"]["metadata"]["name"] == artifact.name


@pytest.mark.rule("VW-RES-01")
def test_an_update_keeps_the_status_and_cannot_write_it(world: World) -> None:
    """A status in the body is ignored, and no status subresource is served."""
    artifact = world.artifact()
    admin = world.as_user("", {})
    before = public(world, artifact)
    forged = {"resolved": {"manifestDigest": "sha256:" + "ab" * 32}}
    changed = {**before, "status": forged}
    changed["metadata"]["labels"] = {"touched": "yes"}
    code, answer = admin.ask("PUT", f"{ARTIFACTS}/{artifact.name}", changed)
    assert code == 200, answer
    assert answer["metadata"]["labels"] == {"touched": "yes"}
    assert world.resolved(artifact)["manifestDigest"] == artifact.digest
    patch = {"status": forged}
    path = f"{ARTIFACTS}/{artifact.name}"
    assert admin.ask("PATCH", path, patch, content_type=MERGE)[0] == 200
    assert world.resolved(artifact)["manifestDigest"] == artifact.digest
    for method in ("GET", "PUT", "PATCH"):
        code, _ = admin.ask(method, f"{path}/status", changed, content_type=MERGE)
        assert code in {404, 405}, method


@pytest.mark.rule("VW-RES-01")
def test_a_right_is_asked_for_every_verb(world: World) -> None:
    """Who may only read is refused the rest, by the same RBAC as on any resource."""
    world.namespace("team-a")
    reader = world.as_user("reader", {})
    assert reader.ask("GET", ARTIFACTS)[0] == 403
    world.allow("reader", "modelartifacts", "list")
    assert reader.ask("GET", ARTIFACTS)[0] == 200
    assert reader.ask("GET", f"{ARTIFACTS}?watch=1")[0] == 403
    body = {
        "apiVersion": PUBLIC,
        "kind": "ModelArtifact",
        "metadata": {"name": "model"},
        "spec": artifact_spec(world),
    }
    assert reader.ask("POST", ARTIFACTS, body)[0] == 403
    assert reader.ask("DELETE", f"{ARTIFACTS}/model")[0] == 403
    assert world.api.list(oracle.API, "ModelArtifact") == []


@pytest.mark.rule("NS-OWN-09")
def test_a_node_store_can_be_read_and_deleted_and_nothing_else(world: World) -> None:
    """Reads and deletion are served; creating, updating and patching are no methods of it."""
    Warming(world).register("node-a")
    admin = world.as_user("", {})
    path = f"{ROOT}/nodemodelstores"
    body = admin.read(f"{path}/node-a")
    assert body["apiVersion"] == PUBLIC
    assert len(admin.read(path)["items"]) == 1
    changed = {**body, "spec": {**body["spec"], "pinned": ["sha256:" + "ab" * 32]}}
    assert admin.ask("PUT", f"{path}/node-a", changed)[0] == 405
    code, _ = admin.ask("PATCH", f"{path}/node-a", {"spec": {}}, content_type=MERGE)
    assert code == 405
    assert admin.ask("POST", path, {**body, "metadata": {"name": "node-z"}})[0] == 405
    assert admin.ask("DELETE", path)[0] == 405
    assert world.nodes["node-a"].store()["spec"] == body["spec"]
    uid = body["metadata"]["uid"]
    assert admin.ask("DELETE", f"{path}/node-a")[0] == 200
    world.until(
        lambda: world.nodes["node-a"].store().get("metadata", {}).get("uid", uid) != uid,
        "the worker made another one",
        within_seconds=60,
    )


@pytest.mark.rule("VW-RES-02")
def test_the_table_of_artifacts(world: World) -> None:
    """Seven columns and a wide Age; the revision is cut to 12 characters."""
    artifact = world.artifact()
    table = world.as_user("", {}).table(ARTIFACTS)
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [
        ("Name", 0), ("Source", 0), ("Revision", 0), ("Size", 0), ("Ready", 0),
        ("Downloading", 0), ("Resolved", 0), ("Age", 1),
    ]  # fmt: skip
    repository = world.usual_repository()
    name, source, revision, size, ready, downloading, resolved, _ = table["rows"][0]["cells"]
    assert (name, ready, downloading, resolved) == (artifact.name, 0, 0, "True")
    assert repository.name in source
    assert revision == repository.commit[:12]
    total = sum(len(file.content) for file in repository.tree.files)
    assert size in {str(total), f"{total * 10 // 1024 / 10} KiB"}


@pytest.mark.rule("VW-RES-02")
def test_the_table_of_node_stores(world: World) -> None:
    """Five columns and a wide Age, with counts of what the node lists."""
    warming = Warming(world)
    warming.register("node-a")
    models = [
        {"digest": "sha256:" + f"{number:064x}", "state": state, "sizeBytes": 10}
        for number, state in enumerate(("Ready", "Ready", "Downloading"))
    ]
    warming.report("node-a", *models)
    table = world.as_user("", {}).table(f"{ROOT}/nodemodelstores")
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [
        ("Name", 0), ("Ready", 0), ("Used", 0), ("Models", 0), ("Downloading", 0), ("Age", 1),
    ]  # fmt: skip
    cells = table["rows"][0]["cells"]
    assert cells[0] == "node-a"
    assert cells[2] in {0, "0", "0%"}
    assert cells[4] == 1
