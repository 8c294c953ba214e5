"""How fast and how small the emulator is: one line for each promise, beside what was measured.

    python -m tests.performance.emulated [--nodes 5000] [--watches 500]

The clients are processes of their own that do nothing but send and count, so that the numbers are
the server's as far as the machine has two cores to give. Nothing here fails: it is for people who
compare two states of the code.
"""

from __future__ import annotations

import base64
import copy
import json
import multiprocessing
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from emulator import Cluster
from gpustack_delivery.terminal import Parser, whole_number

Json = dict[str, Any]
_MAP: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "default"},
    "data": {"k": "v"},
}
_PATH = "/api/v1/namespaces/default/configmaps"
_WIDGETS = Path(__file__).parents[1] / "emulator" / "golden" / "widgets.json"


class Wire:
    """One TLS connection to a cluster's API server, with as little of a client as will do."""

    def __init__(self, kubeconfig: str) -> None:
        content = json.loads(Path(kubeconfig).read_text("utf-8"))
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        address = urlsplit(cluster["server"])
        plain = socket.create_connection((address.hostname, address.port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trust = ssl.create_default_context(cadata=authority)
        self._socket = trust.wrap_socket(plain, server_hostname=address.hostname)
        self._file = self._socket.makefile("rb")
        self._head = f"Host: x\r\nAuthorization: Bearer {user['token']}\r\n"

    def send(self, method: str, path: str, body: bytes = b"", type_: str = "") -> None:
        """Send one request and read its answer. Raises RuntimeError unless it is a success."""
        self.begin(method, path, body, type_)
        length = 0
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
        self._file.read(length)

    def begin(self, method: str, path: str, body: bytes = b"", type_: str = "") -> None:
        """Send one request and read the status of its answer. Raises RuntimeError likewise."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"Content-Type: {type_}\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(f"{head}\r\n".encode() + body)
        status = self._file.readline()
        if b" 20" not in status:
            raise RuntimeError(f"{method} {path}: {status!r}")

    def line(self) -> bytes:
        """Return the next line of whatever the server sends."""
        return self._file.readline()

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()


def _reads(kubeconfig: str, count: int, start: Any) -> None:
    with closing(Wire(kubeconfig)) as wire:
        start.wait()
        for _ in range(count):
            wire.send("GET", f"{_PATH}/a")


def _writes(kubeconfig: str, count: int, start: Any) -> None:
    with closing(Wire(kubeconfig)) as wire:
        start.wait()
        for number in range(count):
            body = json.dumps({"data": {"k": f"{os.getpid()}-{number}"}}).encode()
            wire.send("PATCH", f"{_PATH}/a", body, "application/merge-patch+json")


def _watch(kubeconfig: str, count: int, start: Any) -> None:
    """Open watches, and read each until it has seen the object named `last`."""
    wires = [Wire(kubeconfig) for _ in range(count)]
    for wire in wires:
        wire.begin("GET", f"{_PATH}?watch=true")
    start.wait()
    for wire in wires:
        while b'"last"' not in wire.line():
            pass
        wire.close()


class Clients:
    """Processes that begin their work at one moment."""

    def __init__(
        self, work: Callable[..., None], kubeconfig: Path, count: int, number: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._start = context.Barrier(number + 1)
        arguments = (str(kubeconfig), count, self._start)
        self._processes = [context.Process(target=work, args=arguments) for _ in range(number)]
        for process in self._processes:
            process.start()

    def begin(self) -> None:
        """Return when all are ready; from then on they work."""
        self._start.wait(timeout=120)

    def join(self) -> None:
        """Wait for all of them. Raises RuntimeError when one failed."""
        for process in self._processes:
            process.join()
        if any(process.exitcode for process in self._processes):
            raise RuntimeError("a client failed, see above")


def start_seconds() -> float:
    """Return how long a cluster of three nodes takes to be there."""
    begun = time.perf_counter()
    with Cluster() as cluster:
        for number in range(3):
            cluster.add_node(f"node-{number}")
        cluster.settle()
        return time.perf_counter() - begun


def requests_per_second(work: Callable[..., None], count: int, number: int = 4) -> float:
    """Return how many requests a server answers a second to several clients at once."""
    with Cluster() as cluster:
        cluster.client.create(_MAP)
        clients = Clients(work, cluster.kubeconfig(), count, number)
        clients.begin()
        begun = time.perf_counter()
        clients.join()
        return number * count / (time.perf_counter() - begun)


def watches(count: int) -> tuple[float, float]:
    """Return how long one write takes to reach so many watches, and the memory they cost in MiB."""
    with Cluster() as cluster:
        before = resident_mib()
        clients = Clients(_watch, cluster.kubeconfig(), count, 1)
        clients.begin()
        cost = resident_mib() - before
        last = copy.deepcopy(_MAP)
        last["metadata"]["name"] = "last"
        begun = time.perf_counter()
        cluster.client.create(last)
        clients.join()
        return time.perf_counter() - begun, cost


def nodes_mib(count: int) -> float:
    """Return the memory of a cluster with so many nodes' objects: five for each, as written."""
    with Cluster() as cluster:
        before = resident_mib()
        cluster.add_node("model")
        client = cluster.client
        client.apply(json.loads(_WIDGETS.read_text("utf-8")))
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t1"}})
        node = client.get("v1", "Node", "model")
        lease = client.get("coordination.k8s.io/v1", "Lease", "model", namespace="kube-node-lease")
        csi_node = client.get("storage.k8s.io/v1", "CSINode", "model")
        drivers = [{"name": "rig.csi.example.io", "nodeID": "n", "topologyKeys": ["zone"]}]
        pod = {"containers": [{"name": "c", "image": "i"}]}
        for number in range(count):
            name = f"node-{number}"
            labels = {**node["metadata"]["labels"], "kubernetes.io/hostname": name}
            created = client.create({**node, "metadata": {"name": name, "labels": labels}})
            client.update_status({**created, "status": node["status"]})
            meta = {"name": name, "namespace": "kube-node-lease"}
            client.create({**lease, "metadata": meta})
            client.create({**csi_node, "metadata": {"name": name}, "spec": {"drivers": drivers}})
            widget = {"apiVersion": "rig.example.io/v1", "kind": "Widget", "spec": {"size": 2}}
            client.create({**widget, "metadata": {"name": name, "namespace": "t1"}})
            client.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": "t1"},
                    "spec": {**pod, "nodeName": name},
                }
            )
        return resident_mib() - before


def resident_mib() -> float:
    """Return this process's resident memory."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser(description=__doc__)
    parser.add_argument("--nodes", type=whole_number(1, 100_000), default=5000)
    parser.add_argument("--watches", type=whole_number(1, 10_000), default=500)
    parser.add_argument(
        "--requests", type=whole_number(2, 10**7), default=2000, help="of each of four clients"
    )
    arguments = parser.parse_args(argv)
    start_seconds()  # the first start also imports
    rows = [
        ("a cluster of three nodes starts, seconds", "1", start_seconds()),
        ("reads a second", "2000", requests_per_second(_reads, arguments.requests)),
        ("writes a second", "-", requests_per_second(_writes, arguments.requests // 2)),
    ]
    seconds, cost = watches(arguments.watches)
    rows += [
        (f"one write reaches {arguments.watches} watches, seconds", "-", seconds),
        (f"{arguments.watches} open watches, MiB", "-", cost),
        (f"{arguments.nodes} nodes and their objects, MiB", "1024", nodes_mib(arguments.nodes)),
    ]
    for what, promised, measured in rows:
        sys.stdout.write(f"{what:55} promised {promised:>5} measured {measured:10.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
