"""OpenAPI of servers behind the emulated one: listed, passed on, and merged into version 2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpustack_delivery.httpd import Request, Response
from tests.emulator.access_rig import certificate
from tests.emulator.aggregation_rig import ROOT, SERVICES, AggregatedSession, aggregated, answered
from tests.emulator.replay import Json

KEY = "apis/agg.example.io/v1"
ENTRY = {"serverRelativeURL": f"/openapi/v3/{KEY}?hash=AB"}
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
GIZMO = "io.example.agg.v1.Gizmo"
SWAGGER: Json = {
    "swagger": "2.0",
    "paths": {
        f"{ROOT}/gizmos": {"get": {"schema": {"$ref": f"#/definitions/{GIZMO}"}}},
        "/apis/other.example.io/v1/things": {"get": {"$ref": "#/definitions/Thing"}},
    },
    "definitions": {
        GIZMO: {"properties": {"metadata": {"$ref": f"#/definitions/{META}"}}},
        META: {"type": "object", "description": "not as the front knows it"},
        "Thing": {"type": "object"},
    },
}


class Speaker:
    """Answers for OpenAPI as an aggregated server would; `down` fails it."""

    def __init__(self) -> None:
        self.down = False
        self.asked: list[tuple[str, str]] = []

    def __call__(self, request: Request) -> Response | None:
        """Answer a request for OpenAPI."""
        if not request.path.startswith("/openapi"):
            return None
        self.asked.append((request.path, request.headers.get("X-Remote-User") or ""))
        if self.down:
            return answered(500, {})
        answers: dict[str, Any] = {
            "/openapi/v3": {"paths": {KEY: ENTRY, "apis/other.example.io/v1": ENTRY}},
            f"/openapi/v3/{KEY}": {"openapi": "3.0.0"},
            "/openapi/v2": SWAGGER,
        }
        return answered(200, answers[request.path])


@pytest.fixture
def opened() -> Iterator[AggregatedSession]:
    """Return a session with a backend that an APIService names."""
    with aggregated() as session:
        port = {"port": session.backend.server.port, "protocol": "TCP", "name": "https"}
        service = {"metadata": {"name": "agg"}, "spec": {"ports": [port]}}
        session.make("POST", "/api/v1/namespaces/default/services", service)
        session.webhooks.routes["default", "agg"] = ("127.0.0.1", session.backend.server.port)
        session.make("POST", SERVICES, session.service())
        session.rest()
        yield session


def get(opened: AggregatedSession, path: str, status: int = 200) -> Any:
    """Return what an admin is answered."""
    headers = certificate("admin", "system:masters") | {"Accept": "application/json"}
    response = opened.send("GET", path, headers=headers)
    assert response.status == status
    body = response.body
    assert isinstance(body, bytes)
    return json.loads(body) if status == 200 else body


def test_the_index_has_the_other_servers_entry_and_the_document_is_passed_on(
    opened: AggregatedSession,
) -> None:
    """Nothing but its own group version is believed, and it is asked as who asked."""
    opened.backend.answer = speaker = Speaker()
    paths = get(opened, "/openapi/v3")["paths"]
    assert paths[KEY] == ENTRY
    assert "apis/other.example.io/v1" not in paths
    assert "api/v1" in paths
    assert get(opened, f"/openapi/v3/{KEY}?hash=AB") == {"openapi": "3.0.0"}
    assert speaker.asked == [
        ("/openapi/v3", "system:aggregator"),
        (f"/openapi/v3/{KEY}", "admin"),
    ]


def test_version_2_is_merged_and_a_definition_that_differs_is_renamed(
    opened: AggregatedSession,
) -> None:
    """The other server's paths come with what they refer to, and nobody's definition is lost."""
    opened.backend.answer = Speaker()
    before = get(opened, "/openapi/v2")["definitions"][META]
    merged = get(opened, "/openapi/v2")
    assert list(merged["paths"]) == [f"{ROOT}/gizmos"]
    definitions = merged["definitions"]
    assert "Thing" not in definitions
    renamed = definitions[GIZMO]["properties"]["metadata"]["$ref"]
    assert renamed == f"#/definitions/{META}_v2"
    assert definitions[f"{META}_v2"] == SWAGGER["definitions"][META]
    assert definitions[META] == before != definitions[f"{META}_v2"]


def test_a_server_without_openapi_is_not_listed(opened: AggregatedSession) -> None:
    """It is served all the same, and asking for its document is its own 404."""
    assert KEY not in get(opened, "/openapi/v3")["paths"]
    assert get(opened, "/openapi/v2")["paths"] == {}
    get(opened, f"/openapi/v3/{KEY}", 404)
    assert get(opened, f"{ROOT}/gizmos")["kind"] == "GizmoList"


def test_a_server_that_fails_stays_as_it_was_heard_last(opened: AggregatedSession) -> None:
    """Neither document loses it before its APIService is gone."""
    opened.backend.answer = speaker = Speaker()
    known = get(opened, "/openapi/v3"), get(opened, "/openapi/v2")
    speaker.down = True
    assert (get(opened, "/openapi/v3"), get(opened, "/openapi/v2")) == known
    headers = certificate("admin", "system:masters")
    opened.send("DELETE", f"{SERVICES}/v1.agg.example.io", headers=headers)
    opened.rest()
    assert KEY not in get(opened, "/openapi/v3")["paths"]
