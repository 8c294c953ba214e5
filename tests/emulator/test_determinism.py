"""The same steps with the same seed leave the same objects behind, moment by moment."""

from __future__ import annotations

from tests.emulator.determinism import difference, event_log


def test_an_eventful_hour_repeats_itself() -> None:
    """Retries, a lost node, restarts and a namespace's end come out the same; a seed counts."""
    first = event_log(7)
    assert len(first) > 500
    for _ in range(2):
        assert difference(first, event_log(7)) == ""
    assert difference(first, event_log(8)) != ""
