"""Calls to plugins over unix sockets: gRPC with kubelet's deadlines and kubelet's error texts.

A deadline runs on the emulator's clock: the caller waits there for the answer, and hangs up when
time is over, as a real kubelet does. Each call has a connection of its own, so nothing outlives a
plugin that goes away.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from emulator.contracts import Clock
from emulator.stillness import step_aside
from gpustack_delivery.csi_wire import (
    csi_pb2,
    csi_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

CALL_SECONDS = 120.0
_UNCERTAIN_CODES = {"Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"}
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_LISTEN_ATTEMPTS = 300


class CallError(Exception):
    """A call was answered with an error, or not at all; the text is how kubelet writes it."""

    def __init__(self, code: str, description: str) -> None:
        """Hold the code as Go names it, such as PermissionDenied, and the plugin's text."""
        super().__init__(f"rpc error: code = {code} desc = {description}")
        self.code = code

    @property
    def final(self) -> bool:
        """Say whether the plugin has certainly ended what it was asked to do."""
        return self.code not in _UNCERTAIN_CODES


class HungUp(Exception):
    """The caller is being stopped in the middle of a call."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service."""

    stub: Callable[[grpc.Channel], Any]
    name: str

    def of(self, channel: grpc.Channel) -> Any:
        """Return what calls the method over a channel."""
        return getattr(self.stub(channel), self.name)


class Deadlines:
    """How long calls may take, where a test wants less than kubelet gives them. Thread-safe."""

    def __init__(self) -> None:
        """Shorten nothing."""
        self._lock = threading.Lock()
        self._shortened: dict[str, tuple[float, int]] = {}  # method to seconds and times

    def shorten(self, method: str, seconds: float, times: int) -> None:
        """Give the next `times` calls of a method so many seconds."""
        with self._lock:
            self._shortened[method] = (seconds, times)

    def of(self, method: str, usual_seconds: float) -> float:
        """Return how long a call that begins now may take."""
        with self._lock:
            seconds, times = self._shortened.get(method, (usual_seconds, 0))
            if times:
                self._shortened[method] = (seconds, times - 1)
            return seconds if times else usual_seconds


class Line:
    """What one kubelet calls through, until it is stopped."""

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        """Start with no call under way."""
        self._clock = clock
        self._deadlines = deadlines
        self._changed = threading.Condition()
        self._closed = False

    def close(self) -> None:
        """Hang up every call, and refuse new ones."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def call(self, path: Path, method: Method, request: Any, seconds: float) -> Any:
        """Call a plugin and wait for its answer.

        Raises:
            CallError: the plugin's answer, or that there was none in time.
            HungUp: the line was closed meanwhile.
        """
        seconds = self._deadlines.of(method.name, seconds)
        with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
            call = method.of(channel)
            future = call.future(request, timeout=seconds)
            future.add_done_callback(self._wake)
            self._await(future, seconds)
            try:
                return future.result()
            except grpc.RpcError as error:
                raise _in_kubelets_words(error, path) from None

    def _wake(self, _: grpc.Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def _await(self, future: grpc.Future, seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        with self._changed:
            while not future.done():
                left = deadline - self._clock.monotonic()
                if self._closed or left <= 0:
                    break
                self._clock.wait(self._changed, left)
            hung_up = self._closed
        if hung_up:
            future.cancel()
            raise HungUp
        if not future.done():
            future.cancel()
            raise CallError("DeadlineExceeded", "context deadline exceeded")


class Driver:
    """The CSI driver behind one socket."""

    def __init__(self, line: Line, name: str, path: Path) -> None:
        """Know where the driver listens."""
        self.name = name
        self.socket = path
        self._line = line

    def node_info(self) -> Any:
        """Return NodeGetInfo's answer."""
        return self._call("NodeGetInfo", csi_pb2.NodeGetInfoRequest())

    def capabilities(self) -> frozenset[str]:
        """Return the names of the driver's node capabilities."""
        answer = self._call("NodeGetCapabilities", csi_pb2.NodeGetCapabilitiesRequest())
        kind = csi_pb2.NodeServiceCapability.RPC.Type
        return frozenset(kind.Name(capability.rpc.type) for capability in answer.capabilities)

    def publish(self, request: Any) -> None:
        """Call NodePublishVolume."""
        self._call("NodePublishVolume", request)

    def unpublish(self, volume_id: str, target: Path) -> None:
        """Call NodeUnpublishVolume."""
        self._call(
            "NodeUnpublishVolume",
            csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume_id, target_path=str(target)),
        )

    def _call(self, method: str, request: Any) -> Any:
        called = Method(csi_pb2_grpc.NodeStub, method)
        return self._line.call(self.socket, called, request, CALL_SECONDS)


class Registration:
    """The registration service behind one socket in plugins_registry."""

    def __init__(self, line: Line, path: Path) -> None:
        """Know where the service listens."""
        self.socket = path
        self._line = line

    def info(self) -> Any:
        """Return GetInfo's answer."""
        _await_listener(self.socket)
        return self._call("GetInfo", pluginregistration_pb2.InfoRequest(), 1.0)

    def notify(self, error: str = "") -> None:
        """Tell the plugin that it is registered, or why it is not."""
        status = pluginregistration_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        self._call("NotifyRegistrationStatus", status, 5.0)

    def _call(self, method: str, request: Any, seconds: float) -> Any:
        called = Method(pluginregistration_pb2_grpc.RegistrationStub, method)
        return self._line.call(self.socket, called, request, seconds)


def _await_listener(path: Path) -> None:
    """Give whoever has just made a socket the moment it needs to listen on it, too.

    What is refused after that is a socket that a plugin left behind.
    """
    for _ in range(_LISTEN_ATTEMPTS):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                step_aside()
            except OSError:
                return
            else:
                return


def _in_kubelets_words(error: grpc.RpcError, path: Path) -> CallError:
    """Translate the code's name, and texts that come from the library and not from the plugin."""
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    description = error.details() or ""
    if code == "Cancelled":
        code = "Canceled"
    if code == "DeadlineExceeded" and description == "Deadline Exceeded":
        description = "context deadline exceeded"
    if code == "Unavailable" and description.startswith("failed to connect to all addresses"):
        why = re.search(r"connect: ([^()]+?) \(\d+\)", description)
        cause = (why[1] if why else "connection refused").lower()
        dialing = f"transport: Error while dialing: dial unix {path}: connect: {cause}"
        description = f'connection error: desc = "{dialing}"'
    if code == "Unavailable" and description in {
        "Socket closed",
        "recvmsg:Connection reset by peer",
    }:
        description = "error reading from server: EOF"
    return CallError(code, description)
