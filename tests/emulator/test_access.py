"""Tokens, reviews, RBAC, node identities and impersonation, against an API in the same process."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from emulator.access import Security, SecurityOptions
from emulator.access.authentication import certificate_caller
from emulator.access.features import Features
from emulator.access.rbac import covers
from emulator.api import Api, Steps
from emulator.client import Client
from emulator.clock import ManualClock
from emulator.contracts import Access, Caller, DeleteOptions, Json, Outcome, Target, WriteOptions
from emulator.errors import ApiError
from emulator.patches import FieldPatcher
from gpustack_delivery.httpd import Headers, Request

EXTRA = "authentication.kubernetes.io/"
AGENT = "system:serviceaccount:t1:agent"


class Rig:
    """An API with access control, a namespace, a node, an account and a Pod that runs as it."""

    def __init__(self, kubernetes: str = "1.36") -> None:
        self.clock = ManualClock()
        patcher = FieldPatcher()
        self.security = Security(self.clock, patcher, SecurityOptions(kubernetes))
        steps = Steps(authorizer=self.security.authorizer, patcher=patcher)
        self.api = Api(self.clock, steps)
        self.security.install(self.api)
        self.client = Client(self.api)
        for document in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t1"}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}},
            _namespaced("ServiceAccount", "agent"),
            _pod("agent-a", "agent", "node-a"),
        ):
            self.client.create(document)

    def uid(self, kind: str, name: str, namespace: str = "t1") -> str:
        """Return the uid of an object."""
        found: str = self.client.get("v1", kind, name, namespace=namespace)["metadata"]["uid"]
        return found

    def token_request(self, spec: Json, account: str = "agent") -> Json:
        """Ask for a token of an account."""
        target = Target(self.api.resource("", "v1", "serviceaccounts"), "t1", account, "token")
        return self._create(target, {"spec": spec}).object

    def review(self, group: str, plural: str, spec: Json, caller: Caller | None = None) -> Json:
        """Post a review and return it."""
        resource = self.api.resource(group, "v1", plural)
        target = Target(resource, "t1" if resource.namespaced else "")
        return self._create(target, {"spec": spec}, caller).object

    def token_review(self, token: str, *audiences: str) -> Json:
        """Return the status of a TokenReview."""
        spec: Json = {"token": token, "audiences": list(audiences)}
        status: Json = self.review("authentication.k8s.io", "tokenreviews", spec)["status"]
        return status

    def _create(self, target: Target, body: Json, caller: Caller | None = None) -> Outcome:
        outcome = self.api.create(caller or self.client.caller, target, body, WriteOptions())
        assert outcome.code == 201
        return outcome

    def authenticate(self, **headers: str) -> Caller:
        """Return who a request with these headers comes from; _ stands for - in their names."""
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = Request("GET", "/", "/", "", Headers(pairs))
        return self.security.authenticator.authenticate(request)

    def allow(self, subject: Json, *rules: Json, namespace: str = "") -> None:
        """Bind rules to a subject, cluster-wide or in a namespace."""
        scope = "" if namespace else "Cluster"
        metadata: Json = {"name": "test"} | ({"namespace": namespace} if namespace else {})
        version = "rbac.authorization.k8s.io/v1"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{scope}Role", "name": "test"}
        self.client.create(
            {"apiVersion": version, "kind": f"{scope}Role", "metadata": metadata, "rules": rules}
        )
        self.client.create(
            {
                "apiVersion": version,
                "kind": f"{scope}RoleBinding",
                "metadata": dict(metadata),
                "roleRef": role,
                "subjects": [subject],
            }
        )

    def decide(self, caller: Caller, verb: str, plural: str, **more: Any) -> tuple[bool, str]:
        """Return the authorizer's answer and its reason."""
        decision = self.security.authorizer.decide(Access(caller, verb, plural=plural, **more))
        return decision.allowed, decision.reason


def _namespaced(kind: str, name: str) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "t1"}}


def _pod(name: str, account: str, node: str, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "i"}]
    content = {"serviceAccountName": account, "nodeName": node, "containers": containers, **spec}
    return {**_namespaced("Pod", name), "spec": content}


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.api.close()


