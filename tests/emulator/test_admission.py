"""Admission webhooks over real HTTPS: what they are sent, and what their answers do."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from emulator.admission.matching import selects
from emulator.contracts import Caller, Json, Target, WriteOptions
from emulator.errors import ApiError
from gpustack_delivery.httpd import Response
from gpustack_delivery.httpd.certificates import Authority
from tests.emulator.hooked_api import NAME, Hook, Rig, config_map, hooked_api


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    """An API with a webhook server."""
    with hooked_api() as made:
        yield made


def test_what_a_webhook_is_sent(rig: Rig) -> None:
    """The request names the write, its writer and both states, in the server's own form."""
    rig.configure()
    caller = Caller("bob", ("dev",), extra={"scopes": ("a",)})
    rig.create(caller=caller)
    request = rig.hook.requests[0]
    assert request.target == "/check?timeout=5s"
    assert request.headers.get("User-Agent") == "kube-apiserver-admission"
    assert request.headers.get("Accept") == "application/json, */*"
    review = json.loads(request.body)
    assert list(review) == ["kind", "apiVersion", "request"]
    sent = review["request"]
    assert list(sent) == [
        "uid",
        "kind",
        "resource",
        "requestKind",
        "requestResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "dryRun",
        "options",
    ]
    assert sent["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert sent["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert sent["userInfo"] == {"username": "bob", "groups": ["dev"], "extra": {"scopes": ["a"]}}
    assert sent["object"]["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]
    assert sent["oldObject"] is None
    assert sent["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}


def test_updates_and_deletions_are_shown_with_both_states(rig: Rig) -> None:
    """An update shows both states, a deletion the old one; those of a collection have no name."""
    rig.configure()
    created = rig.create()
    created["data"] = {"k": "w"}
    rig.client.update(created)
    rig.client.delete("v1", "ConfigMap", "a", namespace="t1")
    rig.create("b")
    target = Target(rig.api.resource("", "v1", "configmaps"), "t1")
    rig.api.delete_collection(rig.client.caller, target)
    update, deletion, collected = (rig.hook.reviews[place] for place in (1, 2, -1))
    assert (update["object"]["data"], update["oldObject"]["data"]) == ({"k": "w"}, {"k": "v"})
    assert deletion["object"] is None
    assert deletion["oldObject"]["data"] == {"k": "w"}
    assert collected["operation"] == "DELETE"
    assert "name" not in collected


@pytest.mark.parametrize(
    ("status", "code", "reason", "message"),
    [
        (
            {"message": "held by node-b", "code": 403, "reason": "Forbidden"},
            403,
            "Forbidden",
            "denied the request: held by node-b",
        ),
        ({"message": "no"}, 400, "", "denied the request: no"),
        ({"reason": "Because", "code": 200}, 400, "Because", "denied the request: Because"),
        (None, 400, "", "denied the request without explanation"),
    ],
)
def test_denials(rig: Rig, status: Json | None, code: int, reason: str, message: str) -> None:
    """A denial is the webhook's own status, never below 400, with its name in front."""
    rig.configure()
    rig.hook.answer = lambda _: {"allowed": False, **({"status": status} if status else {})}
    with pytest.raises(ApiError) as caught:
        rig.create()
    assert caught.value.message == f'admission webhook "{NAME}" {message}'
    assert (caught.value.code, caught.value.reason) == (code, reason)
    with pytest.raises(ApiError, match="not found"):
        rig.client.get("v1", "ConfigMap", "a", namespace="t1")


def test_warnings_come_through(rig: Rig) -> None:
    """What a webhook warns of is part of the answer."""
    rig.configure()
    rig.hook.answer = lambda _: {"allowed": True, "warnings": ["first", "second"]}
    target = Target(rig.api.resource("", "v1", "configmaps"), "t1")
    outcome = rig.api.create(rig.client.caller, target, config_map("a"), WriteOptions())
    assert outcome.warnings == ("first", "second")


BROKEN: list[tuple[Response | None, Json, str]] = [
    (
        None,
        {"allowed": True, "uid": "0"},
        "received invalid webhook response: expected response.uid=",
    ),
    (
        None,
        {"allowed": True, "patch": "W10=", "patchType": "JSONPatch"},
        "received invalid webhook response: validating webhook may not return response.patch",
    ),
    (Response(200, [], b"nonsense"), {}, "failed to call webhook: "),
    (
        Response(200, [], b"{}"),
        {},
        "received invalid webhook response: webhook response was absent",
    ),
    (
        Response(500, [], b""),
        {},
        'failed to call webhook: an error on the server ("unknown") has prevented the request '
        "from succeeding",
    ),
    (
        Response(502, [("Content-Type", "text/plain")], b"down\n"),
        {},
        'failed to call webhook: an error on the server ("down") has prevented the request '
        "from succeeding",
    ),
    (
        Response(404, [], b""),
        {},
        "failed to call webhook: the server could not find the requested resource",
    ),
]


@pytest.mark.parametrize(("raw", "answer", "message"), BROKEN)
def test_failures(rig: Rig, raw: Response | None, answer: Json, message: str) -> None:
    """A webhook that breaks the protocol fails the write, or nothing when failures are ignored."""
    rig.hook.raw, rig.hook.answer = raw, lambda _: answer
    rig.configure()
    with pytest.raises(ApiError) as caught:
        rig.create()
    wanted = f'Internal error occurred: failed calling webhook "{NAME}": {message}'
    assert caught.value.message.startswith(wanted)
    assert (caught.value.code, caught.value.reason) == (500, "InternalError")
    rig.client.delete("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "rig-wh")
    rig.configure(failurePolicy="Ignore")
    rig.create()


def test_a_slow_webhook_times_out(rig: Rig) -> None:
    """After the webhook's own timeout the call counts as failed."""
    rig.hook.wait_for = threading.Event()
    rig.configure(timeoutSeconds=1)
    with pytest.raises(ApiError, match=r'/check\?timeout=1s": context deadline exceeded'):
        rig.create()


def test_an_unreachable_webhook(rig: Rig) -> None:
    """A refused connection, an untrusted certificate and a missing Service fail in Go's words."""
    url = rig.hook.server.url
    strange = base64.b64encode(Authority("other").certificate_pem.encode()).decode()
    service = {"namespace": "default", "name": "nowhere", "path": "/x"}
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"clientConfig": rig.client_config(caBundle=strange)},
            f'Post "{url}/check?timeout=5s": tls: failed to verify certificate: '
            "x509: certificate signed by unknown authority",
        ),
        (
            {"clientConfig": {"service": service}},
            'Post "https://nowhere.default.svc:443/x?timeout=5s": service "nowhere" not found',
        ),
    )
    for place, (changed, message) in enumerate(cases):
        rig.configure(name=f"wh-{place}", **changed)
        with pytest.raises(ApiError) as caught:
            rig.create()
        assert caught.value.message.endswith(message)
        rig.client.delete(
            "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", f"wh-{place}"
        )
    rig.hook.server.stop()
    rig.configure()
    with pytest.raises(ApiError, match="connect: connection refused"):
        rig.create()


def test_a_service_is_reached_by_its_route(rig: Rig) -> None:
    """A Service's webhook is called where its route points, under the Service's own name."""
    hook = Hook(rig.authority, ("wh.default.svc",))
    rig.webhooks.routes["default", "wh"] = ("127.0.0.1", hook.server.port)
    service = {"namespace": "default", "name": "wh", "path": "/check"}
    config = rig.client_config(service=service)
    del config["url"]
    rig.configure(clientConfig=config)
    rig.create()
    assert hook.requests[0].headers.get("Host") == "wh.default.svc:443"
    hook.server.stop()


@pytest.mark.parametrize(
    "changed",
    [
        {"objectSelector": {"matchLabels": {"watch": "me"}}},
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"matchConditions": [{"name": "b", "expression": "object.metadata.name == 'b'"}]},
        {
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["configmaps"],
                }
            ]
        },
        {
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["*"],
                    "resources": ["configmaps/status"],
                }
            ]
        },
        {
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["*"],
                    "resources": ["*/*"],
                    "scope": "Cluster",
                }
            ]
        },
    ],
)
def test_writes_that_a_webhook_does_not_want(rig: Rig, changed: Json) -> None:
    """Rules, selectors and conditions keep a write from a webhook."""
    rig.configure(**changed)
    rig.create()
    assert rig.hook.requests == []


def test_selectors_and_conditions_that_match(rig: Rig) -> None:
    """A labelled object in a labelled namespace, with a true condition, is shown."""
    rig.configure(
        objectSelector={"matchLabels": {"watch": "me"}},
        namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "t1"}},
        matchConditions=[{"name": "who", "expression": "request.userInfo.username == 'bob'"}],
    )
    rig.create(labels={"watch": "me"}, caller=Caller("bob"))
    assert len(rig.hook.requests) == 1


def test_a_condition_that_fails(rig: Rig) -> None:
    """An expression that cannot be evaluated refuses the write when failures count."""
    condition = {"name": "c", "expression": "object.spec.missing == 1"}
    rig.configure(matchConditions=[condition])
    with pytest.raises(ApiError, match='match condition "c" failed') as caught:
        rig.create()
    assert caught.value.code == 403


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ["1"], True),
        ("NotIn", ["1"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_label_expressions(operator: str, values: list[str], *, matches: bool) -> None:
    """Each operator of a label selector."""
    requirement = {"key": "a", "operator": operator, "values": values}
    assert selects({"matchExpressions": [requirement]}, {"a": "1"}) is matches
