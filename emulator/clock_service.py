"""A manual clock for several processes: served on a unix socket, and followed from elsewhere.

    service = ClockService(clock, path).start()          # where the cluster is
    clock = RemoteClock(path)                            # in a plugin's process, say

A follower keeps time of its own, which only the server moves: to the next moment that anybody,
in any of the processes, waits for. The server goes on when all of them have come to rest, so what
holds for the threads of one process holds for those of several. Either side may ask to advance.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from emulator.clock import ManualClock

_ANSWER_SECONDS = 30.0


class _Line:
    """JSON values over a socket, one a line."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._file = sock.makefile("rb")

    def send(self, value: Any) -> None:
        """Send a value. Raises OSError."""
        self._socket.sendall(json.dumps(value).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next value, None at the end. Raises OSError."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def hang_up(self) -> None:
        """Make the other thread's `receive` end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()


class _Follower:
    """One follower, as the server's clock sees it."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self.gone = threading.Event()

    def rest(self) -> tuple[float | None, int]:
        """Return its next deadline and how often it has waited, once it is at rest."""
        answer = self._ask({"rest": True})
        return (answer["next"], answer["waits"]) if answer else (None, 0)

    def move(self, elapsed: float) -> None:
        """Move its time."""
        self._ask({"move": elapsed})

    def _ask(self, question: Any) -> Any:
        """Return its answer; None when it has gone, which ends it as a guest."""
        if self.gone.is_set():
            return None
        try:
            self._line.send(question)
            answer = self._line.receive()
        except OSError:
            answer = None
        if answer is None:
            self.gone.set()
        return answer


class ClockService:
    """Serves a clock on a unix socket, from `start` to `stop`."""

    def __init__(self, clock: ManualClock, path: Path) -> None:
        self._clock, self._path = clock, path
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._lines: dict[_Line, threading.Thread] = {}
        self._followers: list[_Follower] = []
        self._acceptor: threading.Thread | None = None
        self._stopped = False

    def start(self) -> Self:
        """Listen; whoever can reach the socket can move the clock. Raises OSError."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self._path))
        except OSError:
            listener.close()
            raise
        self._path.chmod(0o600)
        listener.listen()
        self._listener = listener
        self._acceptor = threading.Thread(
            target=self._accept, args=(listener,), name="clock-service"
        )
        self._acceptor.start()
        return self

    def stop(self) -> None:
        """Let every follower's time stand still, and listen no more."""
        with self._lock:
            self._stopped = True
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._path.unlink(missing_ok=True)
        if self._acceptor is not None:
            self._acceptor.join()
        with self._lock:
            lines = dict(self._lines)
            for follower in self._followers:
                follower.gone.set()
        for line in lines:
            line.hang_up()
        for thread in lines.values():
            thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            line = _Line(sock)
            thread = threading.Thread(target=self._serve, args=(line,), name="clock-client")
            with self._lock:
                if self._stopped:
                    line.close()
                    continue
                self._lines[line] = thread
            thread.start()

    def _serve(self, line: _Line) -> None:
        try:
            hello = line.receive()
            if hello == {"role": "follower"}:
                self._follow(line)
            elif hello is not None:
                self._obey(line, hello)
        except OSError:
            pass  # it has gone
        finally:
            with self._lock:
                self._lines.pop(line, None)
            line.close()

    def _follow(self, line: _Line) -> None:
        """Make a process a guest of the clock until it goes."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        line.send({"epoch": now - elapsed, "elapsed": elapsed})
        follower = _Follower(line)
        self._clock.guests.append(follower)
        try:
            with self._lock:
                self._followers.append(follower)
                if self._stopped:
                    follower.gone.set()
            follower.gone.wait()
        finally:
            self._clock.guests.remove(follower)
            with self._lock:
                self._followers.remove(follower)

    def _obey(self, line: _Line, asked: Any) -> None:
        """Advance the clock as often as a process asks for it, and say the time."""
        while asked is not None:
            try:
                self._clock.advance(float(asked["advance"]))
                line.send({"now": self._clock.now()})
            except (KeyError, TypeError, ValueError) as error:
                line.send({"error": str(error)})
            asked = line.receive()


class RemoteClock(ManualClock):
    """The clock of another process; used like one of one's own, from construction to `close`."""

    def __init__(self, path: Path) -> None:
        """Follow the clock that is served at a path. Raises OSError when there is none."""
        self._path = path
        self._line = _Line(_connected(path))
        self._line.send({"role": "follower"})
        hello = self._line.receive()
        super().__init__(hello["epoch"])
        self._elapsed = hello["elapsed"]
        self._thread = threading.Thread(target=self._follow, name="clock-follower", daemon=True)
        self._thread.start()

    def advance(self, seconds: float) -> None:
        """Ask the server to move the time of everybody.

        Raises:
            ValueError: for a negative number, or when the server does not answer.
        """
        line = _Line(_connected(self._path))
        try:
            line.send({"advance": seconds})
            answer = line.receive()
        finally:
            line.close()
        if answer is None or "error" in answer:
            raise ValueError(f"the clock did not move: {answer and answer['error']}")

    def close(self) -> None:
        """Follow no more: time stands still here."""
        self._line.hang_up()
        self._thread.join()
        self._line.close()

    def _follow(self) -> None:
        try:
            while (asked := self._line.receive()) is not None:
                if "move" in asked:
                    self._advance_to(asked["move"])
                self.rest()
                self._line.send({"next": self.next_deadline(), "waits": self.waits})
        except OSError:
            return


def _connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(path))
    except BaseException:
        sock.close()
        raise
    return sock
