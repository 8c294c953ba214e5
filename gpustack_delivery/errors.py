"""What can go wrong, split by what happens next.

Two families, and nothing else crosses a room's door:

    DeliveryError
    ├── Answer                  a correct answer that is not yes; nothing is broken
    │   ├── Malformed           the request lacks what every request has       -> INVALID_ARGUMENT
    │   ├── Refused             a rule says no; the message names the rule     -> PERMISSION_DENIED
    │   ├── Pending             work is under way; ask again                   -> ABORTED
    │   └── Waiting             not now: starting up, or backing off           -> UNAVAILABLE
    └── Fault                   something outside failed
        ├── AttemptFault        a download attempt ended, with its Reason
        │   └── DiskFault       by the node's own disk: no source is to blame
        ├── HubFault            a hub refused or failed, with its Verdict
        ├── HostFault           the kernel or the filesystem failed            -> INTERNAL
        ├── ConfigurationFault  a flag, a Setting or a spec that cannot be executed
        └── ApiFault            the Kubernetes API said no
            ├── NotFound · AlreadyExists · Conflict · Gone · Forbidden · Invalid
            └── Unreachable     no answer, or an answer that says try again
                └── Silent      the answer has begun, and nothing more came in time

Every error carries two texts. `str(error)` is for the person who reads an event or a status: it
names no tenant, no URL and no secret. `detail` is for the plugin's own log, and still never holds a
secret.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a download attempt ended without publishing: the node-store page's table."""

    INVALID_REQUEST = "InvalidRequest"
    ACCESS_DENIED = "AccessDenied"
    SOURCE_UNAVAILABLE = "SourceUnavailable"
    INTEGRITY_MISMATCH = "IntegrityMismatch"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    CANCELED = "Canceled"


class Verdict(StrEnum):
    """Why an artifact is not resolved (the reasons of its Resolved and Degraded conditions)."""

    REVISION_NOT_FOUND = "RevisionNotFound"
    ACCESS_DENIED = "AccessDenied"
    SOURCE_UNAVAILABLE = "SourceUnavailable"
    INVALID_MANIFEST = "InvalidManifest"
    EMPTY_MANIFEST = "EmptyManifest"
    MANIFEST_TOO_LARGE = "ManifestTooLarge"
    DIGEST_MISMATCH = "DigestMismatch"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a condition reason, not a secret
    CLAIM_NOT_FOUND = "ClaimNotFound"
    UNSUPPORTED_SOURCE = "UnsupportedSource"


class DeliveryError(Exception):
    """Root of both families.

    Args:
        message: one line for a person; no tenant, no URL, no secret.
        detail: what the log adds: file, URL without query, errno; no secret either.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Answer(DeliveryError):
    """A correct answer that is not yes. The caller hears it; nothing is retried on our side."""


class Malformed(Answer):
    """The request lacks what the CSI specification demands of every request."""


class Refused(Answer):
    """A rule says no, and the message names it."""


class Pending(Answer):
    """The content is being materialized; the message shows the progress."""


class Waiting(Answer):
    """Not now: the plugin is starting, or the digest is backing off."""


class Fault(DeliveryError):
    """Something outside failed."""


class AttemptFault(Fault):
    """A download attempt ended without publishing.

    `str(error)` is the tenant-free detail that follows the reason's meaning, such as `HTTP 503`; it
    may be empty.
    """

    def __init__(self, reason: Reason, message: str = "", *, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.reason = reason


class DiskFault(AttemptFault):
    """The node's own disk ended a download attempt; another source would have met the same."""


class HubFault(Fault):
    """A hub refused, failed or described something that cannot be a manifest."""

    def __init__(self, verdict: Verdict, message: str, *, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.verdict = verdict


class HostFault(Fault):
    """The kernel or the filesystem failed."""


class ConfigurationFault(Fault):
    """A flag, a Setting or a spec cannot be executed; the message says which, and what would do."""


class ApiFault(Fault):
    """The Kubernetes API said no.

    Args:
        code: the HTTP status, 0 when there was none.
        reason: the Status reason, such as `NotFound`; empty when the answer was no Status.
        retry_after_seconds: the server's own wish, 0.0 when it had none.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        retry_after_seconds: float = 0.0,
        detail: str = "",
    ) -> None:
        super().__init__(message, detail=detail)
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class NotFound(ApiFault):
    """404: the object, or the resource itself, is not there."""


class AlreadyExists(ApiFault):
    """409 AlreadyExists."""


class Conflict(ApiFault):
    """409 Conflict: the object moved on; read it again."""


class Gone(ApiFault):
    """410 Expired: list again."""


class Forbidden(ApiFault):
    """401 or 403: the identity may not."""


class Invalid(ApiFault):
    """400 or 422: the object or the request is wrong, or a webhook refused it."""


class Unreachable(ApiFault):
    """No answer, 429 or 5xx: try again later."""


class Silent(Unreachable):
    """An answer that had begun told nothing for longer than its reader wanted to wait."""
