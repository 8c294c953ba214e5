"""Whether somebody may: what is asked, and that silence is no yes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.ports import Errand
from gpustack_delivery.worker.public_api.access import Access, Action
from gpustack_delivery.worker.public_api.front_proxy import Caller
from gpustack_delivery.worker.public_api.statuses import Refused

CALLER = Caller("ada", ("team",), "u-1", {"scopes": ("a", "b")})
ACTION = Action("get", "worker.gpustack.ai", "modelartifacts", "progress", "team-a", "model")


class Reviewer:
    """An API server that answers every review alike."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self._body = json.dumps(body).encode()
        self.asked: list[Any] = []

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Reviewer:
        """Note what is asked."""
        assert timeout_seconds == 2.0
        self.asked.append(json.loads(errand.body)["spec"])
        return self

    def header(self, name: str) -> str:
        """Return no header."""
        return ""

    def read(self) -> bytes:
        """Return the answer."""
        return self._body

    def lines(self) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""


class Nobody:
    """An API server that does not answer."""

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Reviewer:
        """Fail."""
        raise Unreachable("the Kubernetes API does not answer")


def test_asks_in_the_callers_own_words() -> None:
    """User, groups, uid and extras are handed on, with the verb on the subresource."""
    reviewer = Reviewer(201, {"status": {"allowed": True}})
    Access(reviewer).demand(CALLER, ACTION)
    (spec,) = reviewer.asked
    assert spec == {
        "user": "ada",
        "groups": ["team"],
        "uid": "u-1",
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "verb": "get",
            "group": "worker.gpustack.ai",
            "version": "v1",
            "resource": "modelartifacts",
            "subresource": "progress",
            "namespace": "team-a",
            "name": "model",
        },
    }


@pytest.mark.parametrize(
    ("passage", "code"),
    [
        (Reviewer(201, {"status": {"allowed": False}}), 403),
        (Reviewer(201, {"status": {"allowed": True, "denied": True}}), 403),
        (Reviewer(201, {}), 403),
        (Reviewer(403, {"status": {"allowed": True}}), 500),
        (Nobody(), 500),
    ],
)
def test_only_a_yes_is_a_yes(passage: Any, code: int) -> None:
    """A no, a denial, an empty answer, a refused review and silence all keep the door shut."""
    with pytest.raises(Refused) as refused:
        Access(passage).demand(CALLER, ACTION)
    assert refused.value.code == code
    if code == 403:
        assert 'cannot get resource "modelartifacts/progress"' in str(refused.value)
