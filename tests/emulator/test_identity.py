"""Who sends a request: tokens, certificates, impersonation, node identities."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.access.authentication import certificate_caller
from emulator.access.features import Features
from emulator.api_server import ApiServer, Doors
from emulator.contracts import Caller
from emulator.errors import ApiError
from gpustack_delivery.httpd import Server
from gpustack_delivery.httpd.certificates import Authority, server_context
from tests.emulator.secured_api import AGENT, EXTRA, Rig, claims, pod, secured_api


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    """An API with access control."""
    with secured_api() as made:
        yield made


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


def test_a_client_certificate_over_tls(rig: Rig, tmp_path: Path) -> None:
    """A certificate of the cluster's authority makes its bearer the user that it names."""
    authority = Authority("cluster")
    server = Server(
        ApiServer(rig.api, Doors(rig.security.authenticator)).handle,
        name="api",
        tls=server_context(
            authority.issue("api", ["127.0.0.1"]), client_ca=authority.certificate_pem
        ),
    )
    pair = authority.issue("bob", organizations=["dev"], client=True)
    files = (tmp_path / "bob.crt", tmp_path / "bob.key")
    for file, text in zip(files, (pair.certificate_pem, pair.key_pem), strict=True):
        file.write_text(text, encoding="utf-8")
    context = ssl.create_default_context(cadata=authority.certificate_pem)
    context.load_cert_chain(*files)
    server.start()
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps({"metadata": {}}), headers)
    user = json.load(connection.getresponse())["status"]["userInfo"]
    connection.close()
    server.stop()
    assert (user["username"], user["groups"]) == ("bob", ["dev", "system:authenticated"])


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
    rig.client.create(pod("with-volume", "agent", "node-a", volumes=[volume]))
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
    """A version is one that can be played; anything else is refused with what can."""
    assert Features.of("v1.36.2").minor == 36
    for wrong in ("2.0", "1.12", "1.28", "1.37", "1", "1.", "1.30-rc", "v", ""):
        with pytest.raises(ValueError, match=r"choose one from 1\.29 to 1\.36"):
            Features.of(wrong)
