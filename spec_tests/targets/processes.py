"""The processes target: an implementation that is known by its manifest alone.

Its programs are child processes against the emulator on loopback. Mounts are the kernel's, in a
mount namespace that the suite and the programs share and nobody else sees; each node's cache lies
on a small tmpfs. Stopping is SIGTERM, killing is SIGKILL.

Time is real. A test may let a few seconds pass; one that asks for more than `--real-seconds` at
once is `unsupported`, and so is what no one can bring about from outside a program.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from emulator.clock import SystemClock
from emulator.cluster import Cluster
from emulator.contracts import DeleteOptions
from emulator.errors import ApiError
from emulator.mounts import enter_private_namespace
from gpustack_delivery.httpd.certificates import Authority
from spec_tests import oracle
from spec_tests.scenario import World
from spec_tests.targets import Unsupported
from spec_tests.targets.disks import Tmpfs, WatchedMounts
from spec_tests.targets.manifest import MODEL_MANAGER, WORKER, Manifest
from spec_tests.targets.objects import pod_template, read, services, without_worker
from spec_tests.targets.programs import Program, ProgramLogs, spent
from spec_tests.targets.registration import Registration, driver_name
from spec_tests.targets.settings import point_at_hub, withdraw
from spec_tests.waiting import eventually, pause
from spec_tests.worlds import Log, Shape

START_SECONDS: Final = 60.0
"""How long a program may take until it answers."""

_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.03
_HOST: Final = "127.0.0.1"


class Processes:
    """Builds worlds for the implementation of one manifest."""

    kind = "processes"

    def __init__(self, manifest: Manifest, real_seconds: float) -> None:
        """Judge this implementation; a test may wait `real_seconds` at once."""
        self.manifest = manifest
        self.features = manifest.features
        self._real_seconds = real_seconds
        enter_private_namespace()

    @contextmanager
    def world(self, shape: Shape) -> Iterator[World]:
        """Give a world of a shape, and take it down.

        Raises:
            Unsupported: the implementation lacks the program that the shape asks for.
        """
        for program, wanted in ((WORKER, shape.worker), (MODEL_MANAGER, shape.plugins)):
            if wanted and program not in self.manifest.commands:
                raise Unsupported(f"the implementation brings no {program}")
        clock = SystemClock()
        with Cluster(kubernetes=shape.kubernetes, clock=clock, kernel_mounts=True) as cluster:
            seat = _Seat(self.manifest, cluster, self._real_seconds)
            with ExitStack() as stack:
                stack.callback(seat.close)
                seat.install(worker=shape.worker)
                if shape.worker:
                    withdraw(cluster, shape.unserved)
                    seat.start_worker(shape.seeds)
                yield World(seat, replace(shape, kernel_mounts=True))


class RunningProgram:
    """The plugin of one node: its program and its announcement to kubelet."""

    def __init__(self, program: Program, registration: Registration, port: int) -> None:
        self._program = program
        self._registration = registration
        self.metrics_url = f"https://{_HOST}:{port}"

    def stop(self) -> None:
        """End it with SIGTERM."""
        self._registration.withdraw()
        self._program.stop()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._program.kill()
        self._registration.withdraw()


class _Seat:
    """One cluster with the programs of one implementation."""

    def __init__(self, manifest: Manifest, cluster: Cluster, real_seconds: float) -> None:
        self.cluster: Any = cluster
        self.clock: Any = cluster.clock
        self.hub: Any = cluster.add_hub()
        self.worker_user = _user(manifest.accounts.get(WORKER))
        self.plugin_user = _user(manifest.accounts.get(MODEL_MANAGER))
        self._manifest = manifest
        self._real_seconds = real_seconds
        self._folder = cluster.folder / "programs"
        self._folder.mkdir()
        self.log: Log = ProgramLogs(self._folder)
        self._certificates = self._folder / "certificates"
        self._webhook_port = _free_port()
        self._objects: list[dict[str, Any]] = []
        self._started: list[Program] = []
        self._disks: list[Tmpfs] = []

    def install(self, *, worker: bool) -> None:
        """Apply the manifest's objects, those of the worker only where one will run."""
        authority = Authority("conformance")
        everything = read(
            self._manifest,
            namespace=oracle.OPERATOR_NAMESPACE,
            kubernetes=self.cluster.kubernetes,
            values={
                "ca_bundle": base64.b64encode(authority.certificate_pem.encode()).decode(),
                "worker_url": self._worker_url,
                "namespace": oracle.OPERATOR_NAMESPACE,
            },
        )
        reached = services(everything)
        hosts = [_HOST, *(f"{name}.{namespace}.svc" for namespace, name in sorted(reached))]
        pair = authority.issue("worker", hosts)
        self._certificates.mkdir(mode=0o700)
        (self._certificates / "tls.crt").write_text(pair.certificate_pem, encoding="ascii")
        (self._certificates / "tls.key").write_text(pair.key_pem, encoding="ascii")
        for service in reached if worker else ():
            self.cluster.webhooks.routes[service] = (_HOST, self._webhook_port)
        self._objects = everything if worker else without_worker(everything)
        namespace = {"metadata": {"name": oracle.OPERATOR_NAMESPACE}}
        self.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", **namespace}, *self._objects])

    def start_worker(self, seeds: Mapping[str, str]) -> None:
        """Start the worker, and return when it listens and every webhook knows whom to trust."""
        point_at_hub(self.cluster, self.hub.url)
        worker = self._start(
            WORKER,
            WORKER,
            {
                "kubeconfig": str(self.cluster.kubeconfig(self.worker_user)),
                "namespace": oracle.OPERATOR_NAMESPACE,
                "webhook_port": str(self._webhook_port),
                "worker_url": self._worker_url,
                "certificate_dir": str(self._certificates),
            },
            seeds,
        )

        def ready() -> bool:
            worker.check()
            return _listens(self._webhook_port) and self._webhooks_are_trusted()

        eventually(ready, "the worker's webhooks answer", patience_seconds=START_SECONDS)

    def add_node(self, name: str) -> Any:
        """Add a node whose cache lies on a filesystem of its own."""
        node = self.cluster.add_node(name)
        root = node.cache_root.with_name("disk")
        disk = Tmpfs(root)
        self._disks.append(disk)
        node.cache_root, node.disk = disk.cache_root, disk
        node.mounts = WatchedMounts(node.kubelet_dir.parent, root)
        return node

    def start_plugin(self, node: Any) -> RunningProgram:
        """Start a node's plugin, and return when kubelet can be told of it."""
        account = self._manifest.accounts.get(MODEL_MANAGER, "default")
        pod = self._plugin_pod(node, account)
        bound = None if self.plugin_user == "admin" else pod
        port = _free_port()
        program = self._start(
            MODEL_MANAGER,
            node.name,
            {
                "kubeconfig": str(self.cluster.kubeconfig(self.plugin_user, pod=bound)),
                "namespace": oracle.OPERATOR_NAMESPACE,
                "node": node.name,
                "node_address": node.address,
                "kubelet_dir": str(node.kubelet_dir),
                "cache_root": str(node.cache_root),
                "csi_socket": str(node.csi_socket),
                "secure_port": str(port),
                "peer_port": "0",
            },
        )

        def ready() -> str:
            program.check()
            return driver_name(node.csi_socket) if _listens(port) else ""

        name = eventually(ready, f"{node.name}: the plugin answers", patience_seconds=START_SECONDS)
        return RunningProgram(
            program, Registration(name, node.csi_socket, node.plugins_registry), port
        )

    def kill_plugin(self, node: Any, plugin: Any) -> None:
        """Kill the plugin of a node."""
        plugin.kill()

    def advance(self, seconds: float) -> None:
        """Let real time pass, and come to rest.

        Raises:
            Unsupported: it is too long.
        """
        if seconds > self._real_seconds:
            raise Unsupported(
                f"{seconds:g} s at once: the implementation follows no clock but the real one, and "
                f"--real-seconds is {self._real_seconds:g}"
            )
        pause(seconds)
        for _ in range(_LOOKS):
            version = self.cluster.api.store.version
            before = [program.cpu_nanoseconds() for program in self._started]
            pause(_LOOK_SECONDS)
            after = [program.cpu_nanoseconds() for program in self._started]
            same = version == self.cluster.api.store.version and self.cluster.api.idle()
            if same and not spent(before, after):
                return

    def second_hub(self) -> Any:
        """Add another hub on other ports, for what must not reach it."""
        return self.cluster.add_hub()

    def close(self) -> None:
        """End every program, and take the nodes' mounts and disks away."""
        for program in self._started:
            program.kill()
        for node in self.cluster.nodes:
            node.stop_kubelet()
            node.unmount_all()
        for disk in self._disks:
            disk.close()

    @property
    def _worker_url(self) -> str:
        return f"https://{_HOST}:{self._webhook_port}"

    def _start(
        self,
        command: str,
        name: str,
        values: Mapping[str, str],
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Program:
        words = self._manifest.command(command, values)
        log = self._folder / f"{len(self._started):02}-{name}.log"
        program = Program(f"{command} {name}", words, log, {**self._manifest.environment, **more})
        self._started.append(program)
        return program

    def _webhooks_are_trusted(self) -> bool:
        """Say whether every webhook names whom it trusts, by the manifest or by the worker."""
        api = "admissionregistration.k8s.io/v1"
        hooks = [
            hook["clientConfig"]
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
            for found in self.cluster.client.list(api, kind)
            for hook in found.get("webhooks") or ()
        ]
        return all(hook.get("caBundle") for hook in hooks)

    def _plugin_pod(self, node: Any, account: str) -> tuple[str, str]:
        """Create the Pod that a DaemonSet's controller would, in place of an earlier one."""
        name, client = f"model-manager-{node.name}", self.cluster.client
        where = {"namespace": oracle.OPERATOR_NAMESPACE}
        try:
            now = DeleteOptions(grace_period_seconds=0)
            client.delete("v1", "Pod", name, options=now, **where)
        except ApiError as error:
            if error.code != 404:
                raise
        template = pod_template(self._objects, account)
        client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**template["metadata"], "name": name, **where},
                "spec": {**template["spec"], "nodeName": node.name},
            }
        )
        return oracle.OPERATOR_NAMESPACE, name


def _user(account: str | None) -> str:
    if account is None:
        return "admin"
    return f"system:serviceaccount:{oracle.OPERATOR_NAMESPACE}:{account}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=2).close()
    except OSError:
        return False
    return True