def claims(token: str) -> Json:
    """Return what a token says."""
    body = token.split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def test_an_unbound_token(rig: Rig) -> None:
    """A token request without a spec gets one hour and the API server's audience."""
    answer = rig.token_request({})
    issuer = "https://kubernetes.default.svc.cluster.local"
    assert answer["spec"] == {
        "audiences": [issuer], "expirationSeconds": 3600, "boundObjectRef": None,
    }  # fmt: skip
    said = claims(answer["status"]["token"])
    assert said["sub"] == AGENT
    assert said["exp"] - said["iat"] == 3600
    account = {"name": "agent", "uid": rig.uid("ServiceAccount", "agent")}
    assert said["kubernetes.io"] == {"namespace": "t1", "serviceaccount": account}
    status = rig.token_review(answer["status"]["token"])
    assert status["user"]["extra"] == {f"{EXTRA}credential-id": [f"JTI={said['jti']}"]}
    assert status["user"]["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:t1", "system:authenticated",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kubernetes", "expected"),
    [
        ("1.29", {"pod-name", "pod-uid"}),
        ("1.30", {"pod-name", "pod-uid", "node-name", "node-uid", "credential-id"}),
    ],
)
def test_a_pod_bound_token_by_version(kubernetes: str, expected: set[str]) -> None:
    """The node of the Pod, and the token's id, are in the token from 1.30 on."""
    rig = Rig(kubernetes)
    token = rig.security.account_token("t1", "agent", pod="agent-a")
    extra = rig.token_review(token)["user"]["extra"]
    assert {key.removeprefix(EXTRA) for key in extra} == expected
    asked = rig.token_request({"boundObjectRef": _pod_reference(rig)})["status"]["token"]
    assert rig.token_review(asked)["user"]["extra"].keys() == extra.keys()
    rig.api.close()


def _pod_reference(rig: Rig, **changed: str) -> Json:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "agent-a"}
    return {**reference, "uid": rig.uid("Pod", "agent-a"), **changed}


def test_a_token_dies_with_its_pod(rig: Rig) -> None:
    """Deleting the Pod ends the token: TokenReview says so, and requests are 401."""
    token = rig.security.account_token("t1", "agent", pod="agent-a")
    assert rig.authenticate(Authorization=f"Bearer {token}").name == AGENT
    now = DeleteOptions(grace_period_seconds=0)
    rig.client.delete("v1", "Pod", "agent-a", namespace="t1", options=now)
    error = "[invalid bearer token, service account token has been invalidated]"
    assert rig.token_review(token) == {"user": {}, "error": error}
    with pytest.raises(ApiError) as caught:
        rig.authenticate(Authorization=f"Bearer {token}")
    assert caught.value.code == 401


def test_a_token_expires(rig: Rig) -> None:
    """A token is good up to its expiry and not a second longer."""
    token = rig.security.account_token("t1", "agent", seconds=600)
    rig.clock.advance(599)
    assert rig.token_review(token)["authenticated"]
    rig.clock.advance(1)
    assert "service account token has expired" in rig.token_review(token)["error"]


def test_audiences(rig: Rig) -> None:
    """A token is good for the audiences it names, and the API server's own is not among them."""
    token = rig.security.account_token("t1", "agent", audiences=("rig",))
    assert rig.token_review(token, "rig", "other")["audiences"] == ["rig"]
    assert rig.token_review(token)["error"] == (
        '[invalid bearer token, token audiences ["rig"] is invalid for the target audiences '
        '["https://kubernetes.default.svc.cluster.local"]]'
    )
    with pytest.raises(ApiError):
        rig.authenticate(Authorization=f"Bearer {token}")


def test_tokens_that_are_none(rig: Rig) -> None:
    """Garbage, a broken signature and an empty token are told apart."""
    token = rig.security.account_token("t1", "agent")
    head, body, signature = token.split(".")
    broken = f"{head}.{body}.{signature[::-1]}"
    assert rig.token_review("garbage")["error"] == "invalid bearer token"
    assert "cryptographic primitive" in rig.token_review(broken)["error"]
    with pytest.raises(ApiError, match="token is required"):
        rig.token_review("")


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        ({"uid": "other"}, 409, "does not match the UID in record"),
        ({"name": "zz"}, 404, 'pods "zz" not found'),
        ({"kind": "ConfigMap"}, 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
    ],
)
def test_token_requests_that_cannot_be_bound(
    rig: Rig, changed: dict[str, str], code: int, message: str
) -> None:
    """A bound object must exist, with that uid, and be of a kind that can be bound."""
    with pytest.raises(ApiError, match=message) as caught:
        rig.token_request({"boundObjectRef": _pod_reference(rig, **changed)})
    assert caught.value.code == code


