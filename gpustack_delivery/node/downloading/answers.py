"""What a source's answer to a range request means.

Every request names its range, small files' too: large files are not served whole everywhere, and
the total in the answer exposes a wrong file before its bytes come. ETag and Last-Modified are not
looked at: only size and hash prove content.

    206 of the range asked for               content from its first byte
    206 of another range, or unreadable      try again
    206 with another total                   IntegrityMismatch
    200                                      the whole file: content after skipping to the range
    200 declaring another size               IntegrityMismatch
    a compressed body, asked for or not      try again
    401, 403, 404 of the hub                 AccessDenied
    the same of a host it redirected to      a signed URL that does not work: try again by the hub
    everything else                          try again, in the time the source wishes

`fetching` asks; nothing here does I/O. Rules: NS-DL-14, NS-FR-02, NS-FR-03, NS-FR-04.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from gpustack_delivery.errors import AttemptFault, Reason

LONGEST_WISH_SECONDS: Final = 60.0
"""A source may ask for a longer pause; it gets this one and then the next request."""

_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
CONTENT: Final = frozenset({200, 206})
_DENIED: Final = frozenset({401, 403, 404})


class TryAgain(Exception):
    """This answer is of no use; the next may be.

    Args:
        words: why, for a person, without host, URL or tenant.
        wish_seconds: how long the source asks to be left alone.
        reason: what the attempt ends with when nothing better comes.
    """

    def __init__(
        self,
        words: str,
        wish_seconds: float = 0.0,
        reason: Reason = Reason.SOURCE_UNAVAILABLE,
    ) -> None:
        super().__init__(words)
        self.wish_seconds = wish_seconds
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Body:
    """Where an answer's body begins and ends in the file.

    Args:
        start: the file's byte that the body's first byte is.
        whole: whether the body is the whole file, which must then end where the file ends.
    """

    start: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked.

    Args:
        start: the file's first byte that is wanted.
        size: the file's whole size.
        redirected: whether another host answers than the one that was asked first.
        now: seconds since the epoch, for a Retry-After that is a date.
    """

    start: int
    size: int
    redirected: bool
    now: float


def judge(status: int, headers: Mapping[str, str], question: Question) -> Body:
    """Say what an answer holds.

    Raises:
        TryAgain: nothing usable, for now.
        AttemptFault: `AccessDenied` or `IntegrityMismatch`; asking again would not help.
    """
    start, size = question.start, question.size
    if status in _DENIED and question.redirected:
        raise TryAgain(f"HTTP {status}", reason=Reason.ACCESS_DENIED)
    if status in _DENIED:
        raise AttemptFault(Reason.ACCESS_DENIED, f"HTTP {status}")
    if status not in CONTENT:
        raise TryAgain(f"HTTP {status}", _wish(headers.get("Retry-After"), question.now))
    if headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
        raise TryAgain("a compressed body that was not asked for")
    if status == 200:
        return _judge_whole(headers, size)
    found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if found is None or int(found[1]) != start:
        raise TryAgain("another range than asked for")
    if found[3] not in {"*", str(size)} and int(found[3]) != size:
        raise mismatch(f"the source's file has {found[3]} bytes in place of {size}")
    return Body(start, whole=False)


def mismatch(words: str) -> AttemptFault:
    """Return the fault of content that is not what the manifest says."""
    return AttemptFault(Reason.INTEGRITY_MISMATCH, words)


def _judge_whole(headers: Mapping[str, str], size: int) -> Body:
    declared = headers.get("Content-Length", "")
    # Compared as text: it may have more digits than Python makes a number of.
    other = declared.isdecimal() and declared.lstrip("0") != str(size)
    if other and "Transfer-Encoding" not in headers:
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        what = "a web page" if kind == "text/html" else "an answer"
        raise mismatch(f"{what} of {declared[:20]} bytes came in place of a file of {size}")
    return Body(0, whole=True)


def _wish(value: str | None, now: float) -> float:
    """Read Retry-After, seconds or a date, within bounds; what cannot be read is no wish."""
    if not value:
        return 0.0
    try:
        seconds = float(value) if value.strip().isdecimal() else _until(value, now)
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_WISH_SECONDS)


def _until(date: str, now: float) -> float:
    return parsedate_to_datetime(date).timestamp() - now
