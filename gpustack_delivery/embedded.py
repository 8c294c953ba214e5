"""Our worker and plugins as threads on an emulated cluster, put together as the chart puts them
together.

What would be a Deployment and a DaemonSet on a real cluster are threads of this process, with real
HTTPS, gRPC and tokens between them: each has the identity, and with it the rights, that the
rendered chart gives it. The demo and the specification's in-process target stand on this module; it
is the one place that knows how an implementation comes onto an emulated cluster.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

from emulator.chart import render
from emulator.cluster import Cluster
from emulator.contracts import DeleteOptions
from emulator.node import Node
from gpustack_delivery.adapters.kube import connect
from gpustack_delivery.adapters.plugin_port import PluginPort
from gpustack_delivery.errors import ConfigurationFault, HostFault
from gpustack_delivery.node.peers.options import OFF, PeerOptions
from gpustack_delivery.node.peers.tokens import AUDIENCE
from gpustack_delivery.node.plugin import Plugin, PluginOptions, World
from gpustack_delivery.node.registrar import Registrar
from gpustack_delivery.ports import Disk, Kube, Mounts
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.worker.operator import Aggregated, Worker
from gpustack_delivery.worker.options import WorkerOptions

CHART: Final = Path(__file__).parents[1] / "chart"
RELEASE: Final = "gpustack-delivery"
WORKER_ACCOUNT: Final = f"{RELEASE}-worker"
PLUGIN_ACCOUNT: Final = f"{RELEASE}-model-manager"
PUBLIC_API: Final = f"{RELEASE}-public-api"
_YEAR_SECONDS: Final = 365 * 24 * 3600


def host_fault(error: OSError) -> HostFault:
    """Return what our adapters raise for an OSError, for the emulated mounts and disks to raise."""
    return HostFault(os.strerror(error.errno or 0), detail=str(error))


def _world(cluster: Cluster, kube: Kube, node: Node) -> World:
    # The emulator knows none of our records, so its mounts and usages are its own, field for field.
    return World(cluster.clock, kube, cast(Mounts, node.mounts), cast(Disk, node.disk))


def _token_of(kubeconfig: Path) -> Token:
    """Return the token in a kubeconfig, which stands in for the one mounted into a Pod."""
    (user, *_) = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"]
    return Token(user["user"]["token"])


class EmbeddedPlugin:
    """The plugin of one node and its registration with kubelet."""

    def __init__(self, node_name: str, plugin: Plugin, registrar: Registrar) -> None:
        self.node_name = node_name
        self._plugin = plugin
        self._registrar = registrar

    @property
    def secure_port(self) -> int:
        """Return where its HTTPS port is on this machine."""
        return self._plugin.secure_port

    @property
    def metrics_url(self) -> str:
        """Return the base URL of the plugin's HTTPS port, without a path."""
        return f"https://127.0.0.1:{self._plugin.secure_port}"

    def stop(self) -> None:
        """End both; mounts stay, as when a DaemonSet's Pod goes."""
        self._registrar.stop()
        self._plugin.stop()


class _EmbeddedPorts:
    """The plugins' ports by the addresses of their Pods, which no packet reaches here."""

    def __init__(self, cluster: Cluster, namespace: str, plugins: list[EmbeddedPlugin]) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._plugins = plugins
        self._port = PluginPort()

    def read(self, address: str, port: int, *, timeout_seconds: float) -> bytes:
        """Return the running downloads of the plugin whose Pod has an address."""
        nodes = {
            pod.get("status", {}).get("podIP"): pod["spec"].get("nodeName")
            for pod in self._cluster.client.list("v1", "Pod", namespace=self._namespace)
        }
        for plugin in reversed(self._plugins):
            if plugin.node_name == nodes.get(address):
                loopback = "127.0.0.1"
                return self._port.read(
                    loopback, plugin.secure_port, timeout_seconds=timeout_seconds
                )
        raise HostFault(f"nothing listens on port {port} of that address")


