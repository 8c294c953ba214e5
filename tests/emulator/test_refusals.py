"""What is not emulated answers an error that names itself, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.access_rig import SecuredSession, certificate, secured
from tests.emulator.replay import Json, exchanges

PODS = "/api/v1/namespaces/t1/pods"
POD = f"{PODS}/p"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_LATER = frozenset(  # a server of an older version has not got them either, and says the usual 404
    ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "volumeattributesclasses")
)


def _recorded() -> list[tuple[str, str]]:
    """Return each resource and subresource of the recorded server, as API path and name."""
    found = []
    for exchange in exchanges("01-discovery"):
        body = exchange.get("response", {}).get("body")
        if isinstance(body, dict) and body.get("kind") == "APIResourceList":
            version = body["groupVersion"]
            if "rig.example.io" not in version:
                root = f"/apis/{version}" if "/" in version else f"/api/{version}"
                found += [(root, resource["name"]) for resource in body["resources"]]
    return sorted(set(found))


@pytest.fixture(scope="module")
def opened() -> Iterator[SecuredSession]:
    """A server with a Pod."""
    with secured() as session:
        body = {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        session.make("POST", PODS, body)
        yield session


def _ask(
    opened: SecuredSession, method: str, path: str, body: Any = None, content_type: str = ""
) -> tuple[int, Json]:
    headers = certificate("kubernetes-admin", "system:masters")
    if content_type:
        headers["Content-Type"] = content_type
    response = opened.send(method, path, body, headers)
    assert isinstance(response.body, bytes)
    found: Any = json.loads(response.body) if response.body.startswith(b"{") else {}
    return response.status, found


def _served(opened: SecuredSession, root: str, plural: str) -> bool:
    status, found = _ask(opened, "GET", root)
    return status == 200 and plural in {one["name"] for one in found["resources"]}


@pytest.mark.parametrize(("root", "name"), _recorded())
def test_what_a_real_server_serves_is_served_or_refused_by_name(
    opened: SecuredSession, root: str, name: str
) -> None:
    """Each resource and subresource of the recorded server is in discovery, or answers 501."""
    plural, _, subresource = name.partition("/")
    if plural in _LATER or _served(opened, root, name):
        return
    place = root if plural in {"nodes", "componentstatuses"} else f"{root}/namespaces/t1"
    path = f"{place}/{plural}/any" + (f"/{subresource}" if subresource else "")
    for method in METHODS:
        status, found = _ask(opened, method, path)
        assert (status, found["reason"]) == (501, "NotImplemented"), (method, path, found)
        missing = name if _served(opened, root, plural) else plural
        assert f"does not implement {missing}" in found["message"]


@pytest.mark.parametrize(
    "subresource", ["exec", "attach", "portforward", "log", "binding", "token"]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_subresource_is_never_taken_for_its_object(
    opened: SecuredSession, method: str, subresource: str
) -> None:
    """Whatever is asked of a subresource that cannot do it, the Pod stays as it is."""
    before = _ask(opened, "GET", POD)[1]
    status, found = _ask(opened, method, f"{POD}/{subresource}")
    assert status in {400, 404, 405, 501}, found
    assert _ask(opened, "GET", POD)[1] == before


@pytest.mark.parametrize(
    ("posted", "body"),
    [
        ("binding", {"target": {"kind": "Node", "name": "node-a"}}),
        ("eviction", {"metadata": {"name": "p", "namespace": "t1"}}),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}}),
    ],
)
def test_a_dry_run_binds_and_evicts_nothing(
    opened: SecuredSession, posted: str, body: Json
) -> None:
    """What is POSTed to a Pod is judged, and nothing is stored."""
    before = _ask(opened, "GET", POD)[1]
    query = "" if "deleteOptions" in body else "?dryRun=All"
    assert _ask(opened, "POST", f"{POD}/{posted}{query}", body)[0] == 201
    assert _ask(opened, "GET", POD)[1] == before


def test_an_eviction_keeps_to_its_preconditions(opened: SecuredSession) -> None:
    """A Pod of another uid under the same name is not the one that was meant."""
    before = _ask(opened, "GET", POD)[1]
    options = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    body = {"metadata": {"name": "p"}, "deleteOptions": options}
    status, found = _ask(opened, "POST", f"{POD}/eviction", body)
    assert (status, found["reason"]) == (409, "Conflict")
    assert _ask(opened, "GET", POD)[1] == before


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"propagationPolicy": "Sideways"}, 422),
        ({"gracePeriodSeconds": "soon"}, 400),
        ({"dryRun": ["Some"]}, 422),
    ],
)
def test_delete_options_that_cannot_be_followed(
    opened: SecuredSession, options: Json, status: int
) -> None:
    """Nothing is deleted under options that contradict themselves or mean nothing."""
    assert _ask(opened, "DELETE", POD, options)[0] == status
    assert _ask(opened, "GET", POD)[0] == 200


@pytest.mark.parametrize("content_type", ["application/cbor", "text/plain", "multipart/form-data"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_body_in_a_form_that_is_not_read(
    opened: SecuredSession, method: str, content_type: str
) -> None:
    """415 names the forms that are."""
    path = PODS if method == "POST" else POD
    status, found = _ask(opened, method, path, {"metadata": {"name": "p"}}, content_type)
    assert (status, found["reason"]) == (415, "UnsupportedMediaType")
    assert "accepted media types include: application/" in found["message"]


def test_a_watch_of_one_object_by_its_path(opened: SecuredSession) -> None:
    """The old form of a watch tells of the object that its path names, and of no other."""
    other = {"metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    opened.make("POST", PODS, other)
    headers = certificate("kubernetes-admin", "system:masters")
    path = "/api/v1/watch/namespaces/t1/pods/p?timeoutSeconds=1&resourceVersion=0"
    response = opened.send("GET", path, headers=headers)
    body: Any = response.body
    patch = {"metadata": {"labels": {"a": "b"}}}
    for name in ("q", "p"):
        opened.make("PATCH", f"{PODS}/{name}", patch, "application/merge-patch+json")
    seen = json.loads(next(body))
    while seen["type"] == "ADDED":
        assert seen["object"]["metadata"]["name"] == "p"
        seen = json.loads(next(body))
    assert seen["object"]["metadata"]["name"] == "p"
    body.close()


@pytest.mark.parametrize("path", ["/metrics", "/logs", "/debug/pprof/heap"])
def test_paths_beside_the_api(opened: SecuredSession, path: str) -> None:
    """What a real server has beside its API, and this one has not, is refused by name."""
    status, found = _ask(opened, "GET", path)
    assert status == 501
    assert f"does not implement /{path.split('/')[1]}" in found["message"]
