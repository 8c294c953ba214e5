"""A Pod that may have no more threads, from each one on that the plugin starts at work.

`Shortage` refuses them as the system does. Whatever cannot be done is said, nothing waits for a
thread that never was, and all is well again when there are threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from emulator.clock import ManualClock as WalkedClock
from gpustack_delivery.adapters.patience import Patience
from gpustack_delivery.errors import AttemptFault, ConfigurationFault, HostFault, Reason
from gpustack_delivery.node.csi import WORKERS, SocketServer
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import SEGMENT, Site, pattern
from tests.unit.node.stage import Stage
from tests.unit.origin import Origin, Seen, Wire

LARGE, SMALL = pattern(SEGMENT * 9), pattern(100, 1)
MESSAGE = "the plugin can start no more threads"


class Shortage:
    """Lets so many more threads of some name begin, and then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self._part = ""
        self._left: float = float("inf")
        self.refused = 0
        begin = Thread.start

        def start(thread: Thread) -> None:
            with self._lock:
                if self._part in thread.name:
                    self._left -= 1
                    if self._left < 0:
                        self.refused += 1
                        raise RuntimeError("can't start new thread")
            begin(thread)

        monkeypatch.setattr(Thread, "start", start)

    def begin(self, left: float, part: str = "") -> None:
        """Refuse threads with this part in their name after the next few."""
        with self._lock:
            self._left, self._part = left, part

    def end(self) -> None:
        """Refuse nothing any more."""
        self.begin(float("inf"))


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shortage]:
    """Give a machine that has threads, for now."""
    made = Shortage(monkeypatch)
    yield made
    made.end()


@pytest.mark.parametrize("left", range(9))
@pytest.mark.parametrize("files", [{"large": LARGE, "other": LARGE, "small": SMALL}, {"s": SMALL}])
def test_a_download_goes_on_with_fewer_or_says_why_not(
    tmp_path: Path, shortage: Shortage, files: dict[str, bytes], left: int
) -> None:
    """It ends in either case, and a later one finishes what it began."""

    def serve(seen: Seen, wire: Wire) -> None:
        wire.respond_range(seen, files[seen.target[1:]])

    with Origin(serve) as origin:
        site = Site(tmp_path, origin.url)
        targets = [site.target(name, content) for name, content in files.items()]
        shortage.begin(left, "/")  # the threads of a download are named after it
        running = site.start(*targets)
        eventually(lambda: running.done, "an end")
        fault = running.outcome()
        if isinstance(fault, AttemptFault):
            assert (fault.reason, str(fault)) == (Reason.SOURCE_UNAVAILABLE, MESSAGE)
            assert shortage.refused
        else:
            assert fault is None
            assert left
        shortage.end()
        site.fetch(*targets)
        assert {name: site.content(name) for name in files} == files
        site.close()


def test_a_mount_hears_that_no_download_can_begin(stage: Stage, shortage: Shortage) -> None:
    """No attempt is left behind that nobody makes: the next call begins one, and a stop ends."""
    digest = stage.artifact()
    stage.start()
    shortage.begin(0, "download:")
    code, message = stage.publish(digest)
    assert (code, MESSAGE in message) == ("UNAVAILABLE", True)
    shortage.end()
    stage.mounted(digest)
    stage.stop()


def test_a_listing_that_nobody_could_end_does_not_begin(shortage: Shortage) -> None:
    """Neither is it counted among those that are under way."""
    patience = Patience(WalkedClock())
    shortage.begin(0)
    with pytest.raises(HostFault, match=MESSAGE), patience.errand():
        pytest.fail("it began")
    shortage.end()
    with patience.errand() as flight:
        patience.end()
        eventually(lambda: flight.aborted, "the end of all errands")


def test_calls_are_answered_by_threads_that_are_there(stage: Stage, shortage: Shortage) -> None:
    """One that could not be given a thread would be the last that the socket answers."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    shortage.begin(0, stage.socket.name)
    together = [_call(stage, digest, f"u{number}") for number in range(2, WORKERS + 8)]
    answers = {answered() for answered in together}
    assert answers == {("OK", "")}
    assert not shortage.refused


@pytest.mark.parametrize("left", [0, 1, WORKERS - 1])
def test_a_start_without_enough_threads_says_so(
    tmp_path: Path, shortage: Shortage, left: int
) -> None:
    """In one line, with nothing left running."""
    server = SocketServer(tmp_path / "s.sock", lambda _: None)
    shortage.begin(left, "s.sock")
    with pytest.raises(ConfigurationFault, match="podPidsLimit"):
        server.start()
    eventually(lambda: not any("s.sock" in thread.name for thread in threading.enumerate()))


def _call(stage: Stage, digest: str, pod: str) -> Callable[[], tuple[str, str]]:
    """Publish from a thread of its own; return what waits for the answer."""
    answers: list[tuple[str, str]] = []
    thread = Thread(target=lambda: answers.append(stage.publish(digest, pod)), name=pod)
    thread.start()

    def answered() -> tuple[str, str]:
        thread.join()
        return answers[0]

    return answered
