"""What a world of programs stands on: one cluster, the manifest's objects, and child processes.

A program counts as started when it answers. Everything that a sidecar, a DaemonSet's controller or
kubelet's token projection would do for it is done here.

Called by `processes`.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.contracts import DeleteOptions
from emulator.errors import ApiError
from gpustack_delivery.httpd.certificates import Authority
from spec_tests import oracle
from spec_tests.targets.disks import Tmpfs, WatchedMounts
from spec_tests.targets.manifest import MODEL_MANAGER, WORKER, Manifest
from spec_tests.targets.objects import pod_template, read, services, without_worker
from spec_tests.targets.pace import RealTime
from spec_tests.targets.programs import Program, ProgramLogs, spent
from spec_tests.targets.registration import Registration, driver_name
from spec_tests.targets.settings import point_at_hub
from spec_tests.waiting import eventually, pause
from spec_tests.worlds import Log, Shape

PEER_AUDIENCE: Final = "gpustack-model-peer"
"""Whom a token that plugins show each other is for."""

START_SECONDS: Final = 60.0
"""How long a program may take until it answers."""

_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.03
_HOST: Final = "127.0.0.1"
_YEAR_SECONDS: Final = 365 * 24 * 3600


class RunningProgram:
    """The plugin of one node: its program and its announcement to kubelet."""

    def __init__(self, program: Program, registration: Registration, url: str) -> None:
        self._program = program
        self._registration = registration
        self.metrics_url = url

    @property
    def pid(self) -> int:
        """Return the program's process id."""
        return self._program.pid

    def stop(self) -> None:
        """End it with SIGTERM."""
        self._registration.withdraw()
        self._program.stop()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._program.kill()
        self._registration.withdraw()


