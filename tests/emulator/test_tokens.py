"""Service account tokens: what they say, how long they hold, what ends them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulator.contracts import DeleteOptions, Json
from emulator.errors import ApiError
from tests.emulator.secured_api import AGENT, EXTRA, Rig, claims, secured_api


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    """An API with access control."""
    with secured_api() as made:
        yield made


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


def test_a_token_dies_with_itspod(rig: Rig) -> None:
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