class Embedded:
    """This implementation on one emulated cluster, from `install` to `close`.

    Args:
        cluster: a started cluster; made with `translate=host_fault`, so that its disks fail as ours
            do.
        namespace: the operator's namespace.
        values: the chart's values, on top of its defaults. Node-to-node sync is off unless they
            name a port for it: several clusters live on one machine, and each needs its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str = "gpustack-system",
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self._values = dict(values or {})
        self._values["modelManager"] = {"port": 0, **self._values.get("modelManager", {})}
        self._objects: list[Json] = []
        self._worker: Worker | None = None
        self._plugins: list[EmbeddedPlugin] = []

    def install(self) -> None:
        """Render the chart and apply it, CRDs first."""
        if not CHART.is_dir():
            raise ConfigurationFault(
                f"the chart is not at {CHART}: run from a checkout of the repository"
            )
        self._objects = render(
            CHART,
            release=RELEASE,
            namespace=self.namespace,
            values=self._values,
            kubernetes=self._cluster.kubernetes,
        )
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace},
        }
        self._cluster.apply([namespace, *self._objects])

    def start_worker(self) -> None:
        """Start the worker and put it behind its Service; its webhooks answer when this returns."""
        kubeconfig = self._cluster.kubeconfig(self._account(WORKER_ACCOUNT))
        served = self._served(PUBLIC_API)
        options = WorkerOptions(
            namespace=self.namespace,
            model_manager_service_account=PLUGIN_ACCOUNT,
            host="127.0.0.1",
            webhook_port=0,
            webhook_service=WORKER_ACCOUNT,
            webhook_configuration=RELEASE,
            public_api_service=PUBLIC_API if served else "",
            public_api_port=0,
            runs_consumers="--run-consumers" in self._worker_arguments(),
            completes_volumes="--complete-volumes" in self._worker_arguments(),
            # There is one worker, and a manual clock stops at every renewal: a day has few of them.
            lease_seconds=1800,
            environment=self._worker_environment(),
            own_token=lambda: _token_of(kubeconfig),
        )
        kube = connect(str(kubeconfig))
        public = Aggregated(kube, _EmbeddedPorts(self._cluster, self.namespace, self._plugins))
        worker = Worker(options, self._cluster.clock, kube, public=public)
        worker.start()
        self._worker = worker
        routes = self._cluster.webhooks.routes
        routes[self.namespace, WORKER_ACCOUNT] = ("127.0.0.1", int(worker.url.rpartition(":")[2]))
        if served:
            self.route_public_api()

    def route_public_api(self) -> None:
        """Put the public API behind its Service, at the port where the worker serves it now."""
        port = self._worker.public_api_port if self._worker else 0
        self._cluster.webhooks.routes[self.namespace, PUBLIC_API] = ("127.0.0.1", port)

    def start_plugin(self, node: Node) -> EmbeddedPlugin:
        """Start a node's plugin as the Pod of its DaemonSet, and register it with kubelet."""
        pod = self._plugin_pod(node)
        kubeconfig = self._cluster.kubeconfig(
            self._account(PLUGIN_ACCOUNT), pod=(self.namespace, pod["metadata"]["name"])
        )
        options = PluginOptions(
            node_name=node.name,
            kubelet_dir=node.kubelet_dir,
            cache_root=node.cache_root,
            csi_socket=node.csi_socket,
            secure_port=0,
            namespace=self.namespace,
            peer_sync=self._peer_sync(node, pod),
        )
        kube = connect(str(kubeconfig))
        plugin = Plugin(options, _world(self._cluster, kube, node))
        plugin.start()
        registrar = Registrar(node.csi_socket, node.plugins_registry)
        registrar.start()
        running = EmbeddedPlugin(node.name, plugin, registrar)
        self._plugins.append(running)
        return running

    def close(self) -> None:
        """End everything that still runs."""
        for plugin in self._plugins:
            plugin.stop()
        self._plugins.clear()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _worker_arguments(self) -> list[str]:
        """Return the rendered arguments of the worker's container."""
        found = next(obj for obj in self._objects if obj["kind"] == "Deployment")
        return list(found["spec"]["template"]["spec"]["containers"][0]["args"])

    def _served(self, service: str) -> bool:
        """Say whether the rendered chart has a Service."""
        return any(
            obj["kind"] == "Service" and obj["metadata"]["name"] == service for obj in self._objects
        )

    def _worker_environment(self) -> dict[str, str]:
        """Return the environment that the rendered Deployment gives the worker."""
        deployment = next(found for found in self._objects if found["kind"] == "Deployment")
        (container, *_) = deployment["spec"]["template"]["spec"]["containers"]
        stated = (entry for entry in container.get("env") or () if "value" in entry)
        return {entry["name"]: entry["value"] for entry in stated}

    def _account(self, name: str) -> str:
        return f"system:serviceaccount:{self.namespace}:{name}"

    def _peer_sync(self, node: Node, pod: Json) -> PeerOptions:
        """Return what the rendered DaemonSet says of peers, with the address of the Pod itself."""
        chosen = self._values["modelManager"]
        if not chosen["port"]:
            return OFF
        self._cluster.settle()  # the Pod has its address when it runs
        pod = self._cluster.client.get(
            "v1", "Pod", pod["metadata"]["name"], namespace=self.namespace
        )
        limits = chosen.get("peerSync", {})
        return PeerOptions(
            port=chosen["port"],
            service_account=PLUGIN_ACCOUNT,
            token_file=self._peer_token(node, pod),
            host=pod["status"]["podIP"],
            max_serving_streams=limits.get("maxServingStreams", OFF.max_serving_streams),
            streams_per_source=limits.get("streamsPerSource", OFF.streams_per_source),
        )

    def _peer_token(self, node: Node, pod: Json) -> Path:
        """Write what kubelet would project into the Pod; nobody renews it, so it lives long."""
        token = self._cluster.account_token(
            (self.namespace, PLUGIN_ACCOUNT),
            pod=pod["metadata"]["name"],
            audiences=(AUDIENCE,),
            seconds=_YEAR_SECONDS,
        )
        file = self._cluster.folder / f"peer-token-{node.name}"
        file.touch(mode=0o600)
        file.write_text(token, encoding="utf-8")
        return file

    def _plugin_pod(self, node: Node) -> Json:
        """Create the Pod that the DaemonSet's controller would, in place of an earlier one."""
        name = f"{PLUGIN_ACCOUNT}-{node.name}"
        client = self._cluster.client
        options = DeleteOptions(grace_period_seconds=0)
        for pod in client.list("v1", "Pod", namespace=self.namespace):
            if pod["metadata"]["name"] == name:
                client.delete("v1", "Pod", name, namespace=self.namespace, options=options)
        daemon_set = next(obj for obj in self._objects if obj["kind"] == "DaemonSet")
        pod = copy.deepcopy(daemon_set["spec"]["template"])
        pod |= {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] |= {"name": name, "namespace": self.namespace}
        pod["spec"]["nodeName"] = node.name
        return client.create(pod)