class ProgramSeat:
    """One cluster with the programs of one implementation."""

    def __init__(
        self, manifest: Manifest, cluster: Cluster, shape: Shape, real_seconds: float
    ) -> None:
        self.cluster: Any = cluster
        self.clock: Any = cluster.clock
        self.hub: Any = cluster.add_hub()
        self.worker_user = _user(manifest.accounts.get(WORKER))
        self.plugin_user = _user(manifest.accounts.get(MODEL_MANAGER))
        self._manifest = manifest
        self._shape = shape
        self._folder = cluster.folder / "programs"
        self._folder.mkdir()
        self.log: Log = ProgramLogs(self._folder)
        self._certificates = self._folder / "certificates"
        self._webhook_port = _free_port()
        in_use = any("{api_port}" in word for word in manifest.commands.get(WORKER, ()))
        self._api_port = _free_port() if in_use else self._webhook_port
        self._objects: list[dict[str, Any]] = []
        self._started: list[Program] = []
        self.clock_socket = self._folder / "clock"
        moved = isinstance(cluster.clock, ManualClock)
        self._pace: Any = cluster.clock if moved else RealTime(real_seconds)
        self._disks: list[Tmpfs] = []

    def install(self, *, worker: bool) -> None:
        """Apply the manifest's objects, those of the worker only where one will run."""
        authority = Authority("conformance")
        everything = read(
            self._manifest,
            namespace=oracle.OPERATOR_NAMESPACE,
            kubernetes=self.cluster.kubernetes,
            peer_port=self._shape.peer_port,
            values={
                "ca_bundle": base64.b64encode(authority.certificate_pem.encode()).decode(),
                "worker_url": self._worker_url,
                "namespace": oracle.OPERATOR_NAMESPACE,
            },
        )
        ports = services(everything, self._webhook_port, self._api_port)
        reached = ports.keys()
        hosts = [_HOST, *(f"{name}.{namespace}.svc" for namespace, name in sorted(reached))]
        pair = authority.issue("worker", hosts)
        self._certificates.mkdir(mode=0o700)
        (self._certificates / "tls.crt").write_text(pair.certificate_pem, encoding="ascii")
        (self._certificates / "tls.key").write_text(pair.key_pem, encoding="ascii")
        for service, port in ports.items() if worker else ():
            self.cluster.webhooks.routes[service] = (_HOST, port)
        self._objects = everything if worker else without_worker(everything)
        namespace = {"metadata": {"name": oracle.OPERATOR_NAMESPACE}}
        self.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", **namespace}, *self._objects])

    def start_worker(self, seeds: Mapping[str, str]) -> None:
        """Start the worker, and return when it listens and every webhook knows whom to trust."""
        point_at_hub(self.cluster, self.hub.url)
        kubeconfig = self.cluster.kubeconfig(self.worker_user)
        worker = self._start(
            WORKER,
            WORKER,
            {
                "kubeconfig": str(kubeconfig),
                "namespace": oracle.OPERATOR_NAMESPACE,
                "clock_socket": str(self.clock_socket),
                "token_file": str(self._token_of(kubeconfig)),
                "webhook_port": str(self._webhook_port),
                "api_port": str(self._api_port),
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
        port = _free_port()
        ports = {"https": port, "peer-sync": self._shape.peer_port}
        pod, address = self._plugin_pod(node, account, ports)
        bound = None if self.plugin_user == "admin" else (oracle.OPERATOR_NAMESPACE, pod)
        program = self._start(
            MODEL_MANAGER,
            node.name,
            {
                "kubeconfig": str(self.cluster.kubeconfig(self.plugin_user, pod=bound)),
                "namespace": oracle.OPERATOR_NAMESPACE,
                "clock_socket": str(self.clock_socket),
                "node": node.name,
                "pod_address": address,
                "kubelet_dir": str(node.kubelet_dir),
                "cache_root": str(node.cache_root),
                "csi_socket": str(node.csi_socket),
                "secure_port": str(port),
                "peer_port": str(self._shape.peer_port),
                "peer_streams": str(self._shape.peer_streams),
                "peer_token": str(self._peer_token(node, account, pod)),
            },
        )

        def ready() -> str:
            program.check()
            return driver_name(node.csi_socket) if _listens(port, address) else ""

        name = eventually(ready, f"{node.name}: the plugin answers", patience_seconds=START_SECONDS)
        registration = Registration(name, node.csi_socket, node.plugins_registry)
        return RunningProgram(program, registration, f"https://{address}:{port}")

    def kill_plugin(self, node: Any, plugin: Any) -> None:
        """Kill the plugin of a node."""
        plugin.kill()

    def advance(self, seconds: float) -> None:
        """Let time pass, and come to rest.

        Raises:
            Unsupported: it is real, and this is too much of it.
        """
        self._pace.advance(seconds)
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

    def _token_of(self, kubeconfig: Path) -> Path:
        """Write the token of a kubeconfig to a file, as kubelet projects it into the Pod."""
        (user, *_) = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"]
        file = self._folder / "token"
        file.touch(mode=0o600)
        file.write_text(user["user"]["token"], encoding="ascii")
        return file

    def _peer_token(self, node: Any, account: str, pod: str) -> Path:
        """Write what kubelet would project into the Pod; nobody renews it, so it lives long."""
        token = self.cluster.account_token(
            (oracle.OPERATOR_NAMESPACE, account),
            pod=pod,
            audiences=(PEER_AUDIENCE,),
            seconds=_YEAR_SECONDS,
        )
        file = self._folder / f"peer-token-{node.name}"
        file.touch(mode=0o600)
        file.write_text(token, encoding="ascii")
        return file

    def _plugin_pod(self, node: Any, account: str, ports: Mapping[str, int]) -> tuple[str, str]:
        """Create the Pod that a DaemonSet's controller would, in place of an earlier one.

        Returns:
            Its name, and its address as soon as it has one.
        """
        name, client = f"model-manager-{node.name}", self.cluster.client
        where = {"namespace": oracle.OPERATOR_NAMESPACE}
        try:
            now = DeleteOptions(grace_period_seconds=0)
            client.delete("v1", "Pod", name, options=now, **where)
        except ApiError as error:
            if error.code != 404:
                raise
        template = pod_template(self._objects, account, ports)
        client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**template["metadata"], "name": name, **where},
                "spec": {**template["spec"], "nodeName": node.name},
            }
        )

        def address() -> str:
            pod = client.get("v1", "Pod", name, **where)
            return str(pod.get("status", {}).get("podIP", ""))

        return name, eventually(address, f"Pod {name} has an address")


def _user(account: str | None) -> str:
    if account is None:
        return "admin"
    return f"system:serviceaccount:{oracle.OPERATOR_NAMESPACE}:{account}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int, host: str = _HOST) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True
