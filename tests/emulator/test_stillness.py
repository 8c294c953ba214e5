"""Rest, judged from outside: what threads do shows, whether somebody looks just then or not."""

from __future__ import annotations

import threading

from emulator.stillness import wait_for_rest

_PATIENCE_SECONDS = 30.0


def test_work_between_two_looks_is_seen() -> None:
    """A thread that works in short bursts is not at rest in the calm between two of them."""
    pause, bursts = threading.Event(), list[int]()

    def work() -> None:
        for number in range(40):
            pause.wait(0.002)
            bursts.append(sum(range(20_000)) and number)

    worker = threading.Thread(target=work)
    worker.start()
    assert wait_for_rest(lambda: False, patience_seconds=_PATIENCE_SECONDS, calm_seconds=0.05)
    assert len(bursts) == 40
    worker.join()


def test_what_the_caller_knows_to_be_busy_counts() -> None:
    """A process whose threads all sleep is not at rest while its owner says that it is busy."""
    left = [3]

    def busy() -> bool:
        left[0] -= 1
        return left[0] > 0

    assert wait_for_rest(busy, patience_seconds=_PATIENCE_SECONDS)
    assert left[0] <= 0


def test_patience_ends() -> None:
    """What never comes to rest is given up."""
    assert not wait_for_rest(lambda: True, patience_seconds=0.01)
