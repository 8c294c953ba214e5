"""The CSI socket: protobuf in, records out, and every error mapped to a gRPC code in one place.

Identity and Node on a unix socket, for kubelet alone. A call is translated once on entry, its
credential apart from everything that can be printed, and handed to `mounting`. Nothing of a request
is ever logged: a volume context may carry a service account's token, and the secrets map is one.
Calls that this plugin has no capability for are answered by gRPC itself, as unimplemented.

This is the only importer of grpc; the registrar borrows `SocketServer` and `driver_name` from here.

Rules: NS-AUT-12, NS-DL-01, NS-DL-26, NS-REF-04, NS-FR-08.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import grpc

from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc
from gpustack_delivery.decisions.authorization import Access, MountRequest
from gpustack_delivery.errors import (
    ConfigurationFault,
    DeliveryError,
    Malformed,
    Pending,
    Refused,
    Waiting,
)
from gpustack_delivery.node.mounting import Mounting, follow
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import (
    ATTRIBUTE_ARTIFACT,
    ATTRIBUTE_DIGEST,
    ATTRIBUTE_UID,
    TOKEN_KEY,
)
from gpustack_delivery.vocabulary.resources import DRIVER_NAME

# The kernel keeps 108 bytes for a socket's path, the final zero included.
LONGEST_SOCKET_PATH: Final = 107
WORKERS: Final = 16
CLOSING_SECONDS: Final = 5.0
_CODES: Final[dict[type[DeliveryError], grpc.StatusCode]] = {
    Malformed: grpc.StatusCode.INVALID_ARGUMENT,
    Refused: grpc.StatusCode.PERMISSION_DENIED,
    Pending: grpc.StatusCode.ABORTED,
    Waiting: grpc.StatusCode.UNAVAILABLE,
}
_ACCESS: Final = {"mount": Access.MOUNT, "block": Access.BLOCK, None: Access.UNSTATED}
_log = logging.getLogger(__name__)


class SocketServer:
    """A gRPC server on one unix socket, from `start` to `stop`.

    Args:
        path: the socket; its directory is made with mode 0750, and a dead socket in its place is
            removed.
        register: adds the services to the server.
    """

    def __init__(self, path: Path, register: Callable[[grpc.Server], None]) -> None:
        check_socket_path(path)
        self._path = path
        self._register = register
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Bind the socket and serve.

        Raises:
            ConfigurationFault: something else stands at the path, or it cannot be used.
        """
        _make_way(self._path)
        pool = self._pool = _staffed(self._path.name)
        server = grpc.server(pool)
        self._register(server)
        try:
            server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise ConfigurationFault(f"the socket {self._path} cannot be bound: {error}") from error
        server.start()
        self._server = server

    def stop(self) -> None:
        """Let running calls end, then close and remove the socket; safe twice."""
        if self._server is not None:
            self._server.stop(CLOSING_SECONDS).wait()
            self._server = None
            self._path.unlink(missing_ok=True)
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class DriverSocket(SocketServer):
    """The driver on its socket.

    Args:
        path: where kubelet finds it.
        node_name: what NodeGetInfo answers.
        mounting: who answers mount calls.
    """

    def __init__(self, path: Path, node_name: str, mounting: Mounting) -> None:
        def register(server: grpc.Server) -> None:
            csi_pb2_grpc.add_IdentityServicer_to_server(_Identity(), server)
            csi_pb2_grpc.add_NodeServicer_to_server(_Node(node_name, mounting), server)

        super().__init__(path, register)


