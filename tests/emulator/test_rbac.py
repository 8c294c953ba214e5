"""RBAC and access reviews, from stored roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulator.access.rbac import covers
from emulator.client import Client
from emulator.contracts import Access, Caller
from emulator.errors import ApiError
from tests.emulator.secured_api import AGENT, Rig, namespaced, secured_api


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    """An API with access control."""
    with secured_api() as made:
        yield made


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


def test_an_apply_that_creates_needs_both_rights(rig: Rig) -> None:
    """`patch` alone changes what is there; what is not there asks for `create` as well."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}
    rig.allow({"kind": "User", "name": "alice"}, rule, namespace="t1")
    applied = namespaced("ConfigMap", "c")
    alice = Client(rig.api, Caller("alice"))
    asked: list[Access] = []
    rig.api.tell_access(asked.append)
    with pytest.raises(ApiError) as refusal:
        alice.apply(applied)
    assert refusal.value.status["message"] == (
        'configmaps "c" is forbidden: User "alice" cannot create resource "configmaps" '
        'in API group "" in the namespace "t1"'
    )
    assert [access.verb for access in asked] == ["patch", "create"]
    rig.client.create(applied)
    alice.apply(applied)
    assert [access.verb for access in asked if access.caller.name == "alice"][2:] == ["patch"]


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
