"""ValidatingAdmissionPolicies beyond their recording: actions, bindings, failures, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.access_rig import SecuredSession, certificate, secured
from tests.emulator.replay import Json

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/t1/configmaps"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}


@pytest.fixture
def opened() -> Iterator[SecuredSession]:
    """Return a session without policies."""
    with secured() as session:
        yield session


def _policy(*validations: Json, **spec: Any) -> Json:
    constraints = {"resourceRules": [RULE]}
    content = {"matchConstraints": constraints, "validations": list(validations)} | spec
    return {"metadata": {"name": "rule"}, "spec": content}


def _bind(opened: SecuredSession, *actions: str, **spec: Any) -> None:
    content = {"policyName": "rule", "validationActions": list(actions), **spec}
    document = {"metadata": {"name": "bound"}, "spec": content}
    opened.make("POST", f"{GROUP}/validatingadmissionpolicybindings", document)


def _create(opened: SecuredSession, **data: str) -> tuple[int, Json, list[str]]:
    """Create a ConfigMap; return status, body and warnings."""
    document = {"metadata": {"generateName": "m-"}, "data": data}
    response = opened.send("POST", MAPS, document, certificate("admin", "system:masters"))
    assert isinstance(response.body, bytes)
    warnings = [value for name, value in response.headers if name == "Warning"]
    return response.status, json.loads(response.body), warnings


def _write_policy(opened: SecuredSession, document: Json) -> tuple[int, str]:
    path = f"{GROUP}/validatingadmissionpolicies"
    response = opened.send("POST", path, document, certificate("admin", "system:masters"))
    assert isinstance(response.body, bytes)
    return response.status, json.loads(response.body).get("message", "")


def test_a_policy_without_a_binding_denies_nothing(opened: SecuredSession) -> None:
    """Only a binding makes a policy count, and it counts for what both select."""
    assert _write_policy(opened, _policy({"expression": "false"}))[0] == 201
    assert _create(opened)[0] == 201
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "t2"}}
    _bind(opened, "Deny", matchResources={"namespaceSelector": selector})
    assert _create(opened)[0] == 201
    path = f"{GROUP}/validatingadmissionpolicybindings/bound"
    opened.make("DELETE", path)
    _bind(opened, "Deny")
    status, body, _ = _create(opened)
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"].endswith(
        "ValidatingAdmissionPolicy 'rule' with binding 'bound' denied request: "
        "failed expression: false"
    )


def test_a_warning_lets_the_write_through(opened: SecuredSession) -> None:
    """The action Warn puts the message into a header."""
    validation = {"expression": "!has(object.data) || !('k' in object.data)", "message": "no k"}
    assert _write_policy(opened, _policy(validation))[0] == 201
    _bind(opened, "Warn", "Audit")
    status, _, warnings = _create(opened, k="v")
    assert status == 201
    text = "Validation failed for ValidatingAdmissionPolicy 'rule' with binding 'bound': no k"
    assert warnings == [f'299 - "{text}"']
    assert _create(opened, other="v")[2] == []


def test_an_expression_that_fails_denies_or_is_ignored(opened: SecuredSession) -> None:
    """failurePolicy decides what an evaluation error means."""
    validation = {"expression": "object.data['k'] == 'v'"}
    assert _write_policy(opened, _policy(validation, failurePolicy="Fail"))[0] == 201
    _bind(opened, "Deny")
    assert _create(opened, k="v")[0] == 201
    status, body, _ = _create(opened, other="v")
    assert status == 422
    assert "resulted in error" in body["message"]
    path = f"{GROUP}/validatingadmissionpolicies/rule"
    patch = {"spec": {"failurePolicy": "Ignore"}}
    opened.make("PATCH", path, patch, "application/merge-patch+json")
    assert _create(opened, other="v")[0] == 201


def test_conditions_and_the_namespace_are_seen(opened: SecuredSession) -> None:
    """matchConditions leave requests out; namespaceObject is the namespace."""
    validation = {"expression": "namespaceObject.metadata.name != 't1'", "reason": "Forbidden"}
    condition = {"name": "not-admin", "expression": "request.userInfo.username != 'admin'"}
    assert _write_policy(opened, _policy(validation, matchConditions=[condition]))[0] == 201
    _bind(opened, "Deny")
    assert _create(opened)[0] == 201
    response = opened.send(
        "POST", MAPS, {"metadata": {"name": "x"}}, certificate("root", "system:masters")
    )
    assert response.status == 403


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, 501, "spec.paramKind"),
        ({"auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]}, 501, "auditAnnotations"),
        (
            {"matchConstraints": {"resourceRules": [RULE], "excludeResourceRules": [RULE]}},
            501,
            "excludeResourceRules",
        ),
        ({"validations": [{"expression": "object.("}]}, 422, "spec.validations[0].expression"),
        (
            {"validations": [{"expression": "authorizer.group('')"}]},
            422,
            "undeclared reference to 'authorizer'",
        ),
        ({"variables": [{"name": "v", "expression": "1 +"}]}, 422, "spec.variables[0].expression"),
    ],
)
def test_what_is_not_evaluated_is_refused(
    opened: SecuredSession, spec: Json, status: int, message: str
) -> None:
    """A policy that would not be judged as on a real server is never stored."""
    code, text = _write_policy(opened, _policy({"expression": "true"}, **spec))
    assert code == status
    assert message in text
