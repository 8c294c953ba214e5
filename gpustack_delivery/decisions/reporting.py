"""What a node says about itself, and when that is worth a write.

The status is made from what is on the disk and what is mounted, and compared with what the API
server holds. Equal means no write. A difference in progress alone is written after 30 seconds, and
only once a download moved by 5% of its size; every other difference at once, with the progress of
that moment.

Nothing here names a tenant: a failure says what its reason means and a detail such as an HTTP
status.

Rules: NS-RES-04..08, NS-RES-10, NS-RES-13, NS-RES-14, NS-RES-16..22, NS-RES-24, NS-RES-25,
    NS-GC-08.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpustack_delivery.errors import Reason
from gpustack_delivery.vocabulary.conditions import FALSE, TRUE, Condition, Conditions, assign
from gpustack_delivery.vocabulary.node_store import (
    CAPACITY_LOW,
    MAX_MODELS,
    READY,
    Capacity,
    ModelEntry,
    ModelState,
    Status,
)
from gpustack_delivery.vocabulary.wire import format_time

PROGRESS_SECONDS: Final = 30.0
PROGRESS_PERCENT: Final = 5
_HOUR: Final = 3600
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

MEANING: Final = {
    Reason.INVALID_REQUEST: "the node's configuration cannot be executed",
    Reason.ACCESS_DENIED: "the hub refused the credential, or does not show the content to it",
    Reason.SOURCE_UNAVAILABLE: "no source delivered the content",
    Reason.INTEGRITY_MISMATCH: "the content or its listing is not what the digest names",
    Reason.INSUFFICIENT_CAPACITY: "the cache has no room under its high watermark",
    Reason.CANCELED: "no mount asked for the content any more",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report says.

    Args:
        generation: of the spec that was read, valid or not.
        capacity: of the cache filesystem, and the cache's own bytes.
        models: every entry, in any order; times may be uncut.
        trouble: why the cache cannot be used now; "" if it can.
        invalid: what fails in the spec or its CA ConfigMap; "" for a valid one.
        cap_note: what to know about the watermarks in force; "" if nothing.
        skipped: why the last collection removed nothing; "" if it ran.
        nothing_to_remove: usage is above the high watermark and every tree is in use.
    """

    generation: int
    capacity: Capacity
    models: tuple[ModelEntry, ...]
    trouble: str = ""
    invalid: str = ""
    cap_note: str = ""
    skipped: str = ""
    nothing_to_remove: bool = False


def failure_message(reason: Reason, detail: str) -> str:
    """Return the public text of a failure: what its reason means, and a tenant-free detail."""
    return f"{MEANING[reason]}: {detail}" if detail else MEANING[reason]


def progress_message(digest: str, received_bytes: int, size_bytes: int | None) -> str:
    """Return the answer to a mount whose content is on its way; None is a size not yet listed.

    Figures have one decimal: every new text is a new event on the Pod.
    """
    if size_bytes is None:
        return f"materializing {_short(digest)}: listing the files"
    received, size = amount(received_bytes), amount(size_bytes)
    return f"materializing {_short(digest)}: {received} of {size} received"


def backoff_message(digest: str, reason: Reason, message: str, retry_at: float) -> str:
    """Return the answer to a mount of a digest that failed and waits for its next attempt."""
    return (
        f"materializing {_short(digest)} failed, {reason}: {message}; "
        f"next attempt at {format_time(retry_at)}"
    )


def _short(digest: str) -> str:
    return digest[: len("sha256:") + 12]


def amount(size_bytes: int) -> str:
    """Return a size in binary units, cut to one decimal: a part never reads as the whole."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = min((size_bytes.bit_length() - 1) // 10, len(_UNITS))
    tenths = size_bytes * 10 // 1024**power
    return f"{tenths // 10}.{tenths % 10} {_UNITS[power - 1]}"


def content(facts: Facts, stored: Conditions, *, now: float) -> Status:
    """Return the status that the facts make; transition times of `stored` conditions are kept."""
    models = sorted((_cut(entry) for entry in facts.models), key=_rank)
    omitted = max(len(models) - MAX_MODELS, 0)
    ours: Conditions = tuple(c for c in stored if c.type in (READY, CAPACITY_LOW))
    for condition in (_ready(facts, omitted), _capacity_low(facts)):
        ours = assign(ours, condition, now=now)
    return Status(facts.generation, facts.capacity, tuple(models[:MAX_MODELS]), ours)


def worth_writing(stored: Status, new: Status, *, seconds_since_write: float) -> bool:
    """Say whether a new status goes to the API server now.

    Args:
        stored: what the API server holds.
        new: what the node says now.
        seconds_since_write: since this process last wrote; infinity if it never did.
    """
    if new == stored:
        return False
    if _without_progress(new) != _without_progress(stored):
        return True
    return seconds_since_write >= PROGRESS_SECONDS and _moved(stored, new.models)


def _cut(entry: ModelEntry) -> ModelEntry:
    used, retry = entry.last_used_time, entry.retry_time
    return replace(
        entry,
        last_used_time=None if used is None else float(used // _HOUR * _HOUR),
        retry_time=None if retry is None else float(int(retry)),
    )


def _rank(entry: ModelEntry) -> tuple[bool, float, str]:
    return (not entry.referenced, -(entry.last_used_time or 0.0), entry.digest)


def _ready(facts: Facts, omitted: int) -> Condition:
    skipped = f"collection skipped: {facts.skipped}" if facts.skipped else ""
    if facts.trouble or facts.invalid:
        # The contract has one reason for a node on which no download starts and nothing is
        # collected; the message tells a cache that fails from a configuration that does.
        out = f"nothing new is mounted or downloaded: {facts.trouble}" if facts.trouble else ""
        wrong = f"no download starts until the configuration is corrected: {facts.invalid}"
        parts = [out, wrong if facts.invalid else "", skipped]
        return Condition(READY, FALSE, "InvalidConfiguration", _joined(parts))
    more = f"{omitted} more models are on the node than this list holds" if omitted else ""
    return Condition(READY, TRUE, "Serving", _joined([facts.cap_note, more, skipped]))


def _capacity_low(facts: Facts) -> Condition:
    if facts.nothing_to_remove:
        return Condition(
            CAPACITY_LOW,
            TRUE,
            "NothingToRemove",
            "usage is above the high watermark and every model here is in use or pinned",
        )
    return Condition(CAPACITY_LOW, FALSE, "WithinWatermarks")


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(part for part in parts if part)


def _without_progress(status: Status) -> Status:
    """Return a status with its progress fields at zero: what is left may not wait."""
    models = tuple(replace(entry, downloaded_bytes=0) for entry in status.models)
    capacity = status.capacity
    if any(entry.state is ModelState.DOWNLOADING for entry in models):
        capacity = replace(capacity, stored_bytes=0)
    return replace(status, models=models, capacity=capacity)


def _moved(stored: Status, models: Sequence[ModelEntry]) -> bool:
    """Say whether some download moved by the threshold since the stored status."""
    before = {entry.digest: entry.downloaded_bytes for entry in stored.models}
    return any(
        abs(entry.downloaded_bytes - before.get(entry.digest, 0)) * 100
        >= PROGRESS_PERCENT * entry.size_bytes
        for entry in models
        if entry.size_bytes
    )
