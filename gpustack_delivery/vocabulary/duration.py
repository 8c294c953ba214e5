"""Durations as Go writes them: `24h`, `1h30m`, `1.5s`, `250ms`.

>>> parse_duration("1h30m"), format_duration(5400)
(5400.0, '1h30m')
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\N{MICRO SIGN}s": 1e-6,
    "\N{GREEK SMALL LETTER MU}s": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNIT: Final = "|".join(sorted(_UNITS, key=len, reverse=True))
_DURATION: Final = re.compile(rf"[+-]?(?:0|(?:{_NUMBER}(?:{_UNIT}))+)")
_PART: Final = re.compile(rf"({_NUMBER})({_UNIT})")
# Go counts nanoseconds in 63 bits.
_MAX_SECONDS: Final = (2**63 - 1) / 1e9
_MAX_LENGTH: Final = 64


def parse_duration(text: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: the text is no duration, or one beyond what Kubernetes can hold.
    """
    if len(text) > _MAX_LENGTH or not _DURATION.fullmatch(text):
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a duration such as 24h or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > _MAX_SECONDS:
        raise ValueError(f"{text!r} is longer than 292 years")
    return -seconds if text.startswith("-") else seconds


def format_duration(seconds: float) -> str:
    """Return whole seconds in hours, minutes and seconds, the empty parts left out."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"
