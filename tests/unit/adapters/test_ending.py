"""Waiting to be told to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from gpustack_delivery.adapters import ending as adapter
from gpustack_delivery.adapters.ending import ending, interruptible
from tests.unit.fakes import eventually


def listener() -> int:
    """Return the thread that waits for the signals; no other of this process holds them back."""
    return next(each.ident or 0 for each in threading.enumerate() if each.name == "ending")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_however_often_it_comes(number: signal.Signals) -> None:
    """Before the wait, and again after it: it ends once, and nothing is left to end anything."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    told: list[signal.Signals] = []
    with ending() as end:
        end.told = lambda: told.append(number)
        signal.pthread_kill(listener(), number)
        end.wait()
        eventually(lambda: told, "the word")
        signal.pthread_kill(threading.get_ident(), number)
    assert told == [number]
    assert not signal.sigpending()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_what_still_waits_after_a_while_is_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in a program that was told to stop and has not ended."""
    monkeypatch.setattr(adapter, "ORDERLY_SECONDS", 0.0)
    hurried = threading.Event()
    with ending() as end:
        end.hurry = hurried.set
    assert not hurried.is_set()
    with ending() as end:
        end.hurry = hurried.set
        signal.pthread_kill(listener(), signal.SIGTERM)
        eventually(hurried.is_set, "the hurry")


def test_threads_that_start_meanwhile_leave_the_signal_alone() -> None:
    """They inherit what is held back."""
    held: list[set[int]] = []
    with ending():
        thread = threading.Thread(
            target=lambda: held.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        )
        thread.start()
        thread.join()
    assert {signal.SIGTERM, signal.SIGINT} <= held[0]


def test_sigterm_interrupts_like_ctrl_c() -> None:
    """The main thread leaves by a KeyboardInterrupt, and the signal means again what it meant."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