class _Identity(csi_pb2_grpc.IdentityServicer):  # type: ignore[misc]  # stubs are untyped
    """csi.v1.Identity."""

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the wire's name
        """Say who we are."""
        return csi_pb2.GetPluginInfoResponse(
            name=DRIVER_NAME, vendor_version=version("gpustack-delivery")
        )

    def GetPluginCapabilities(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Say that there is no controller and nothing else optional."""
        return csi_pb2.GetPluginCapabilitiesResponse()

    def Probe(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Answer: a process that answers is one that serves."""
        return csi_pb2.ProbeResponse()


class _Node(csi_pb2_grpc.NodeServicer):  # type: ignore[misc]  # stubs are untyped
    """csi.v1.Node. What is not overridden here answers Unimplemented."""

    def __init__(self, node_name: str, mounting: Mounting) -> None:
        self._node_name = node_name
        self._mounting = mounting

    def NodeGetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the wire's name
        """Say which node this is."""
        return csi_pb2.NodeGetInfoResponse(node_id=self._node_name)

    def NodeGetCapabilities(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Say that there is no staging, no statistics and no expansion."""
        return csi_pb2.NodeGetCapabilitiesResponse()

    def NodePublishVolume(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Mount, or answer why not yet."""
        token = Token(request.secrets.get(TOKEN_KEY, "").strip())
        _answered(context, lambda: self._mounting.publish(_read(request), token or None))
        return csi_pb2.NodePublishVolumeResponse()

    def NodeUnpublishVolume(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Unmount."""
        volume_id, target = request.volume_id, request.target_path
        _answered(context, lambda: self._mounting.unpublish(volume_id, target))
        return csi_pb2.NodeUnpublishVolumeResponse()


def _answered(context: Any, call: Callable[[], None]) -> None:
    """Run a call; its error ends the RPC with the error's code and text."""
    try:
        call()
    except DeliveryError as error:
        code = next((c for kind, c in _CODES.items() if isinstance(error, kind)), None)
        if code is None:
            _log.error("call failed: %s detail=%s", error, error.detail)
        message, code = str(error), code or grpc.StatusCode.INTERNAL
    except Exception as error:  # noqa: BLE001 - the last door: an unknown text never leaves
        stack = "".join(traceback.format_tb(error.__traceback__))
        _log.error("call failed by a mistake of ours: %s at\n%s", type(error).__name__, stack)
        message, code = "an internal error; the plugin's log names it", grpc.StatusCode.INTERNAL
    else:
        return
    context.abort(code, message)


def _read(request: Any) -> MountRequest:
    """Translate a publish call; everything in it but the secrets."""
    context = request.volume_context
    access = Access.ABSENT
    if request.HasField("volume_capability"):
        access = _ACCESS[request.volume_capability.WhichOneof("access_type")]
    return MountRequest(
        volume_id=request.volume_id,
        target=request.target_path,
        resolved_target=follow(request.target_path),
        access=access,
        ephemeral=context.get("csi.storage.k8s.io/ephemeral", "") == "true",
        pod_namespace=context.get("csi.storage.k8s.io/pod.namespace", ""),
        artifact=context.get(ATTRIBUTE_ARTIFACT, ""),
        artifact_uid=context.get(ATTRIBUTE_UID, ""),
        manifest_digest=context.get(ATTRIBUTE_DIGEST, ""),
        pod_name=context.get("csi.storage.k8s.io/pod.name", ""),
        pod_uid=context.get("csi.storage.k8s.io/pod.uid", ""),
    )


def check_socket_path(path: Path) -> None:
    """Check that the kernel can hold a socket's path.

    Raises:
        ConfigurationFault: it is too long.
    """
    length = len(os.fsencode(path))
    if length > LONGEST_SOCKET_PATH:
        raise ConfigurationFault(
            f"the socket path is {length} bytes long and the kernel takes {LONGEST_SOCKET_PATH}: "
            f"{path}"
        )


def driver_name(path: Path, *, timeout_seconds: float) -> str:
    """Ask a driver behind a socket for its name.

    Raises:
        ConfigurationFault: it did not answer in time.
    """
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = csi_pb2_grpc.IdentityStub(channel)
        try:
            answer = stub.GetPluginInfo(
                csi_pb2.GetPluginInfoRequest(), timeout=timeout_seconds, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise ConfigurationFault(
                f"no CSI driver answers at {path}: {error.code().name}"
            ) from None
    name: str = answer.name
    return name


def _staffed(name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads are all there.

    One that grows by the call is the end of the socket when the system has no thread left: gRPC's
    own thread, which hears of it, answers nobody any more.

    Raises:
        ConfigurationFault: there are not enough.
    """
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix=name)
    together = threading.Barrier(WORKERS)
    try:
        for _ in range(WORKERS):
            pool.submit(together.wait)
    except RuntimeError as error:
        together.abort()
        pool.shutdown()
        raise ConfigurationFault(
            f"the {WORKERS} threads that answer on {name} cannot be started: the Pod or the node "
            "has too many; see podPidsLimit"
        ) from error
    return pool


def _make_way(path: Path) -> None:
    """Make the socket's directory, and remove a socket on which nobody listens any more."""
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        if not path.exists() and not path.is_symlink():
            return
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigurationFault(
                f"{path} exists and is no socket; it is left untouched: remove it, or name another"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(os.fspath(path)) == 0:
                raise ConfigurationFault(f"another process already listens on {path}")
        path.unlink(missing_ok=True)
    except OSError as error:
        message = f"the socket {path} cannot be used: {error.strerror}"
        raise ConfigurationFault(message) from error
