"""A manual clock for several processes: served on a unix socket, and followed from elsewhere.

    service = ClockService(clock, path).start()          # where the cluster is
    clock = RemoteClock(path)                            # in a plugin's process, say

A follower reads the time of the server, and the server goes to the next moment that anybody, in any
of the processes, waits for. It goes on when all of them have come to rest at once, so what holds
for the threads of one process holds for those of several. Either side may ask to advance.

On the socket go JSON values, one a line; docs/conformance.md says which.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from emulator.clock import ManualClock
from emulator.stillness import runnable


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

    def peer(self) -> int:
        """Return the process at the other end, 0 where the kernel does not tell."""
        if not hasattr(socket, "SO_PEERCRED"):
            return 0
        size = struct.calcsize("3i")
        told = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid: int = struct.unpack("3i", told)[0]
        return pid

    def hang_up(self) -> None:
        """Make the other thread's `receive` end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()


class _Face:
    """Two numbers in a file that the server and one follower map, as doubles of the machine.

    The first is the time, which the server writes. The second is the next moment that a thread of
    the follower waits for, infinity for none, which the follower writes before that thread waits.
    So a follower never reads an old time, and a server that finds it at rest no old deadline.
    """

    _DOUBLES: Final = struct.Struct("=dd")

    def __init__(self, file: Path) -> None:
        """Map a file that `make` made. Raises OSError."""
        with file.open("r+b") as opened:
            memory = mmap.mmap(opened.fileno(), self._DOUBLES.size)
        self.numbers: memoryview[float] = memoryview(memory).cast("d")

    @classmethod
    def make(cls, file: Path, elapsed: float) -> Self:
        """Make one at a time, in a file that is not there yet. Raises OSError."""
        file.touch(mode=0o600)
        file.write_bytes(cls._DOUBLES.pack(elapsed, math.inf))
        return cls(file)


class _Follower:
    """One follower, as the server's clock sees it.

    Whether it is at rest is seen from outside, as for the threads of one's own process: it has
    burnt no CPU time and none of its threads is runnable. Where the kernel shows neither, it is
    believed to be.
    """

    def __init__(self, line: _Line, pid: int, face: _Face) -> None:
        self._line = line
        self._face = face
        self._tasks = f"/proc/{pid}/task"
        # Linux' name for the CPU time of all threads of a process: clock_getcpuclockid(3).
        self._cpu_clock = None if pid in {0, os.getpid()} else (~pid << 3) | 2
        self._burnt = 0
        self.gone = threading.Event()

    def stirs(self) -> bool:
        """Say whether it has run since it was asked last, or runs now, or wants to."""
        if self._cpu_clock is None or self.gone.is_set():
            return False
        try:
            burnt = time.clock_gettime_ns(self._cpu_clock)
        except OSError:
            self.gone.set()
            return False
        before, self._burnt = self._burnt, burnt
        return before != burnt or runnable(self._tasks)

    def next_deadline(self) -> float:
        """Return the next moment that one of its threads waits for."""
        return math.inf if self.gone.is_set() else float(self._face.numbers[1])

    def show(self, elapsed: float) -> None:
        """Let it read this time from now on."""
        self._face.numbers[0] = elapsed

    def wake(self) -> None:
        """Have it wake those of its threads whose time has come, and return when they have run."""
        try:
            self._line.send({"wake": self._face.numbers[0]})
            answer = self._line.receive()
        except OSError:
            answer = None
        if answer is None:
            self.gone.set()


class ClockService:
    """Serves a clock on a unix socket, from `start` to `stop`."""

    def __init__(self, clock: ManualClock, path: Path) -> None:
        self._clock, self._path = clock, path
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._lines: dict[_Line, threading.Thread] = {}
        self._followers: list[_Follower] = []
        self._served = 0
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
        with self._lock:
            self._served += 1
            file = self._path.with_name(f"{self._path.name}.{self._served}")
        follower = _Follower(line, line.peer(), _Face.make(file, elapsed))
        with self._lock:
            self._followers.append(follower)
            if self._stopped:
                follower.gone.set()
        self._clock.guests.append(follower)
        try:
            line.send({"epoch": now - elapsed, "face": str(file)})
            follower.gone.wait()
        finally:
            self._clock.guests.remove(follower)
            file.unlink()
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
        self._face = _Face(Path(hello["face"])).numbers
        self._thread = threading.Thread(target=self._follow, name="clock-follower", daemon=True)
        # A program's signals are its own: this thread is no place for them to end it by default.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, held)

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
            while self._line.receive() is not None:
                self._wake_due()
                self._line.send({"woken": self.monotonic()})
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