def test_token_requests_that_are_refused(rig: Rig) -> None:
    """Too short a life, a missing account and another account's Pod are refused."""
    with pytest.raises(ApiError, match="may not specify a duration less than 10 minutes"):
        rig.token_request({"expirationSeconds": 60})
    with pytest.raises(ApiError, match='serviceaccounts "ghost" not found'):
        rig.token_request({}, "ghost")
    with pytest.raises(ApiError, match="pod running with different serviceaccount name"):
        rig.token_request({"boundObjectRef": _pod_reference(rig)}, "default")


def test_a_token_bound_to_a_node(rig: Rig) -> None:
    """A token bound to a Node carries the node and no Pod."""
    reference = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}
    token = rig.token_request({"boundObjectRef": reference})["status"]["token"]
    extra = rig.token_review(token)["user"]["extra"]
    assert extra[f"{EXTRA}node-name"] == ["node-a"]
    assert f"{EXTRA}pod-name" not in extra


def test_reviews_say_who_sent_their_fields(rig: Rig) -> None:
    """Answers carry managedFields of the fields that were sent, without those left empty."""
    spec = {"user": "x", "resourceAttributes": {"verb": "get", "group": "", "resource": "pods"}}
    answer = rig.review("authorization.k8s.io", "subjectaccessreviews", spec)
    assert answer["spec"]["resourceAttributes"] == {"verb": "get", "resource": "pods"}
    assert answer["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:spec": {
            "f:resourceAttributes": {".": {}, "f:resource": {}, "f:verb": {}},
            "f:user": {},
        }
    }


def test_rbac_decides_from_stored_objects(rig: Rig) -> None:
    """A binding allows, and the reason names it; what is not bound is not allowed."""
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": "t1"}
    rig.allow(subject, {"apiGroups": [""], "resources": ["pods", "*/status"], "verbs": ["get"]})
    agent = Caller(AGENT, ("system:serviceaccounts",))
    because = 'RBAC: allowed by ClusterRoleBinding "test" of ClusterRole "test"'
    assert rig.decide(agent, "get", "pods", namespace="t1") == (
        True, f'{because} to ServiceAccount "agent/t1"',
    )  # fmt: skip
    assert rig.decide(agent, "get", "nodes", subresource="status")[0]
    assert rig.decide(agent, "list", "pods") == (False, "")
    assert not rig.decide(agent, "get", "pods", group="apps")[0]


def test_a_role_holds_in_its_namespace_alone(rig: Rig) -> None:
    """A RoleBinding allows in its namespace, and named resources only by their names."""
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["s"]}
    rig.allow({"kind": "Group", "name": "dev"}, rule, namespace="t1")
    caller = Caller("alice", ("dev",))
    allowed = rig.decide(caller, "get", "secrets", namespace="t1", name="s")
    assert allowed == (True, 'RBAC: allowed by RoleBinding "test/t1" of Role "test" to Group "dev"')
    assert not rig.decide(caller, "get", "secrets", namespace="t1", name="other")[0]
    assert not rig.decide(caller, "get", "secrets", namespace="default", name="s")[0]


def test_a_missing_role_is_named(rig: Rig) -> None:
    """A binding whose role is gone shows in the refusal."""
    rig.allow({"kind": "User", "name": "alice"})
    rig.client.delete("rbac.authorization.k8s.io/v1", "ClusterRole", "test")
    _, reason = rig.decide(Caller("alice"), "get", "pods")
    assert reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "test" not found'


def test_aggregated_roles_gather_what_is_offered(rig: Rig) -> None:
    """`view` grants what a labelled ClusterRole adds to it, and `edit` has all of `view`."""
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rule = {"apiGroups": ["rig.example.io"], "resources": ["widgets"], "verbs": ["get"]}
    version = "rbac.authorization.k8s.io/v1"
    metadata = {"name": "widget-viewer", "labels": label}
    rig.client.create(
        {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
    )
    for role, user in (("view", "v"), ("edit", "e"), ("admin", "a")):
        rig.client.create(
            {
                "apiVersion": version,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"people-{role}"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
                },
                "subjects": [{"kind": "User", "name": user}],
            }
        )  # fmt: skip
        assert rig.decide(Caller(user), "get", "widgets", group="rig.example.io")[0]
    assert not rig.decide(Caller("v"), "get", "secrets", namespace="t1")[0]
    assert rig.decide(Caller("e"), "get", "secrets", namespace="t1")[0]


