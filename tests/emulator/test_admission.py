"""Admission webhooks over real HTTPS: what they are sent, and what their answers do to a write."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator.admission import Chain, NodeRestriction, Webhooks
from emulator.admission.matching import selects
from emulator.api import Api, Steps
from emulator.client import Client
from emulator.clock import ManualClock
from emulator.contracts import Caller, DeleteOptions, Json, Target, WriteOptions
from emulator.errors import ApiError
from emulator.patches import FieldPatcher
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context

NAME = "check.rig.example.io"
NODE_A = Caller("system:node:node-a", ("system:nodes", "system:authenticated"))
Answer = Callable[[Json], Json]


class Hook:
    """A webhook server: keeps what it is sent, and answers as it is told."""

    def __init__(self, authority: Authority, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.requests: list[Request] = []
        self.answer: Answer = lambda _: {"allowed": True}
        self.raw: Response | None = None
        self.wait_for: threading.Event | None = None
        self.server = Server(
            self._handle, name="hook", tls=server_context(authority.issue("hook", list(hosts)))
        )
        self.server.start()

    def _handle(self, request: Request) -> Response:
        self.requests.append(request)
        if self.wait_for is not None:
            self.wait_for.wait(30)
        if self.raw is not None:
            return self.raw
        review = json.loads(request.body)
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }
        headers = [("Content-Type", "application/json")]
        return Response(200, headers, json.dumps(body).encode())

    @property
    def reviews(self) -> list[Json]:
        """Return the `request` of every review so far."""
        return [json.loads(request.body)["request"] for request in self.requests]


class Rig:
    """An API with webhooks, and one hook server for them."""

    def __init__(self) -> None:
        self.authority = Authority("test")
        self.hook = Hook(self.authority)
        self.webhooks, self.restriction = Webhooks(), NodeRestriction()
        admission = Chain(self.restriction, self.webhooks)
        self.api = Api(ManualClock(), Steps(admission=admission, patcher=FieldPatcher()))
        self.webhooks.bind(self.api.store, self.api)
        self.restriction.bind(self.api.store)
        self.client = Client(self.api)
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t1"}})

    def close(self) -> None:
        """Stop the server and the API."""
        if self.hook.wait_for is not None:
            self.hook.wait_for.set()
        self.hook.server.stop()
        self.api.close()

    def client_config(self, path: str = "/check", **changed: Any) -> Json:
        """Return a webhook's clientConfig for the hook server."""
        bundle = base64.b64encode(self.authority.certificate_pem.encode()).decode()
        return {"url": f"{self.hook.server.url}{path}", "caBundle": bundle, **changed}

    def configure(self, kind: str = "Validating", name: str = "rig-wh", **changed: Any) -> None:
        """Register a webhook for ConfigMaps."""
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["configmaps"],
            "scope": "*",
        }
        webhook: Json = {
            "name": NAME,
            "rules": [rule],
            "clientConfig": self.client_config(),
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
        }
        self.client.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [webhook | changed],
            }
        )

    def create(self, name: str = "a", caller: Caller | None = None, **metadata: Any) -> Json:
        """Create a ConfigMap."""
        client = self.client if caller is None else self.client.as_caller(caller)
        return client.create(config_map(name, **metadata))


def config_map(name: str, **metadata: Any) -> Json:
    """Return a ConfigMap of the test namespace."""
    metadata = {"name": name, "namespace": "t1", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}}


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


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


