"""One artifact driven by hand through its life, on a clock that is a number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gpustack_delivery.decisions.resolution import (
    Conclusion,
    Credential,
    Listing,
    Outcome,
    Pace,
    Refusal,
    Step,
    announce,
    conclude,
    plan,
)
from gpustack_delivery.errors import Verdict
from gpustack_delivery.vocabulary.artifact import (
    DEGRADED,
    RESOLVED,
    ModelArtifact,
    Resolved,
)
from gpustack_delivery.vocabulary.conditions import find

DAY = 86400.0
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
COMMIT = "c" * 40
LISTING = Listing(COMMIT, DIGEST, 10, 999)
DENIED = Refusal(Verdict.ACCESS_DENIED, "HTTP 403")
DOWN = Refusal(Verdict.SOURCE_UNAVAILABLE, "HTTP 503")
NO_SECRET = Refusal(Verdict.SECRET_NOT_FOUND, "the Secret hf does not exist", from_hub=False)
UNREADABLE = Refusal(Verdict.SOURCE_UNAVAILABLE, "the Secret cannot be read", from_hub=False)
HUB = {"huggingFace": {"repository": "a/b", "revision": "main"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "w"}}
IMAGE = {"image": {"reference": "x@" + DIGEST}}


@dataclass
class Life:
    """One artifact and its worker's note, driven by hand.

    `now` moves only when a test moves it.
    """

    source: dict[str, Any] = field(default_factory=lambda: HUB)
    expected: str = ""
    now: float = 1000.0
    interval: float = DAY
    credential: Credential = field(default_factory=Credential)
    pace: Pace | None = None

    def __post_init__(self) -> None:
        spec = {"source": self.source, "expectedDigest": self.expected}
        metadata = {"name": "x", "generation": 1}
        self.artifact = ModelArtifact.from_wire({"metadata": metadata, "spec": spec})

    def plan(self) -> Step:
        """Ask what is next."""
        return plan(self.artifact, self.credential, self.pace, self.now, self.interval)

    def announce(self) -> Life:
        """Store the announcement."""
        self.artifact = replace(self.artifact, status=announce(self.artifact, self.now))
        return self

    def conclude(self, outcome: Outcome) -> Conclusion:
        """Store a conclusion and note its pace."""
        conclusion = conclude(self.artifact, outcome, self.now, self.interval)
        self.artifact = replace(self.artifact, status=conclusion.status)
        again = conclusion.again_seconds
        due = None if again is None else self.now + again
        self.pace = Pace(due, self.credential.version)
        return conclusion

    @property
    def said(self) -> str:
        """Return both conditions in short, such as `True/Resolved False/Healthy`."""
        found = (find(self.artifact.status.conditions, kind) for kind in (RESOLVED, DEGRADED))
        return " ".join(f"{item.status}/{item.reason}" for item in found if item)

    @property
    def resolved(self) -> Resolved:
        """Return the resolution, which must exist."""
        assert self.artifact.status.resolved is not None
        return self.artifact.status.resolved


HEALTHY = "True/Resolved False/Healthy"


def settled(**facts: Any) -> Life:
    """Return an artifact the hub resolved at 1000."""
    life = Life(**facts).announce()
    life.conclude(LISTING)
    return life