@pytest.mark.parametrize(
    ("url", "path", "covered"),
    [
        ("*", "/metrics", True),
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/ping", False),
        ("/apis/*", "/apis/apps", True),
        ("/apis/*", "/apis", False),
    ],
)
def test_paths_outside_the_resources(url: str, path: str, *, covered: bool) -> None:
    """A rule for paths covers the path itself, or everything under its star."""
    rule = {"nonResourceURLs": [url], "verbs": ["get"]}
    assert covers(rule, Access(Caller("x"), "get", path=path)) is covered


def test_access_reviews(rig: Rig) -> None:
    """Reviews answer for a user, for oneself and inside a namespace; malformed ones are 422."""
    asked = {"resourceAttributes": {"namespace": "t1", "verb": "get", "resource": "secrets"}}
    group = "authorization.k8s.io"
    masters = {**asked, "user": "x", "groups": ["system:masters"]}
    answer = rig.review(group, "subjectaccessreviews", masters)
    assert answer["status"] == {"allowed": True}
    mine = rig.review(group, "selfsubjectaccessreviews", asked, Caller("alice"))
    assert mine["status"] == {"allowed": False}
    local = rig.review(group, "localsubjectaccessreviews", {**asked, "user": "alice"})
    assert local["metadata"]["namespace"] == "t1"
    for spec, message in (
        (asked, "at least one of user or group must be specified"),
        ({"user": "x"}, "exactly one of nonResourceAttributes or resourceAttributes"),
    ):
        with pytest.raises(ApiError, match=message):
            rig.review(group, "subjectaccessreviews", spec)
    elsewhere = {"resourceAttributes": {"namespace": "t2", "verb": "get"}, "user": "alice"}
    with pytest.raises(ApiError, match=r"must match metadata\.namespace"):
        rig.review(group, "localsubjectaccessreviews", elsewhere)


def test_rules_review(rig: Rig) -> None:
    """A rules review lists what a caller's bindings grant, resources and paths apart."""
    caller = Caller("alice", ("system:authenticated",))
    status = rig.review("authorization.k8s.io", "selfsubjectrulesreviews",
                        {"namespace": "t1"}, caller)["status"]  # fmt: skip
    assert {
        "verbs": ["create"], "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
    } in status["resourceRules"]  # fmt: skip
    assert any("/api/*" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    assert status["incomplete"] is False


def test_who_sends_a_request(rig: Rig) -> None:
    """A fixed token is its user, nothing is anonymous, a certificate is its names."""
    token = rig.security.add_user("alice", "dev")
    alice = rig.authenticate(Authorization=f"Bearer {token}", User_Agent="kubectl/v1")
    assert (alice.name, alice.groups, alice.manager) == (
        "alice", ("dev", "system:authenticated"), "kubectl",
    )  # fmt: skip
    anonymous = rig.authenticate()
    assert (anonymous.name, anonymous.groups) == ("system:anonymous", ("system:unauthenticated",))
    subject = ((("organizationName", "dev"),), (("commonName", "bob"),))
    bob = certificate_caller({"subject": subject}, Features(36))
    assert (bob.name, bob.groups) == ("bob", ("dev", "system:authenticated"))
    assert bob.extra[f"{EXTRA}credential-id"][0].startswith("X509SHA256=")
    assert not certificate_caller({"subject": subject}, Features(31)).extra


def test_impersonation(rig: Rig) -> None:
    """Who may impersonate becomes the other, without a trace of their own extra."""
    admin = rig.security.user_token("admin")
    caller = rig.authenticate(
        Authorization=f"Bearer {admin}",
        Impersonate_User="bob",
        Impersonate_Group="dev",
        **{"Impersonate-Extra-authentication.kubernetes.io%2fnode-name": "node-z"},
    )
    assert (caller.name, caller.groups) == ("bob", ("dev", "system:authenticated"))
    assert caller.extra == {f"{EXTRA}node-name": ("node-z",)}
    account = rig.authenticate(Authorization=f"Bearer {admin}", Impersonate_User=AGENT)
    assert "system:serviceaccounts:t1" in account.groups


def test_impersonation_is_refused(rig: Rig) -> None:
    """Without the right to impersonate it is 403, and headers without a user are an error."""
    alice = rig.security.add_user("alice")
    with pytest.raises(ApiError) as caught:
        rig.authenticate(Authorization=f"Bearer {alice}", Impersonate_User="bob")
    assert caught.value.code == 403
    with pytest.raises(ApiError, match="without a user"):
        rig.authenticate(Authorization=f"Bearer {alice}", Impersonate_Group="dev")


def test_extra_is_impersonated_key_by_key(rig: Rig) -> None:
    """The right to impersonate an extra key is a right on userextras of that key."""
    users = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    rig.allow({"kind": "User", "name": "alice"}, users)
    alice = rig.security.add_user("alice")
    headers = {"Authorization": f"Bearer {alice}", "Impersonate_User": "bob"}
    assert rig.authenticate(**headers).name == "bob"
    with pytest.raises(ApiError, match="cannot impersonate-on:user-info:get path"):
        rig.authenticate(**headers, **{"Impersonate-Extra-scopes": "a"})


def test_older_servers_name_the_impersonated_user() -> None:
    """Before impersonation could be constrained, the refusal named who was not to be."""
    rig = Rig("1.30")
    alice = rig.security.add_user("alice")
    with pytest.raises(ApiError, match='users "bob" is forbidden: User "alice" cannot impersonate'):
        rig.authenticate(Authorization=f"Bearer {alice}", Impersonate_User="bob")
    rig.api.close()


NODE_A = Caller("system:node:node-a", ("system:nodes", "system:authenticated"))


def test_a_node_reads_what_its_pods_refer_to(rig: Rig) -> None:
    """A node reads the secrets of its own Pods and nobody else's, and never by listing."""
    reference = {"name": "publish"}
    volume = {"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": reference}}
    rig.client.create(_pod("with-volume", "agent", "node-a", volumes=[volume]))
    asked = {"namespace": "t1", "name": "publish"}
    assert rig.decide(NODE_A, "get", "secrets", **asked)[0]
    unrelated = "no relationship found between node 'node-a' and this object"
    assert rig.decide(NODE_A, "get", "secrets", namespace="t1", name="x") == (False, unrelated)
    other = replace(NODE_A, name="system:node:node-b")
    assert not rig.decide(other, "get", "secrets", **asked)[0]
    assert rig.decide(NODE_A, "list", "secrets", namespace="t1") == (False, "No Object name found")


