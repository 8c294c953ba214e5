"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def time(seconds: float) -> str:
    """Return a time with whole seconds, such as 2026-01-01T00:00:00Z."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(seconds: float) -> str:
    """Return a time with microseconds, such as 2026-01-01T00:00:00.000000Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str) -> float:
    """Return the seconds since the epoch that a written time stands for."""
    return datetime.fromisoformat(text).timestamp()
