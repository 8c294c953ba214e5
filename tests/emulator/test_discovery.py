"""Discovery and OpenAPI, held against what a real server says of the resources that both serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from emulator.discovery.lists import version_rank
from gpustack_delivery.httpd import Response
from tests.emulator.access_rig import ADMIN, SecuredSession, secured
from tests.emulator.replay import Json, exchanges
from tests.emulator.rig import DEFINITIONS, definition

RECORDED = {exchange["name"]: exchange for exchange in exchanges("01-discovery")}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
LISTS = [
    name
    for name, exchange in RECORDED.items()
    if isinstance(exchange.get("response", {}).get("body"), dict)
    and exchange["response"]["body"].get("kind") == "APIResourceList"
]
NOT_THERE = [name for name, one in RECORDED.items() if one.get("response", {}).get("status") == 404]
# Newer parameters that change nothing here, and no client of ours sends.
UNKNOWN_PARAMETERS = frozenset(
    {
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "orphanDependents",
        "pretty",
        "shardSelector",
    }
)


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[SecuredSession]:
    """A server that serves the recordings' CRD."""
    with secured() as opened:
        yield opened


def get(server: SecuredSession, path: str, **headers: str) -> Response:
    """Send a GET as the administrator; _ stands for - in header names."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.send("GET", path, None, {**ADMIN, **sent})


def body(response: Response) -> Any:
    """Return the JSON of an answer."""
    assert isinstance(response.body, bytes)
    return json.loads(response.body)


def header(response: Response, name: str) -> str:
    """Return a header of an answer."""
    return dict(response.headers)[name]


def recorded(name: str) -> Json:
    """Return a recorded body."""
    found: Json = RECORDED[name]["response"]["body"]
    return found


@pytest.mark.parametrize("name", LISTS)
def test_resource_lists(server: SecuredSession, name: str) -> None:
    """Every resource that is served stands in its list exactly as on a real server."""
    listed = body(get(server, RECORDED[name]["request"]["path"]))
    real = {resource["name"]: resource for resource in recorded(name)["resources"]}
    ours = {resource["name"]: resource for resource in listed["resources"]}
    assert {key: listed[key] for key in listed if key != "resources"} == {
        key: value for key, value in recorded(name).items() if key != "resources"
    }
    assert ours == {key: real.get(key) for key in ours}
    assert list(ours) == [key for key in real if key in ours]


def test_groups(server: SecuredSession) -> None:
    """Groups come in the server's order, each with its versions."""
    ours = body(get(server, "/apis"))["groups"]
    real = recorded("legacy discovery /apis (groups)")["groups"]
    names = [group["name"] for group in ours]
    assert ours[:-1] == [_served(group, ours) for group in real if group["name"] in names]
    assert ours[-1] == {key: value for key, value in recorded("group").items() if key in ours[-1]}
    assert body(get(server, "/apis/rig.example.io")) == recorded("group")
    assert body(get(server, "/api")) == recorded("legacy discovery /api")