@pytest.mark.parametrize(
    ("verb", "plural", "more", "allowed"),
    [
        ("get", "nodes", {"name": "node-a"}, True),
        ("get", "nodes", {"name": "node-b"}, False),
        ("patch", "nodes", {"name": "node-a", "subresource": "status"}, True),
        ("list", "pods", {"field_selector": "spec.nodeName=node-a"}, True),
        ("list", "pods", {}, False),
        ("create", "serviceaccounts", {"name": "agent", "subresource": "token"}, True),
        ("create", "serviceaccounts", {"name": "default", "subresource": "token"}, False),
        ("update", "csinodes", {"group": "storage.k8s.io", "name": "node-a"}, True),
        ("update", "csinodes", {"group": "storage.k8s.io", "name": "node-b"}, False),
        ("create", "events", {}, True),
        ("get", "widgets", {"group": "rig.example.io", "name": "a"}, False),
    ],
)
def test_what_a_node_may_do(
    rig: Rig, verb: str, plural: str, more: dict[str, str], *, allowed: bool
) -> None:
    """A kubelet reads its Node and Pods, writes its own objects, and touches nothing else."""
    namespaced = {"namespace": "t1"} if plural in {"pods", "serviceaccounts", "events"} else {}
    assert rig.decide(NODE_A, verb, plural, **namespaced, **more)[0] is allowed


def test_tokens_for_users(rig: Rig) -> None:
    """A user name is enough for a token; an account that is not there is said so."""
    token = rig.security.user_token(AGENT, ("t1", "agent-a"))
    assert claims(token)["kubernetes.io"]["pod"]["name"] == "agent-a"
    with pytest.raises(LookupError, match="there is no serviceaccount ghost in namespace t1"):
        rig.security.user_token("system:serviceaccount:t1:ghost")


def test_versions_that_are_none() -> None:
    """A version is 1.N; anything else is refused with how to write it."""
    assert Features.of("v1.36.2").minor == 36
    with pytest.raises(ValueError, match=r"write it as 1\.30"):
        Features.of("2.0")
