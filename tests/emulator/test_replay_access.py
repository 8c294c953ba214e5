"""Refusals, tokens, reviews and node identities, as a real server answered them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.emulator.access_rig import SecuredSession, allow_agent, as_token, core, pod, secured
from tests.emulator.replay import Hook, Json, Session, cases

ERRORS, TOKENS, NODES = (
    "11-errors-authz", "20-tokens-and-reviews", "21-node-authorizer-and-noderestriction",
)  # fmt: skip
WIDGETS = "/apis/rig.example.io/v1/namespaces/t1/widgets"


def _claims(token: str, part: int) -> Any:
    text = token.split(".")[part]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _said(placeholder: str, *keys: str) -> Callable[[Session], Json]:
    """Return a hook that tells what a token says, times left out, as the recording does."""

    def observe(opened: Session) -> Json:
        assert isinstance(opened, SecuredSession)
        token = opened.tokens[placeholder]
        claims = _claims(token, 1)
        lifetime = claims["exp"] - claims["iat"]
        claims |= dict.fromkeys(("exp", "iat", "nbf"), "<unix-time>")
        header = _claims(token, 0) | {"kid": "<kid>"}
        everything = {"header": header, "claims": claims, "lifetimeSeconds": lifetime}
        return {key: everything[key] for key in keys}

    return observe


def _people(opened: Session) -> None:
    """Make what recording 20 has from the start."""
    assert isinstance(opened, SecuredSession)
    core(opened, "serviceaccounts", {"metadata": {"name": "agent"}})
    for name in ("node-a", "node-b"):
        uid = core(opened, "nodes", {"metadata": {"name": name}}, namespace="")
        if name == "node-a":
            opened.bindings.uid("<uid-9>", uid)
    uid = core(opened, "pods", pod("agent-a", "agent", "node-a"))
    opened.bindings.uid("<uid-6>", uid)
    allow_agent(opened)


def _broken(opened: Session) -> None:
    """Make the fifth token: one of ours with another signature."""
    assert isinstance(opened, SecuredSession)
    signed, _, signature = opened.tokens["<jwt-1>"].rpartition(".")
    opened.tokens["<jwt-5>"] = f"{signed}.{signature[::-1]}"


def _without_pod(opened: Session) -> None:
    opened.make("DELETE", "/api/v1/namespaces/t1/pods/agent-a?gracePeriodSeconds=0")


_POD_BOUND = Hook(before=as_token("<jwt-3>"))
TOKEN_HOOKS = {
    "TokenRequest unbound, default audience": Hook(before=_people),
    "claims of that token": Hook(observe=_said("<jwt-1>", "header", "claims")),
    "claims of the pod-bound token (the node of the Pod is added by the API server)": Hook(
        observe=_said("<jwt-2>", "claims", "lifetimeSeconds")
    ),
    "lifetime": Hook(observe=_said("<jwt-3>", "lifetimeSeconds")),
    "TokenReview of a token with a broken signature": Hook(before=_broken),
    "using a rig-audience token against the API server (401)": Hook(before=as_token("<jwt-2>")),
    "SelfSubjectReview pod-bound token": _POD_BOUND,
    "SelfSubjectReview unbound token": Hook(before=as_token("<jwt-1>")),
    "SelfSubjectAccessReview allowed": _POD_BOUND,
    "TokenReview after the Pod was deleted": Hook(before=_without_pod),
}


def _bad_token(opened: Session) -> None:
    assert isinstance(opened, SecuredSession)
    opened.carry("garbage")


ERROR_HOOKS = {"bad bearer token (401)": Hook(before=_bad_token)}


def _node_world(opened: Session) -> None:
    """Make what recording 21 has from the start: two nodes, their Pods, two Secrets."""
    core(opened, "serviceaccounts", {"metadata": {"name": "agent"}})
    unready = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    for name in ("node-a", "node-b"):
        core(opened, "nodes", {"metadata": {"name": name}, "spec": unready}, namespace="")
        untracked: Json = {"metadata": {"managedFields": [{}]}}
        opened.make("PATCH", f"/api/v1/nodes/{name}", untracked, "application/merge-patch+json")
    for name in ("nodesec", "othersec"):
        core(opened, "secrets", {"metadata": {"name": name}, "data": {"k": "dg=="}})
    reference = {"driver": "d", "nodePublishSecretRef": {"name": "nodesec"}}
    volume = {"name": "v", "csi": reference}
    uid = core(opened, "pods", pod("np", "agent", "node-a", volumes=[volume]))
    opened.bindings.uid("<uid-25>", uid)
    opened.bindings.uid("<uid-29>", core(opened, "pods", pod("npb", "agent", "node-b")))


NODE_HOOKS = {"node lists pods with its nodeName field selector": Hook(before=_node_world)}


def _played(recording: str, hooks: Mapping[str, Hook]) -> Iterator[Session]:
    with secured() as opened:
        yield opened.play(recording, hooks)


@pytest.fixture(scope="module")
def errors() -> Iterator[Session]:
    """The recording of refusals, played once."""
    yield from _played(ERRORS, ERROR_HOOKS)


@pytest.fixture(scope="module")
def tokens() -> Iterator[Session]:
    """The recording of tokens and reviews, played once."""
    yield from _played(TOKENS, TOKEN_HOOKS)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Session]:
    """The recording of node identities, played once."""
    yield from _played(NODES, NODE_HOOKS)


@pytest.mark.parametrize("name", cases(ERRORS))
def test_refusals_as_recorded(errors: Session, name: str) -> None:
    """One refusal has the recorded status, headers and body."""
    errors.check(name)


@pytest.mark.parametrize("name", cases(TOKENS))
def test_tokens_and_reviews_as_recorded(tokens: Session, name: str) -> None:
    """One answer about tokens or rights has the recorded status, headers and body."""
    tokens.check(name)


@pytest.mark.parametrize("name", cases(NODES))
def test_node_identities_as_recorded(nodes: Session, name: str) -> None:
    """One request of a node has the recorded answer."""
    nodes.check(name)
