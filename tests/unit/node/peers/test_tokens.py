"""Token reviews: what counts as a yes, and how long it is remembered."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.node.peers.tokens import AUDIENCE, REMEMBERED_SECONDS, TokenGate
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import Json, Resource
from tests.unit.fakes import FakeKube, ManualClock

USER = "system:serviceaccount:gpustack-system:plugin"


class Reviewer(FakeKube):
    """An API server that answers reviews as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.status: Json = {
            "authenticated": True,
            "audiences": [AUDIENCE],
            "user": {"username": USER},
        }
        self.asked: list[Json] = []
        self.away = False

    def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Answer a review."""
        assert resource.plural == "tokenreviews"
        self.asked.append(body["spec"])
        if self.away:
            raise Unreachable("no answer")
        return {**body, "status": self.status}


def jwt(claims: Any) -> Token:
    """Return a token with some claims; nobody here checks its signature."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return Token(f"header.{payload}.signature")


@pytest.fixture
def clock() -> ManualClock:
    """Give the time."""
    return ManualClock()


@pytest.fixture
def kube() -> Reviewer:
    """Give an API server that says yes."""
    return Reviewer()


@pytest.fixture
def gate(kube: Reviewer, clock: ManualClock) -> TokenGate:
    """Give a gate for one account."""
    return TokenGate(kube, clock, USER)


def test_a_yes_is_asked_for_once_in_two_minutes(
    gate: TokenGate, kube: Reviewer, clock: ManualClock
) -> None:
    """The review names the audience."""
    token = jwt({"exp": clock.now() + 3600})
    for _ in range(5):
        assert gate.admits(token)
    assert kube.asked == [{"token": token.reveal(), "audiences": [AUDIENCE]}]
    clock.advance(REMEMBERED_SECONDS)
    assert gate.admits(token)
    assert len(kube.asked) == 2


def test_a_yes_ends_with_the_token(gate: TokenGate, kube: Reviewer, clock: ManualClock) -> None:
    """Even within the two minutes."""
    token = jwt({"exp": clock.now() + 10})
    assert gate.admits(token)
    clock.advance(9)
    assert gate.admits(token)
    clock.advance(1)
    kube.status = {"authenticated": False}
    assert not gate.admits(token)


def test_a_yes_does_not_last_longer_when_the_clock_is_set_back(kube: Reviewer) -> None:
    """Two minutes are two minutes, whatever the date says."""

    class Slipping(ManualClock):
        ahead = 0.0

        def now(self) -> float:
            return super().now() + self.ahead

    clock = Slipping()
    gate = TokenGate(kube, clock, USER)
    clock.ahead = 3600.0
    token = jwt({"exp": clock.now() + 7200})
    assert gate.admits(token)
    clock.ahead = 0.0
    clock.advance(REMEMBERED_SECONDS)
    assert gate.admits(token)
    assert len(kube.asked) == 2


@pytest.mark.parametrize("claims", [{}, [], {"exp": "soon"}, {"exp": None}, "text"])
def test_a_yes_whose_end_cannot_be_read_is_not_remembered(
    gate: TokenGate, kube: Reviewer, claims: object
) -> None:
    """It is reviewed every time."""
    for _ in range(3):
        assert gate.admits(jwt(claims))
    assert len(kube.asked) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"authenticated": False},
        {"authenticated": "true"},
        {"audiences": []},
        {"audiences": ["other"]},
        {"audiences": None},
        {"user": {"username": USER + "x"}},
        {"user": None},
    ],
)
def test_a_no_is_never_remembered(
    gate: TokenGate, kube: Reviewer, clock: ManualClock, change: Json
) -> None:
    """Every field must be right; as soon as it is, the token is good."""
    good, token = dict(kube.status), jwt({"exp": clock.now() + 3600})
    kube.status = good | change
    assert not gate.admits(token)
    assert not gate.admits(token)
    kube.status = good
    assert gate.admits(token)
    assert len(kube.asked) == 3


def test_without_an_answer_there_is_no_verdict(
    gate: TokenGate, kube: Reviewer, clock: ManualClock
) -> None:
    """The fault passes through, and what was remembered still counts."""
    known, new = jwt({"exp": clock.now() + 3600}), jwt({"exp": clock.now() + 3601})
    assert gate.admits(known)
    kube.away = True
    assert gate.admits(known)
    with pytest.raises(Unreachable):
        gate.admits(new)


def test_no_token_is_asked_about_that_cannot_be_one(gate: TokenGate, kube: Reviewer) -> None:
    """Neither an empty one nor a flood."""
    assert not gate.admits(Token(""))
    assert not gate.admits(Token("x" * (17 << 10)))
    assert kube.asked == []