def patch_of(*operations: Json) -> Json:
    """Return a mutating answer."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def test_mutation(rig: Rig) -> None:
    """A mutating webhook changes the object; nobody owns what it wrote."""
    label = {"op": "add", "path": "/metadata/labels", "value": {"mutated": "yes"}}
    rig.hook.answer = lambda _: patch_of(label)
    rig.configure("Mutating")
    created = rig.create()
    assert created["metadata"]["labels"] == {"mutated": "yes"}
    assert all(
        "f:metadata" not in entry["fieldsV1"] for entry in created["metadata"]["managedFields"]
    )


def test_a_webhook_is_asked_again_after_others_changed_the_object(rig: Rig) -> None:
    """reinvocationPolicy IfNeeded asks once more when a later webhook changed something."""
    value = {"op": "add", "path": "/data/late", "value": "yes"}
    last = rig.client_config("/late")

    def answer(request: Json) -> Json:
        late = len(rig.hook.requests) == 2
        return patch_of(value) if late else {"allowed": True}

    rig.hook.answer = answer
    rig.configure("Mutating", "a-first", reinvocationPolicy="IfNeeded")
    rig.configure("Mutating", "b-second", clientConfig=last)
    rig.create()
    paths = [request.path for request in rig.hook.requests]
    assert paths == ["/check", "/late", "/check"]
    assert rig.hook.reviews[2]["object"]["data"] == {"k": "v", "late": "yes"}


def test_a_patch_that_does_not_fit(rig: Rig) -> None:
    """A patch that cannot be applied is the server's own failure."""
    rig.hook.answer = lambda _: patch_of({"op": "remove", "path": "/nowhere"})
    rig.configure("Mutating")
    with pytest.raises(ApiError) as caught:
        rig.create()
    assert caught.value.code == 500


def test_dry_runs_are_shown_as_such(rig: Rig) -> None:
    """A dry run calls the webhook too, and says that it is one."""
    rig.configure()
    target = Target(rig.api.resource("", "v1", "configmaps"), "t1")
    dry = WriteOptions(dry_run=True)
    rig.api.create(rig.client.caller, target, config_map("a"), dry)
    assert rig.hook.reviews[0]["dryRun"] is True
    assert rig.hook.reviews[0]["options"]["dryRun"] == ["All"]


def test_configurations_are_never_judged_by_webhooks(rig: Rig) -> None:
    """A webhook that wants everything cannot lock its own configuration."""
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*/*"],
    }
    rig.hook.answer = lambda _: {"allowed": False}
    rig.configure(rules=[everything])
    rig.client.delete("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "rig-wh")
    assert rig.hook.requests == []


def node(name: str, **metadata: Any) -> Json:
    """Return a Node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def test_a_node_writes_its_own_objects_alone(rig: Rig) -> None:
    """Another node's Node, Lease and CSINode are refused, as are restricted labels and taints."""
    kubelet = rig.client.as_caller(NODE_A)
    own = kubelet.create(node("node-a"))
    with pytest.raises(ApiError, match='node "node-a" is not allowed to modify node "node-b"'):
        kubelet.create(node("node-b"))
    own["metadata"]["labels"] = {"node-restriction.kubernetes.io/x": "b"}
    with pytest.raises(ApiError, match="is not allowed to modify labels: node-restriction"):
        kubelet.update(own)
    own["metadata"]["labels"] = {"kubernetes.io/hostname": "node-a"}
    own["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    with pytest.raises(ApiError, match='node "node-a" is not allowed to modify taints'):
        kubelet.update(own)
    with pytest.raises(ApiError, match="can only access CSINode with the same name"):
        kubelet.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSINode",
                "metadata": {"name": "node-b"},
                "spec": {"drivers": []},
            }
        )
    with pytest.raises(ApiError, match="can only access node lease with the same name"):
        kubelet.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "node-b", "namespace": "kube-node-lease"},
            }
        )


def test_a_node_deletes_its_own_pods_alone(rig: Rig) -> None:
    """A kubelet removes the Pods of its node and no others."""
    for name in ("node-a", "node-b"):
        rig.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"on-{name}", "namespace": "t1"},
                "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]},
            }
        )
    kubelet, now = rig.client.as_caller(NODE_A), DeleteOptions(grace_period_seconds=0)
    kubelet.delete("v1", "Pod", "on-node-a", namespace="t1", options=now)
    with pytest.raises(ApiError, match=r"can only delete pods with spec\.nodeName set to itself"):
        kubelet.delete("v1", "Pod", "on-node-b", namespace="t1", options=now)
