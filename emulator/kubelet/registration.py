"""Plugins come and go through their sockets in plugins_registry.

For each socket: GetInfo, NodeGetInfo of the CSI driver it names, the entry in CSINode and on the
Node, then NotifyRegistrationStatus. What fails is told to the plugin and tried again with back-off.
When the socket goes, the driver leaves the CSINode at once; one that was made anew registers anew.
"""

from __future__ import annotations

import logging
import re
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.contracts import Clock
from emulator.errors import ApiError
from emulator.kubelet.calls import CallError, Driver, HungUp, Line, Registration
from emulator.kubelet.folder import FolderWatch
from emulator.kubelet.node_objects import NodeObjects
from emulator.kubelet.retries import Retries

_log = logging.getLogger(__name__)
_TICK_SECONDS = 1.0


class _RefusedError(Exception):
    """The plugin cannot be registered; the text is what it is told."""


@dataclass(slots=True)
class _Socket:
    """One socket in the folder, and how far its registration is."""

    identity: tuple[int, int]  # inode and modification time: a socket made anew is another one
    retries: Retries
    driver: str = ""  # the CSI driver that was registered through it
    settled: bool = field(default=False)


class Plugins:
    """The plugins of one node. `drivers` are those that volumes can use now."""

    def __init__(self, registry: Path, line: Line, node: NodeObjects, clock: Clock) -> None:
        """Look at nothing yet; `start` begins."""
        self._registry = registry
        self._line = line
        self._node = node
        self._clock = clock
        self._changed = threading.Condition()
        self._look = True
        self._looked = False
        self._forget = False
        self._stopped = False
        self._sockets: dict[Path, _Socket] = {}
        self._drivers: dict[str, Driver] = {}
        self._thread = threading.Thread(target=self._run, name=f"plugins:{node.name}", daemon=True)
        self._watch: FolderWatch | None = None

    @property
    def drivers(self) -> Mapping[str, Driver]:
        """Return the registered CSI drivers by name."""
        with self._changed:
            return dict(self._drivers)

    def start(self) -> None:
        """Register what is there and watch for more."""
        name = f"plugins-folder:{self._node.name}"
        self._watch = FolderWatch(self._registry, self._noticed, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; what is registered stays so, as with a kubelet that ends."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._watch is not None:
            self._watch.close()
        if self._thread.is_alive():
            self._thread.join()

    def wait_for_first_look(self) -> None:
        """Return when every socket that lay there at the start has been tried once."""
        with self._changed:
            while not self._looked and not self._stopped:
                self._clock.wait(self._changed, None)

    def flicker(self) -> None:
        """Take every driver out of CSINode and register each again at once."""
        with self._changed:
            self._forget = self._look = True
            self._changed.notify_all()

    def _noticed(self) -> None:
        with self._changed:
            self._look = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._wait():
                self._compare()
                for path, socket in list(self._sockets.items()):
                    if not socket.settled and not self._seconds_left(socket):
                        self._register(path, socket)
                with self._changed:
                    self._looked = True
                    self._changed.notify_all()
        except HungUp:
            return

    def _wait(self) -> bool:
        """Wait until there is something to do; return False when stopped."""
        with self._changed:
            while not self._stopped and not self._look:
                waiting = [self._seconds_left(s) for s in self._sockets.values() if not s.settled]
                if waiting and not min(waiting):
                    break
                self._clock.wait(self._changed, min(waiting, default=None))
            self._look = False
            return not self._stopped

    def _seconds_left(self, socket: _Socket) -> float:
        return socket.retries.seconds_left("register", self._clock.monotonic())

    def _compare(self) -> None:
        """Bring the known sockets up to what lies in the folder."""
        found = dict(_sockets_in(self._registry))
        with self._changed:
            forget, self._forget = self._forget, False
        for path, socket in list(self._sockets.items()):
            if forget or found.get(path) != socket.identity:
                del self._sockets[path]
                self._deregister(socket)
        for path, identity in found.items():
            if path not in self._sockets:
                retries = Retries(_TICK_SECONDS, self._clock.monotonic())
                self._sockets[path] = _Socket(identity, retries)

    def _deregister(self, socket: _Socket) -> None:
        if not socket.driver:
            return
        with self._changed:
            self._drivers.pop(socket.driver, None)
        self._node.remove_driver(socket.driver)

    def _register(self, path: Path, socket: _Socket) -> None:
        registration = Registration(self._line, path)
        try:
            try:
                socket.driver = self._take_in(registration.info(), path)
            except _RefusedError as error:
                registration.notify(f"RegisterPlugin error -- {error}")
                raise
            socket.settled = True
            registration.notify()
        except (CallError, _RefusedError, ApiError) as error:
            _log.info("plugin not registered socket=%s error=%s", path, error)
            if not socket.settled:
                socket.retries.failed("register", self._clock.monotonic())

    def _take_in(self, info: Any, path: Path) -> str:
        """Register what GetInfo described; return the driver's name."""
        if info.type != "CSIPlugin":
            text = f"no handler registered for plugin type: {info.type} at socket {path}"
            raise _RefusedError(text)
        endpoint = info.endpoint or str(path)
        if (fault := _version_fault(info.supported_versions)) is not None:
            raise _RefusedError(
                f"plugin validation failed with err: validation failed for CSI Driver {info.name} "
                f"at endpoint {endpoint}: kubernetes.io/csi: ValidatePlugin for CSI driver "
                f'"{info.name}" failed. None of the versions specified '
                f"[{' '.join(map(_quoted, info.supported_versions))}] are supported. err={fault}"
            )
        driver = Driver(self._line, info.name, Path(endpoint))
        with self._changed:
            self._drivers[info.name] = driver
        try:
            answer = driver.node_info()
            if not answer.node_id:
                raise _RefusedError(
                    "error adding CSI driver node info: driverNodeID must not be empty"
                )
            self._node.add_driver(
                info.name,
                answer.node_id,
                dict(answer.accessible_topology.segments),
                answer.max_volumes_per_node,
            )
        except (CallError, _RefusedError, ApiError) as error:
            with self._changed:
                self._drivers.pop(info.name, None)
            raise _RefusedError(f"plugin registration failed with err: {error}") from error
        return str(info.name)


def _sockets_in(folder: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Return the sockets below a folder, hidden ones apart, each with its identity."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            facts = path.lstat()
        except OSError:
            continue  # it went while we looked
        if stat.S_ISSOCK(facts.st_mode) and not path.name.startswith("."):
            found.append((path, (facts.st_ino, facts.st_mtime_ns)))
    return found


def _version_fault(versions: list[str]) -> str | None:
    """Return what is wrong with the versions a plugin speaks: the highest must be 1.x."""
    numbers = []
    for version in versions:
        match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?", version)
        if match is None:
            return f'could not parse "{version}" as version'
        numbers.append((tuple(int(part or 0) for part in match.groups()), version))
    if not numbers:
        return "could not find any versions"
    (major, *_), highest = max(numbers)
    return None if major == 1 else f"highest supported version reported is {highest}, must be v1.x"


def _quoted(text: str) -> str:
    return f'"{text}"'
