"""OpenAPI of the public versions: what it says, and when it is made anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpustack_delivery.errors import ApiFault, Unreachable
from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.ports import Errand
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.worker.public_api.documents import documents
from gpustack_delivery.worker.public_api.openapi import STORED_PATH, OpenApi
from gpustack_delivery.worker.public_api.statuses import Refused
from gpustack_delivery.worker.public_api.swagger import swagger

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
STORED = "/apis/worker.gpustack.ai/v1alpha1"
PUBLIC = "/apis/worker.gpustack.ai/v1"
SETTINGS = "/apis/gpustack.ai/v1/namespaces/{namespace}/settings"
GROUP_KEY, SETTINGS_KEY = "apis/worker.gpustack.ai/v1", "apis/gpustack.ai/v1"
MEDIA = (
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
    "application/strategic-merge-patch+json",
)


def reference(name: str) -> Json:
    """Return a reference as version 3 writes it."""
    return {"$ref": f"#/components/schemas/{name}"}


def operation(action: str, kind: str) -> Json:
    """Return an operation as an API server describes it."""
    schema = {"schema": reference(f"ai.gpustack.worker.v1alpha1.{kind}")}
    found: Json = {
        "description": f"{action} {kind}",
        "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
        "responses": {
            "200": {
                "description": "OK",
                "content": dict.fromkeys(("application/json", "application/cbor"), schema),
            }
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": "worker.gpustack.ai",
            "version": "v1alpha1",
            "kind": kind,
        },
    }
    if action in {"post", "put", "patch"}:
        found["requestBody"] = {"content": dict.fromkeys(MEDIA, schema), "required": True}
    return found


def paths(plural: str, kind: str, *, namespaced: bool = True) -> Json:
    """Return the paths of one stored kind."""
    within = f"{STORED}/namespaces/{{namespace}}" if namespaced else STORED
    place = [{"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}}]
    collection = {"get": "list", "post": "post", "delete": "deletecollection"}
    one = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}

    def item(actions: dict[str, str]) -> Json:
        return {m: operation(a, kind) for m, a in actions.items()} | {"parameters": place}

    found = {
        f"{within}/{plural}": item(collection),
        f"{within}/{plural}/{{name}}": item(one),
        f"{within}/{plural}/{{name}}/status": item(one),
    }
    return found | ({f"{STORED}/{plural}": item({"get": "list"})} if namespaced else {})


def stored_document(note: str = "") -> Json:
    """Return what an API server might say of the stored version."""
    schemas: Json = {f"{META}{name}": {"type": "object"} for name in ("ObjectMeta", "ListMeta")}
    for kind in ("ModelArtifact", "NodeModelStore", "Instance"):
        name = f"ai.gpustack.worker.v1alpha1.{kind}"
        schemas[name] = {
            "type": "object",
            "description": note,
            "properties": {
                "metadata": {"allOf": [reference(f"{META}ObjectMeta")]},
                "free": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}},
                    "x-kubernetes-preserve-unknown-fields": True,
                },
                "maybe": {"type": "string", "nullable": True, "default": "x"},
            },
            "x-kubernetes-group-version-kind": [
                {"group": "worker.gpustack.ai", "version": "v1alpha1", "kind": kind}
            ],
        }
    return {
        "openapi": "3.0.0",
        "paths": {
            **paths("modelartifacts", "ModelArtifact"),
            **paths("nodemodelstores", "NodeModelStore", namespaced=False),
            **paths("instances", "Instance"),
        },
        "components": {"schemas": schemas},
    }


def references(value: Any, prefix: str) -> Iterator[str]:
    """Yield every name that a document refers to."""
    if isinstance(value, dict):
        for key, held in value.items():
            if key == "$ref":
                assert held.startswith(prefix)
                yield held.removeprefix(prefix)
            yield from references(held, prefix)
    elif isinstance(value, list):
        for held in value:
            yield from references(held, prefix)


def methods(document: Json) -> dict[str, set[str]]:
    """Return the methods of each path of a document."""
    return {path: set(item) - {"parameters"} for path, item in document["paths"].items()}


def test_paths_have_the_served_verbs_and_nothing_else() -> None:
    """No status, no deletecollection, no kind that is not served, and the limits of each kind."""
    made = documents(stored_document())
    artifacts = f"{PUBLIC}/namespaces/{{namespace}}/modelartifacts"
    assert methods(made[GROUP_KEY]) == {
        f"{PUBLIC}/modelartifacts": {"get"},
        artifacts: {"get", "post"},
        f"{artifacts}/{{name}}": {"get", "put", "patch", "delete"},
        f"{artifacts}/{{name}}/progress": {"get"},
        f"{PUBLIC}/nodemodelstores": {"get"},
        f"{PUBLIC}/nodemodelstores/{{name}}": {"get", "delete"},
    }
    assert methods(made[SETTINGS_KEY]) == {
        "/apis/gpustack.ai/v1/settings": {"get"},
        SETTINGS: {"get"},
        f"{SETTINGS}/{{name}}": {"get", "put", "patch"},
    }


def test_names_are_public_everywhere() -> None:
    """No schema, path or kind of a document speaks of the stored version."""
    for key, document in documents(stored_document()).items():
        text = json.dumps(document)
        assert "v1alpha1" not in text
        assert "Instance" not in text
        names = set(references(document, "#/components/schemas/"))
        assert names == set(document["components"]["schemas"])
        assert ("ModelArtifact" in text) == (key == GROUP_KEY)


def test_only_what_is_understood_is_offered() -> None:
    """Media types that this server does not read or write are left out of its documents."""
    made = documents(stored_document())
    patch = made[GROUP_KEY]["paths"][f"{PUBLIC}/namespaces/{{namespace}}/modelartifacts/{{name}}"]
    assert set(patch["patch"]["requestBody"]["content"]) == set(MEDIA[:4])
    assert set(patch["get"]["responses"]["200"]["content"]) == {"application/json"}
    setting = made[SETTINGS_KEY]["paths"][f"{SETTINGS}/{{name}}"]["patch"]
    assert set(setting["requestBody"]["content"]) == {MEDIA[0], MEDIA[1], MEDIA[3]}


def test_version_2_says_the_same_and_is_never_stricter() -> None:
    """Every reference leads somewhere; free and nullable fields lose what would refuse them."""
    document = swagger(documents(stored_document()).values())
    assert set(references(document, "#/definitions/")) == set(document["definitions"])
    artifact = document["definitions"]["ai.gpustack.worker.v1.ModelArtifact"]
    assert artifact["properties"] == {
        "metadata": {"$ref": f"#/definitions/{META}ObjectMeta"},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "maybe": {},
    }
    patch = document["paths"][f"{SETTINGS}/{{name}}"]["patch"]
    named, body = patch["parameters"]
    assert named == {"name": "dryRun", "in": "query", "type": "string"}
    assert body["in"] == "body"
    assert patch["consumes"] == sorted([MEDIA[0], MEDIA[1], MEDIA[3]])


class Told:
    """An answer of the API server."""

    def __init__(self, status: int, body: bytes, etag: str) -> None:
        self.status, self._body, self._etag = status, body, etag

    def header(self, name: str) -> str:
        """Return the ETag."""
        return self._etag if name == "Etag" else ""

    def read(self) -> bytes:
        """Return the body."""
        return self._body

    def lines(self) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""


class Front:
    """An API server that stores a version, and may fail."""

    def __init__(self) -> None:
        self.note, self.sent = "one", 0
        self.status = 200
        self.fault: ApiFault | None = None

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Told:
        """Answer for the stored document, and with 304 to who has it already."""
        assert (errand.method, errand.target) == ("GET", STORED_PATH)
        assert timeout_seconds <= 5
        if self.fault is not None:
            raise self.fault
        etag = f'"{self.note}"'
        if self.status == 200 and errand.headers.get("If-None-Match") == etag:
            return Told(304, b"", etag)
        self.sent += 1
        return Told(self.status, json.dumps(stored_document(self.note)).encode(), etag)


def ask(api: OpenApi, path: str, tag: str = "") -> tuple[int, str, Any]:
    """Return status, ETag and body of an answer."""
    headers = Headers([("If-None-Match", tag)] if tag else [])
    response = api.answer(Request("GET", path, path, "", headers, b""))
    body = response.body
    assert isinstance(body, bytes)
    return response.status, dict(response.headers)["Etag"], json.loads(body) if body else None


def test_the_index_leads_to_documents_by_their_hash() -> None:
    """Who has a document by its hash is sent it again only when the stored version changed."""
    front = Front()
    api = OpenApi(front)
    index = ask(api, "/openapi/v3")[2]["paths"]
    assert set(index) == {GROUP_KEY, SETTINGS_KEY}
    url = index[GROUP_KEY]["serverRelativeURL"]
    assert url.startswith(f"/openapi/v3/{GROUP_KEY}?hash=")
    path, _, digest = url.partition("?hash=")
    status, tag, document = ask(api, path)
    assert (status, tag) == (200, f'"{digest}"')
    assert "ai.gpustack.worker.v1.ModelArtifact" in document["components"]["schemas"]
    assert ask(api, path, tag) == (304, tag, None)
    assert front.sent == 1
    front.note = "two"
    status, changed, document = ask(api, path, tag)
    assert (status, changed != tag) == (200, True)
    assert (
        document["components"]["schemas"]["ai.gpustack.worker.v1.ModelArtifact"]["description"]
        == "two"
    )
    assert ask(api, "/openapi/v2")[2]["swagger"] == "2.0"


@pytest.mark.parametrize("fails", ["silent", "refused"])
def test_it_is_unavailable_while_the_api_server_does_not_say(fails: str) -> None:
    """A client is told to try again, and is answered when the API server is."""
    front = Front()
    api = OpenApi(front)
    if fails == "silent":
        front.fault = Unreachable("away")
    else:
        front.status = 403
    with pytest.raises(Refused) as refused:
        ask(api, "/openapi/v3")
    assert refused.value.code == 503
    front.fault, front.status = None, 200
    assert ask(api, "/openapi/v3")[0] == 200


def test_other_paths_are_not_there() -> None:
    """Nothing lies beside the documents."""
    for path in ("/openapi/", "/openapi/v3/apis/apps/v1", "/openapi/v4", "/openapi/v2/x"):
        with pytest.raises(Refused) as refused:
            ask(OpenApi(Front()), path)
        assert refused.value.code == 404
