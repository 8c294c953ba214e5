"""A CSI plugin as kubelet sees one: real gRPC on real unix sockets, every call written down.

It answers as a test's script says, and otherwise does its job: it binds a folder of its own at the
target and takes the bind off again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from emulator.contracts import Clock
from emulator.mounts import KernelMounts, MountTable
from emulator.node import Node
from gpustack_delivery.csi_wire import (
    csi_pb2,
    csi_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

Json = dict[str, Any]
NAME = "rig.csi.example.io"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: when on the cluster's clock, which method, what came, how long it might take."""

    at: float
    method: str
    request: Json
    seconds_left: float
    disk: Json


class Refuse(Exception):
    """What a script raises to answer with a gRPC code."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code)
        self.code = grpc.StatusCode[code]
        self.message = message or f"rig says {code}"


@dataclass
class Script:
    """How the plugin answers. Each function may raise `Refuse`, wait, or return."""

    publish: Callable[[Json], None] | None = None
    unpublish: Callable[[Json], None] | None = None
    node_info: Callable[[], None] | None = None
    info: Callable[[], None] | None = None
    node_id: str = "node-a"
    segments: dict[str, str] = field(default_factory=lambda: {"rig.example.io/zone": "z1"})
    capabilities: tuple[str, ...] = ()
    type: str = "CSIPlugin"
    versions: tuple[str, ...] = ("1.0.0",)


def refuse_in_turn(*codes: str) -> Callable[..., None]:
    """Return a script's function that refuses with these codes in turn, then does nothing."""
    left = deque(codes)

    def answer(*_: object) -> None:
        if left:
            raise Refuse(left.popleft())

    return answer


class Plugin(csi_pb2_grpc.NodeServicer, pluginregistration_pb2_grpc.RegistrationServicer):  # type: ignore[misc]
    """The plugin and its registrar on one node."""

    def __init__(self, node: Node, clock: Clock, script: Script | None = None) -> None:
        self.script = script or Script()
        self.calls: list[Call] = []
        self.socket = node.kubelet_dir / "plugins" / NAME / "csi.sock"
        self.registration_socket = node.plugins_registry / f"{NAME}-reg.sock"
        self._mounts: MountTable | KernelMounts = node.mounts
        self._clock = clock
        self._source = node.kubelet_dir.parent / "served"
        self._lock = threading.Lock()
        self._servers: list[grpc.Server] = []
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Listen on both sockets, the CSI one first."""
        self._source.mkdir(exist_ok=True)
        (self._source / "hello").write_text("hi", encoding="utf-8")
        self.socket.parent.mkdir(exist_ok=True)
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="fake-csi")
        for path, add in (
            (self.socket, csi_pb2_grpc.add_NodeServicer_to_server),
            (
                self.registration_socket,
                pluginregistration_pb2_grpc.add_RegistrationServicer_to_server,
            ),
        ):
            server = grpc.server(self._pool)
            add(self, server)
            # Bound elsewhere and moved, so that the server does not remove it when it is killed.
            hidden = path.with_name(f".{path.name}")
            server.add_insecure_port(f"unix:{hidden}")
            server.start()
            hidden.replace(path)
            self._servers.append(server)

    def stop(self) -> None:
        """Stop, and remove both sockets as a well-behaved plugin does."""
        for path in (self.registration_socket, self.socket):
            path.unlink(missing_ok=True)
        self._end()

    def kill(self) -> None:
        """Stop and leave the sockets behind."""
        self._end()

    def _end(self) -> None:
        for server in self._servers:
            server.stop(None).wait()
        self._servers.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    @contextmanager
    def running(self) -> Iterator[Plugin]:
        """Start, and stop in the end."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def named(self, method: str) -> list[Call]:
        """Return the calls of one method."""
        with self._lock:
            return [call for call in self.calls if call.method == method]

    def forget(self) -> None:
        """Forget every call so far."""
        with self._lock:
            self.calls.clear()

    # registration

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """Describe the plugin."""
        self._answer("GetInfo", request, context, lambda _: self.script.info and self.script.info())
        return pluginregistration_pb2.PluginInfo(
            type=self.script.type,
            name=NAME,
            endpoint=str(self.socket),
            supported_versions=self.script.versions,
        )

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - the same
        """Hear what became of the registration."""
        self._answer("NotifyRegistrationStatus", request, context, None)
        return pluginregistration_pb2.RegistrationStatusResponse()

    # CSI

    def NodeGetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the same
        """Name the node."""
        self._answer(
            "NodeGetInfo",
            request,
            context,
            lambda _: self.script.node_info and self.script.node_info(),
        )
        return csi_pb2.NodeGetInfoResponse(
            node_id=self.script.node_id,
            max_volumes_per_node=10,
            accessible_topology=csi_pb2.Topology(segments=self.script.segments),
        )

    def NodeGetCapabilities(self, request: Any, context: Any) -> Any:  # noqa: N802 - the same
        """List the capabilities."""
        self._answer("NodeGetCapabilities", request, context, None)
        rpc = csi_pb2.NodeServiceCapability.RPC
        return csi_pb2.NodeGetCapabilitiesResponse(
            capabilities=[
                csi_pb2.NodeServiceCapability(rpc=rpc(type=rpc.Type.Value(name)))
                for name in self.script.capabilities
            ]
        )

    def NodePublishVolume(self, request: Any, context: Any) -> Any:  # noqa: N802 - the same
        """Bind the served folder at the target, unless it is there already."""
        self._answer("NodePublishVolume", request, context, self.script.publish)
        target = Path(request.target_path)
        if context.is_active() and self._mounts.seen_at(target) is None:
            target.mkdir(exist_ok=True)
            self._mounts.bind_read_only(self._source, target)
        return csi_pb2.NodePublishVolumeResponse()

    def NodeUnpublishVolume(self, request: Any, context: Any) -> Any:  # noqa: N802 - the same
        """Take the bind off and remove the target."""
        self._answer("NodeUnpublishVolume", request, context, self.script.unpublish)
        target = Path(request.target_path)
        self._mounts.unmount(target)
        if target.exists():
            target.rmdir()
        return csi_pb2.NodeUnpublishVolumeResponse()

    def _answer(
        self, method: str, request: Any, context: Any, act: Callable[[Json], object] | None
    ) -> None:
        content = MessageToDict(request, preserving_proto_field_name=True)
        target = Path(content["target_path"]) if "target_path" in content else None
        disk = {
            "targetExists": target is not None and target.exists(),
            "targetIsMount": target is not None and self._mounts.seen_at(target) is not None,
            "parentExists": target is not None and target.parent.exists(),
        }
        call = Call(self._clock.monotonic(), method, content, context.time_remaining(), disk)
        with self._lock:
            self.calls.append(call)
        try:
            if act is not None:
                act(content)
        except Refuse as refused:
            context.abort(refused.code, refused.message)
