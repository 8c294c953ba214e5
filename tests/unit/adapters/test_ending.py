"""Waiting to be told to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from gpustack_delivery.adapters.ending import ending, interruptible


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_however_often_it_comes(number: signal.Signals) -> None:
    """Before the wait, and again after it: it ends once, and nothing is left to end anything."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with ending() as wait:
        signal.pthread_kill(threading.get_ident(), number)
        wait()
        signal.pthread_kill(threading.get_ident(), number)
    assert not signal.sigpending()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


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
