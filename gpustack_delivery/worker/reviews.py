"""Admission reviews: what the API server asks of a webhook, and by when it wants the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

from gpustack_delivery.decisions.admission import Requester
from gpustack_delivery.vocabulary.duration import parse_duration
from gpustack_delivery.vocabulary.resources import GROUP, PODS, Json

REVIEW_VERSION: Final = "admission.k8s.io/v1"
# What the API server waits for if it does not say; so long is what the chart asks for, too.
_TIMEOUT_SECONDS: Final = 10.0
# The connection, the handshake and a busy machine have their part of it.
_OURS: Final = 0.8


@dataclass(frozen=True, slots=True)
class Review:
    """One admission request, as far as a rule looks at it; a dry run stores nothing."""

    uid: str
    group: str
    resource: str
    subresource: str
    operation: str
    namespace: str
    name: str
    requester: Requester
    dry_run: bool = False
    new: Mapping[str, Any] = field(default_factory=dict)
    old: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, wire: Any) -> Review:
        """Read an AdmissionReview.

        Raises:
            ValueError: it is none, or not of the version we speak.
        """
        request = wire.get("request") if isinstance(wire, dict) else None
        if not isinstance(request, dict) or wire.get("apiVersion") != REVIEW_VERSION:
            raise ValueError(f"the body must be an AdmissionReview of {REVIEW_VERSION}")
        resource, user = request.get("resource") or {}, request.get("userInfo") or {}
        extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
        group, plural = resource.get("group", ""), resource.get("resource", "")
        known = group == GROUP or (group, plural) == (PODS.group, PODS.plural)
        return cls(
            uid=request.get("uid", ""),
            group=group,
            resource=plural if known else "",
            subresource=request.get("subResource") or "",
            operation=request.get("operation", ""),
            namespace=request.get("namespace") or "",
            name=request.get("name") or "",
            requester=Requester(user.get("username", ""), extra),
            dry_run=bool(request.get("dryRun")),
            new=request.get("object") or {},
            old=request.get("oldObject") or {},
        )

    @property
    def old_spec(self) -> Json:
        """Return the spec before the request, empty on creation."""
        return dict(self.old.get("spec") or {})

    @property
    def new_spec(self) -> Json:
        """Return the spec as it would be."""
        return dict(self.new.get("spec") or {})

    @property
    def target(self) -> str:
        """Return resource and subresource as RBAC writes them."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def answer_seconds(query: str) -> float:
    """Return within how many seconds a review is to be answered.

    Args:
        query: the request's, in which the API server says how long it waits: `timeout=10s`.
    """
    try:
        told = parse_duration(parse_qs(query)["timeout"][0])
    except (KeyError, ValueError):
        told = 0.0
    return _OURS * (told if told > 0 else _TIMEOUT_SECONDS)
