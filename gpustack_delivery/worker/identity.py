"""Who the worker is to the API server.

Only the worker may write an artifact's status, so it must know its own name before it judges. It
asks; where the API server serves no SelfSubjectReview it has its own token reviewed; and with
neither it does not start.

Rule: NS-OWN-19.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpustack_delivery.errors import ConfigurationFault, Forbidden, NotFound
from gpustack_delivery.ports import Kube
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import SELF_SUBJECT_REVIEWS, TOKEN_REVIEWS


def learn_identity(kube: Kube, own_token: Callable[[], Token | None]) -> str:
    """Return the worker's own username.

    Args:
        kube: the API as the worker.
        own_token: reads the bearer token the worker authenticates with; None without one.

    Raises:
        ConfigurationFault: the API server does not say.
        Unreachable: it does not answer.
    """
    try:
        review: Mapping[str, Any] = kube.create(
            SELF_SUBJECT_REVIEWS, _review(SELF_SUBJECT_REVIEWS.kind)
        )
    except (NotFound, Forbidden):
        review = _review_token(kube, own_token())
    username = _username(review.get("status"))
    if not username:
        raise ConfigurationFault(
            "the API server does not say who this worker is: it serves no SelfSubjectReview and "
            "accepts no review of the worker's own token; run it with a service account token, on "
            "Kubernetes 1.28 or later or with the right to create tokenreviews"
        )
    return username


def _review_token(kube: Kube, token: Token | None) -> Mapping[str, Any]:
    if not token:
        return {}
    body = _review(TOKEN_REVIEWS.kind) | {"spec": {"token": token.reveal()}}
    try:
        return kube.create(TOKEN_REVIEWS, body)
    except (NotFound, Forbidden):
        return {}


def _review(kind: str) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": kind}


def _username(status: Mapping[str, Any] | None) -> str:
    """Read either review's answer; a refused token has no user."""
    status = status or {}
    user = status.get("userInfo") or status.get("user") or {}
    return str(user.get("username", ""))
