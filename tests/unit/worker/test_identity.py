"""The worker learns its own name, or does not start."""

from __future__ import annotations

import pytest

from gpustack_delivery.errors import ConfigurationFault, Forbidden, Unreachable
from gpustack_delivery.redaction import Token
from gpustack_delivery.worker.identity import learn_identity
from tests.unit.worker.world import ClusterKube

NAME = "system:serviceaccount:gpustack-system:worker"


def test_self_subject_review() -> None:
    """Where it is served, the API server says who asks."""
    kube = ClusterKube()
    kube.reviews["selfsubjectreviews"] = {"status": {"userInfo": {"username": NAME}}}
    assert learn_identity(kube, lambda: None) == NAME


def test_token_review_stands_in() -> None:
    """Without it the worker's own token is reviewed."""
    kube = ClusterKube()
    kube.reviews["tokenreviews"] = {"status": {"authenticated": True, "user": {"username": NAME}}}
    assert learn_identity(kube, lambda: Token("own")) == NAME


@pytest.mark.parametrize("answer", [{"status": {}}, {"status": None}, Forbidden("no", code=403)])
def test_with_neither_it_does_not_start(answer: dict[str, object] | Forbidden) -> None:
    """A refused or forbidden review is no identity, and nor is a missing token."""
    kube = ClusterKube()
    kube.reviews["tokenreviews"] = answer
    for token in (Token("own"), None):
        with pytest.raises(ConfigurationFault, match="who this worker is") as fault:
            learn_identity(kube, lambda token=token: token)  # type: ignore[misc]
        assert "own'" not in str(fault.value)


def test_an_api_server_that_is_away_is_no_answer() -> None:
    """An outage is the caller's to wait for."""
    kube = ClusterKube()
    kube.reviews["selfsubjectreviews"] = Unreachable("away")
    with pytest.raises(Unreachable):
        learn_identity(kube, lambda: None)
