"""Node-to-node sync as a spec test sees it: a client of plugins' peer ports, and peers that lie.

`PeerClient` speaks to a plugin as another plugin would, or as somebody who should not. `Impostor`
is a node whose Pod and status look like any plugin's and whose answers are the test's choice.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import self_signed, server_context
from spec_tests import oracle
from spec_tests.oracle import Tree
from spec_tests.scenario import World

AUDIENCE: Final = "gpustack-model-peer"
_DEADLINE_SECONDS: Final = 30.0
Json = dict[str, Any]


def free_port() -> int:
    """Return a port that nobody listens on, on any of this machine's addresses."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104 - only so can a port be free everywhere
        port: int = probe.getsockname()[1]
    return port


def plugin_pods(world: World) -> list[Json]:
    """Return the plugins' Pods: those in the operator's namespace that declare the peer port."""
    pods = world.api.list("v1", "Pod", namespace=oracle.OPERATOR_NAMESPACE)
    return [pod for pod in pods if "peer-sync" in ports(pod)]


def ports(pod: Json) -> set[str]:
    """Return the names of a Pod's ports."""
    declared = (port for c in pod["spec"]["containers"] for port in c.get("ports", []))
    return {port.get("name", "") for port in declared}


def tree_path(digest: str) -> str:
    """Return the path of a tree's listing."""
    return "/peer/v1/trees/" + digest.removeprefix("sha256:")


def file_path(digest: str, path: str) -> str:
    """Return the path of a tree's file."""
    return f"{tree_path(digest)}/files/{quote(path)}"


class PeerClient:
    """Asks one node's peer port; the token is a plugin's unless another is given."""

    def __init__(self, world: World, node: str) -> None:
        """Find the plugin of a node."""
        self._world = world
        (pod,) = [pod for pod in plugin_pods(world) if pod["spec"]["nodeName"] == node]
        self.pod: str = pod["metadata"]["name"]
        self.address: str = pod["status"]["podIP"]
        self.own_token = self.token()

    def token(
        self,
        account: str = "",
        audience: str = AUDIENCE,
        *,
        seconds: int = 3600,
        pod: str = "",
    ) -> str:
        """Return a fresh token of an account in the operator's namespace, the plugins' by default.

        A plugin's token is bound to the node's plugin Pod, or to the one that `pod` names.
        """
        name = account or self._world.seat.plugin_user.rpartition(":")[2]
        bound = "" if account else pod or self.pod
        cluster = self._world.seat.cluster
        issued: str = cluster.account_token(
            (oracle.OPERATOR_NAMESPACE, name), pod=bound, audiences=(audience,), seconds=seconds
        )
        return issued

    def connection(self) -> http.client.HTTPSConnection:
        """Return a connection; close it."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(
            self.address, self._world.shape.peer_port, context=context, timeout=_DEADLINE_SECONDS
        )

    def headers(self, token: str | None = None) -> dict[str, str]:
        """Return what a request brings; an empty token is none at all."""
        shown = self.own_token if token is None else token
        return {"Authorization": f"Bearer {shown}"} if shown else {}

    def get(
        self, path: str, *, token: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return status, body and headers of a GET whose path is sent as it is."""
        connection = self.connection()
        try:
            connection.request("GET", path, headers={**self.headers(token), **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers  # type: ignore[return-value]  # a Message maps names to values
        finally:
            connection.close()

    def status(self, path: str, token: str | None = None) -> int:
        """Return the status of a GET."""
        return self.get(path, token=token)[0]


def listing_of(tree: Tree) -> Json:
    """Return the listing that an honest peer gives of a tree."""
    entries = [
        {"path": file.path, "size": len(file.content), "digest": file.digest} for file in tree.files
    ]
    return {"digest": tree.digest, "entries": entries}


class Impostor:
    """A node that says it holds a tree, and answers as a test wants; honest in what is not said.

    Args:
        listing: changes the listing before it is sent.
        content: changes a file's content before it is cut to the range.
        dies_after: after so many bytes of content in all it resets, and answers no more.
    """

    def __init__(
        self,
        world: World,
        name: str,
        tree: Tree,
        *,
        listing: Callable[[Json], Json] = lambda honest: honest,
        content: Callable[[bytes], bytes] = lambda honest: honest,
        dies_after: int | None = None,
    ) -> None:
        self._tree = tree
        self._listing = listing
        self._content = content
        self._left = dies_after
        self._lock = threading.Lock()
        self.asked: list[str] = []
        self.sent_bytes = 0
        world.seat.cluster.add_node(name)
        address = _pod_address(world, name)
        self._server = Server(
            self._answer,
            name=f"impostor-{name}",
            host=address,
            port=world.shape.peer_port,
            tls=server_context(self_signed(["localhost"])),
        )
        _claim(world, name, tree)

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self._server.stop()

    def _answer(self, request: Request) -> Response:
        self.asked.append(request.path)
        if self._left is not None and self._left <= 0:
            return Response(500, [], b"gone")
        path = request.path
        if path == tree_path(self._tree.digest):
            return Response(200, [], json.dumps(self._listing(listing_of(self._tree))).encode())
        name = unquote(path.removeprefix(tree_path(self._tree.digest) + "/files/"))
        content = self._content(self._tree.contents()[name])
        first, _, last = (request.headers.get("Range") or "").removeprefix("bytes=").partition("-")
        start, end = int(first or 0), min(int(last or len(content)) + 1, len(content))
        told = [
            ("Content-Range", f"bytes {start}-{end - 1}/{len(content)}"),
            ("Content-Length", str(end - start)),
        ]
        return Response(206, told, self._pieces(content[start:end]))

    def _pieces(self, content: bytes) -> Iterator[bytes]:
        step = 1 << 16
        for offset in range(0, len(content), step):
            piece = content[offset : offset + step]
            with self._lock:
                if self._left is not None:
                    if self._left <= 0:
                        raise ConnectionResetError
                    self._left -= len(piece)
                self.sent_bytes += len(piece)
            yield piece


def _pod_address(world: World, node: str) -> str:
    """Put a plugin's Pod on a node, without a plugin in it, and return its address."""
    (like, *_) = plugin_pods(world)
    name = f"impostor-{node}"
    labels = like["metadata"]["labels"]
    metadata = {"name": name, "namespace": oracle.OPERATOR_NAMESPACE, "labels": labels}
    container = {"name": "main", "image": "impostor"}
    declared = [{"name": "peer-sync", "containerPort": world.shape.peer_port}]
    spec = {"nodeName": node, "containers": [{**container, "ports": declared}]}
    world.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def address() -> str:
        pod = world.api.get("v1", "Pod", name, namespace=oracle.OPERATOR_NAMESPACE)
        ready = any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions", ())
        )
        return str(pod["status"].get("podIP", "")) if ready else ""

    return world.until(address, f"{name} runs", within_seconds=30)


def _claim(world: World, node: str, tree: Tree) -> None:
    """Write a status that lists the tree as Ready."""
    world.stand_in.configure(node)
    store = world.api.get(oracle.API, "NodeModelStore", node)
    entry = {"digest": tree.digest, "state": "Ready", "sizeBytes": tree.size_bytes}
    capacity = {"totalBytes": 1 << 40, "storedBytes": tree.size_bytes, "usedPercent": 0}
    store["status"] = {"capacity": capacity, "models": [entry]}
    world.api.update_status(store)
