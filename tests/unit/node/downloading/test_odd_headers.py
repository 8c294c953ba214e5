"""Headers that hold anything: a source is believed, asked again or given up, and nothing breaks."""

from __future__ import annotations

from itertools import product

import pytest

from gpustack_delivery.errors import AttemptFault
from gpustack_delivery.node.downloading.answers import (
    LONGEST_WISH_SECONDS,
    Body,
    Question,
    TryAgain,
    judge,
)

HUGE = "9" * 5000
ODD = (
    "",
    "-1",
    "\xb2",
    "0x10",
    "1e9",
    "nan",
    HUGE,
    f"bytes 0-9/{HUGE}",
    f"bytes {HUGE}-9/10",
    "bytes 9-0/10",
    "Mon, 99 Foo 99999 99:99:99 +9999",
    "Wed, 21 Oct 0001 07:28:00 GMT",
    " , , ",
    "gzip, gzip",
    "\x00",
)
NAMES = (
    "Content-Length",
    "Content-Range",
    "Content-Encoding",
    "Content-Type",
    "Transfer-Encoding",
    "Retry-After",
)


def judged(status: int, headers: dict[str, str]) -> Body | TryAgain | AttemptFault:
    """Return what an answer comes to."""
    question = Question(start=0, size=10, redirected=False, now=0.0)
    try:
        return judge(status, headers, question)
    except (TryAgain, AttemptFault) as verdict:
        return verdict


@pytest.mark.parametrize("status", [200, 206, 404, 429, 503, 599, 999])
def test_any_header_is_judged(status: int) -> None:
    """One header may hold anything, with or without a second one beside it."""
    for name, value, other, beside in product(NAMES, ODD, NAMES, ("10", "bytes 0-9/10")):
        verdict = judged(status, {other: beside, name: value})
        if isinstance(verdict, TryAgain):
            assert 0 <= verdict.wish_seconds <= LONGEST_WISH_SECONDS
        elif isinstance(verdict, Body):
            assert verdict.start == 0
        else:
            assert len(str(verdict)) < 200