def _served(group: Json, ours: list[Json]) -> Json:
    """Return a recorded group without the versions that are not served here."""
    wanted = next(one for one in ours if one["name"] == group["name"])["versions"]
    versions = [version for version in group["versions"] if version in wanted]
    return {**group, "versions": versions, "preferredVersion": versions[0]}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("aggregated discovery /apis (trimmed to two groups)", "/apis"),
        ("aggregated discovery /api", "/api"),
    ],
)
def test_aggregated_discovery(server: SecuredSession, name: str, path: str) -> None:
    """Aggregated discovery says the same of every resource that is served."""
    response = get(server, path, Accept=f"{AGGREGATED.format('v2')},application/json")
    assert header(response, "Content-Type") == AGGREGATED.format("v2")
    assert header(response, "Vary") == "Accept"
    found = body(response)
    assert (found["kind"], found["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    real, ours = _discovered(recorded(name)), _discovered(found)
    shared = [key for key in ours if key[0] in {group for group, _ in real}]
    assert shared
    for key in shared:
        assert ours[key] == _with_subresources_of(real[key], ours[key])


def _with_subresources_of(real: Json, ours: Json) -> Json:
    """Return a recorded resource without the subresources that are not served here."""
    names = [part["subresource"] for part in ours.get("subresources", ())]
    kept = [part for part in real.get("subresources", ()) if part["subresource"] in names]
    rest = {key: value for key, value in real.items() if key != "subresources"}
    return {**rest, "subresources": kept} if kept else rest


def _discovered(document: Json) -> dict[tuple[str, str], Json]:
    """Return every resource by group and name."""
    found = {}
    for group in document["items"]:
        for version in group["versions"]:
            for resource in version["resources"]:
                key = (group["metadata"].get("name", ""), resource["resource"])
                found[key] = resource
    return found


def test_discovery_is_cached_by_its_tag() -> None:
    """An unchanged discovery is 304; a new CRD changes the tag."""
    accept = AGGREGATED.format("v2")
    with secured() as opened:  # of its own: a definition goes some time after it was deleted
        tag = header(get(opened, "/apis", Accept=accept), "Etag")
        again = get(opened, "/apis", Accept=accept, If_None_Match=tag)
        assert (again.status, again.body) == (304, b"")
        opened.make("POST", DEFINITIONS, definition("gadgets", "Gadget"))
        assert get(opened, "/apis", Accept=accept, If_None_Match=tag).status == 200


def test_older_clients_get_the_form_they_ask_for(server: SecuredSession) -> None:
    """The beta form is served to who asks for it first, the plain one to everyone else."""
    beta = AGGREGATED.format("v2beta1")
    assert body(get(server, "/apis", Accept=beta))["apiVersion"] == "apidiscovery.k8s.io/v2beta1"
    plain = get(server, "/apis", Accept=f"application/json,{beta}")
    assert body(plain)["kind"] == "APIGroupList"


def test_versions_are_ordered_by_how_stable_they_are() -> None:
    """Stable versions come first, then beta, then alpha, newer before older, then other names."""
    ordered = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "foo1", "foo10"]
    mixed = ordered[::-1]
    assert sorted(mixed, key=version_rank) == ordered


@pytest.mark.parametrize("name", NOT_THERE)
def test_what_is_not_there(server: SecuredSession, name: str) -> None:
    """Paths, groups and versions that are not served are 404 in plain text."""
    path = RECORDED[name]["request"]["path"].replace("rig.example.io", "gone.example.io")
    response = get(server, path)
    assert response.status == 404
    assert response.body == b"404 page not found\n"


def test_version_and_health(server: SecuredSession) -> None:
    """Version and health are for everyone, the rest is not."""
    ours = body(server.send("GET", "/version"))
    unlike = {"gitCommit"}
    for name in ("version", "version anonymous"):
        assert {k: v for k, v in ours.items() if k not in unlike} == {
            key: value for key, value in recorded(name).items() if key not in unlike
        }
    for path in ("/healthz", "/livez", "/readyz"):
        assert server.send("GET", path).body == b"ok"
    assert get(server, "/readyz/ping").body == b"ok"
    assert get(server, "/readyz/nonsense").status == 404
    assert server.send("GET", "/api").status == 403


def test_openapi_of_a_custom_resource(server: SecuredSession) -> None:
    """The document of a CRD has the recorded paths, operations and schema."""
    index = body(get(server, "/openapi/v3"))
    url = index["paths"]["apis/rig.example.io/v1"]["serverRelativeURL"]
    response = get(server, url)
    assert url.endswith(f"?hash={header(response, 'Etag').strip(chr(34))}")
    document, real = body(response), recorded("openapi v3 of the CRD group")
    ours = {
        path: {
            method: {
                "action": operation["x-kubernetes-action"],
                "parameters": sorted(one["name"] for one in operation["parameters"]),
                "body": sorted(operation.get("requestBody", {}).get("content", {})),
            }
            for method, operation in item.items()
            if isinstance(operation, dict)
        }
        for path, item in document["paths"].items()
    }
    assert ours == {path: _known(item, path) for path, item in real["paths"].items()}
    widget = _undescribed(document["components"]["schemas"]["io.example.rig.v1.Widget"])
    wanted = {k: v for k, v in real["widget"].items() if k != "x-kubernetes-selectable-fields"}
    assert widget == wanted


def _known(item: Json, path: str) -> Json:
    everywhere = path.endswith("/v1/widgets")  # its parameters stand beside the operation there
    known = {}
    for method, operation in item.items():
        names = set(operation["parameters"]) - UNKNOWN_PARAMETERS
        listed = item_parameters() if everywhere else sorted(names)
        body_types = [] if method == "delete" else operation["body"]
        known[method] = {**operation, "parameters": listed, "body": body_types}
    return known


def item_parameters() -> list[str]:
    """Return the parameters of a list."""
    real = recorded("openapi v3 of the CRD group")["paths"]
    path = "/apis/rig.example.io/v1/namespaces/{namespace}/widgets"
    return sorted(set(real[path]["get"]["parameters"]) - UNKNOWN_PARAMETERS)


def _undescribed(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: _undescribed(v) for k, v in schema.items() if k != "description"}
    if isinstance(schema, list):
        return [_undescribed(item) for item in schema]
    return schema


def test_openapi_documents_refer_to_nothing_missing(server: SecuredSession) -> None:
    """Every reference of every document leads to a schema in the same document."""
    for entry in body(get(server, "/openapi/v3"))["paths"].values():
        response = get(server, entry["serverRelativeURL"])
        assert isinstance(response.body, bytes)
        schemas = body(response)["components"]["schemas"]
        text = response.body.decode()
        referred = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
        assert referred <= schemas.keys()


def test_openapi_says_how_lists_merge(server: SecuredSession) -> None:
    """Merge keys stand where clients compute patches from: containers by name, ports by number."""
    schemas = body(get(server, "/openapi/v3/api/v1"))["components"]["schemas"]
    containers = schemas["io.k8s.api.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    ports = schemas["io.k8s.api.v1.Container"]["properties"]["ports"]
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    tolerations = schemas["io.k8s.api.v1.PodSpec"]["properties"]["tolerations"]
    assert tolerations["x-kubernetes-list-type"] == "atomic"


def test_openapi_v2(server: SecuredSession) -> None:
    """The older document is there as JSON with definitions, and as protobuf for those who ask."""
    swagger = body(get(server, "/openapi/v2"))
    assert swagger["swagger"] == "2.0"
    assert "io.example.rig.v1.Widget" in swagger["definitions"]
    media_type = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    response = get(server, "/openapi/v2", Accept=media_type)
    assert header(response, "Content-Type") == media_type
    assert isinstance(response.body, bytes)
    assert response.body.startswith(b"\x0a\x032.0")


def test_the_root_lists_paths(server: SecuredSession) -> None:
    """The root names every group, version and endpoint."""
    paths = body(get(server, "/"))["paths"]
    assert {"/api/v1", "/apis/apps/v1", "/apis/rig.example.io", "/readyz", "/version"} <= set(paths)
    assert paths == sorted(paths)
