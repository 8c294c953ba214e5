"""What a request is for: strict paths, verbs, rights and forms."""

from __future__ import annotations

import pytest

from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.worker.public_api.statuses import Refused
from gpustack_delivery.worker.public_api.targets import Form, form, parse

ROOT = "/apis/worker.gpustack.ai/v1"
ARTIFACTS = f"{ROOT}/namespaces/team-a/modelartifacts"


def asked(method: str, path: str, query: str = "") -> Request:
    """Return a request."""
    return Request(method, path, path, query, Headers())


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", ARTIFACTS, "", "list"),
        ("GET", f"{ROOT}/modelartifacts", "", "list"),
        ("GET", ARTIFACTS, "watch=true", "watch"),
        ("GET", ARTIFACTS, "watch=", "watch"),
        ("GET", ARTIFACTS, "watch=no", "watch"),
        ("GET", ARTIFACTS, "watch=False", "list"),
        ("GET", ARTIFACTS, "watch=0&watch=1", "list"),
        ("GET", f"{ARTIFACTS}/m", "watch=1", "get"),
        ("POST", ARTIFACTS, "", "create"),
        ("PUT", f"{ARTIFACTS}/m", "", "update"),
        ("PATCH", f"{ARTIFACTS}/m", "", "patch"),
        ("DELETE", f"{ARTIFACTS}/m", "", "delete"),
        ("GET", f"{ARTIFACTS}/m/progress", "", "get"),
        ("GET", f"{ROOT}/nodemodelstores/node-a", "", "get"),
    ],
)
def test_reads_the_verb(method: str, path: str, query: str, verb: str) -> None:
    """The verb is what RBAC calls it, and a watch is one whenever the API server thinks so."""
    target = parse(asked(method, path, query))
    assert target.verb == verb
    assert target.action.verb == verb
    assert ("watch=true" in target.query_without()) == (verb == "watch")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", f"{ARTIFACTS}/..", 404),
        ("GET", f"{ARTIFACTS}/%2e%2e", 404),
        ("GET", f"{ARTIFACTS}/a%2Fb", 404),
        ("GET", f"{ROOT}/namespaces/..%2Fteam/modelartifacts", 404),
        ("GET", f"{ARTIFACTS}/m/status", 404),
        ("GET", f"{ROOT}/nodemodelstores/a/progress", 404),
        ("GET", f"{ROOT}/namespaces/team-a/nodemodelstores", 404),
        ("GET", f"{ROOT}/modelartifacts/m", 404),
        ("POST", f"{ROOT}/modelartifacts", 404),
        ("GET", f"{ROOT}/secrets", 404),
        ("GET", "/apis/worker.gpustack.ai/v1alpha1/modelartifacts", 404),
        ("GET", "/apis/gpustack.ai/v1/modelartifacts", 404),
        ("GET", "/apis", 404),
        ("DELETE", ARTIFACTS, 405),
        ("HEAD", ARTIFACTS, 405),
        ("PUT", f"{ARTIFACTS}/m/progress", 405),
        ("PUT", f"{ROOT}/nodemodelstores/a", 405),
        ("POST", f"{ROOT}/nodemodelstores", 405),
    ],
)
def test_refuses_what_is_not_served(method: str, path: str, code: int) -> None:
    """No path climbs, and no verb passes that a resource does not have."""
    with pytest.raises(Refused) as refused:
        parse(asked(method, path))
    assert refused.value.code == code


def test_a_selected_name_counts_for_the_right() -> None:
    """As in the API server, a list of one name is allowed by a rule that names it."""
    target = parse(asked("GET", ARTIFACTS, "fieldSelector=metadata.name%3Dm&limit=5"))
    assert (target.action.name, target.action.namespace) == ("m", "team-a")
    assert target.query_without("limit") == "fieldSelector=metadata.name%3Dm"
    other = parse(asked("GET", ARTIFACTS, "fieldSelector=metadata.name%21%3Dm"))
    assert other.action.name == ""


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Form.WHOLE),
        ("*/*", Form.WHOLE),
        ("application/vnd.kubernetes.protobuf, application/json", Form.WHOLE),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form.TABLE),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form.WHOLE),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Form.METADATA),
    ],
)
def test_chooses_the_first_form_it_knows(accept: str, expected: Form) -> None:
    """A form that is not served is passed over for the next one."""
    assert form(accept) is expected


def test_refuses_forms_it_does_not_know() -> None:
    """Protobuf alone is not served."""
    with pytest.raises(Refused) as refused:
        form("application/vnd.kubernetes.protobuf")
    assert refused.value.code == 406
