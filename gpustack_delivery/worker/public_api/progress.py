"""`GET …/modelartifacts/NAME/progress`: how far a delivery is right now, stored nowhere.

The counts come from a copy of the nodes' reports that every replica keeps. Between two reports a
download moves on, so the plugins of downloading nodes are asked as well: at most 64 of them, 16 at
once and 2 seconds each, so that the whole answer comes within 13 seconds whatever they do.

Rules: VW-PRG-01..03, NS-MET-09.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gpustack_delivery.decisions.progress import measure, uncountable
from gpustack_delivery.errors import ApiFault, HostFault
from gpustack_delivery.mirror import Mirror
from gpustack_delivery.ports import Clock, Errand, Kube, Passage, PluginDownloads, Selection
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.node_store import ModelEntry, ModelState, NodeModelStore
from gpustack_delivery.vocabulary.resources import (
    GROUP,
    MODEL_ARTIFACTS,
    NODE_MODEL_STORES,
    PODS,
    Json,
)
from gpustack_delivery.worker.public_api.statuses import Refused, not_found

LIVE_NODES: Final = 64
LIVE_AT_ONCE: Final = 16
LIVE_SECONDS: Final = 2.0
# With the review's 2 seconds, and four waves of 2, the whole stays within 13.
_ARTIFACT_SECONDS: Final = 3.0
_DEFAULT_PORT: Final = 32444
_SELECTOR: Final = "app.kubernetes.io/component=model-manager"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LivePlugin:
    """Where a node's plugin listens; the address is empty while it is not to be asked."""

    node: str
    address: str
    port: int

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> LivePlugin:
        """Read the plugin's Pod: asked only while it is Ready and not being deleted."""
        spec, status = body.get("spec") or {}, body.get("status") or {}
        ready = not body["metadata"].get("deletionTimestamp") and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in status.get("conditions") or ()
        )
        ports = [
            port["containerPort"]
            for container in spec.get("containers") or ()
            for port in container.get("ports") or ()
            if port.get("name") == "https"
        ]
        return cls(
            spec.get("nodeName", ""),
            status.get("podIP", "") if ready else "",
            ports[0] if ports else _DEFAULT_PORT,
        )


class Deliveries:
    """Measures deliveries, from `start` to `stop`.

    Args:
        kube: what the copies are kept from.
        passage: what artifacts are read through, within bounds of time.
        clock: for the copies and the timestamp.
        plugins: the way to the plugins' ports.
        namespace: where the plugins run.
    """

    def __init__(
        self, kube: Kube, passage: Passage, clock: Clock, plugins: PluginDownloads, namespace: str
    ) -> None:
        self._passage = passage
        self._clock = clock
        self._plugins = plugins
        self._stores = Mirror(kube, clock, Selection(NODE_MODEL_STORES), NodeModelStore.from_wire)
        pods = Selection(PODS, namespace, label_selector=_SELECTOR)
        self._pods = Mirror(kube, clock, pods, LivePlugin.from_wire)

    def start(self) -> None:
        """Begin to follow the nodes' reports and the plugins' Pods."""
        self._stores.start()
        self._pods.start()

    def stop(self) -> None:
        """End it."""
        self._stores.stop()
        self._pods.stop()

    @property
    def synced(self) -> bool:
        """Say whether the reports and Pods were read once."""
        return self._stores.synced and self._pods.synced

    def progress(self, namespace: str, name: str) -> Json:
        """Return the progress of an artifact.

        Raises:
            Refused: there is no such artifact, or nothing is known of the nodes yet.
            ApiFault: the API server does not answer.
        """
        artifact = self._artifact(namespace, name)
        if uncountable(artifact):
            return measure(artifact, {}, {}).to_wire(namespace, name, self._clock.now())
        if not self.synced:
            message = "the worker is still reading the nodes' reports; try again in a moment"
            raise Refused(503, "ServiceUnavailable", message, headers=[("Retry-After", "1")])
        resolved = artifact.status.resolved
        digest = resolved.manifest_digest if resolved else ""
        entries = self._entries(digest)
        live = self._live(digest, entries)
        return measure(artifact, entries, live).to_wire(namespace, name, self._clock.now())

    def _artifact(self, namespace: str, name: str) -> ModelArtifact:
        """Read the artifact itself: a copy could be older than what its author has just made."""
        errand = Errand(
            "GET", MODEL_ARTIFACTS.path(namespace, name), {"Accept": "application/json"}
        )
        reply = self._passage.pass_on(errand, timeout_seconds=_ARTIFACT_SECONDS)
        raw = reply.read()
        if reply.status == 404:
            raise not_found(GROUP, MODEL_ARTIFACTS.plural, name)
        if reply.status >= 300:
            raise ApiFault(f"the Kubernetes API answered {reply.status}", code=reply.status)
        return ModelArtifact.from_wire(msgspec.json.decode(raw))

    def _entries(self, digest: str) -> dict[str, ModelEntry]:
        return {
            node: entry
            for (_, node), store in self._stores.items().items()
            for entry in store.status.models
            if entry.digest == digest
        }

    def _live(self, digest: str, entries: Mapping[str, ModelEntry]) -> dict[str, int]:
        """Return what the plugins of downloading nodes say now, of those that answer."""
        plugins = {plugin.node: plugin for plugin in self._pods.items().values() if plugin.address}
        downloading = sorted(
            node
            for node, entry in entries.items()
            if entry.state is ModelState.DOWNLOADING and node in plugins
        )[:LIVE_NODES]
        if not downloading:
            return {}
        with ThreadPoolExecutor(min(LIVE_AT_ONCE, len(downloading)), "live") as pool:
            read = pool.map(lambda node: self._received(plugins[node], digest), downloading)
            heard = zip(downloading, read, strict=True)
            return {node: received for node, received in heard if received is not None}

    def _received(self, plugin: LivePlugin, digest: str) -> int | None:
        """Return the bytes that one node has of a digest, None if it does not say."""
        try:
            raw = self._plugins.read(plugin.address, plugin.port, timeout_seconds=LIVE_SECONDS)
            downloads = msgspec.json.decode(raw, type=_Downloads).downloads
        except (HostFault, msgspec.DecodeError, msgspec.ValidationError) as fault:
            _log.info("no live reading of a download: %s", fault)
            return None
        return next((each.downloadedBytes for each in downloads if each.digest == digest), None)


class _Download(msgspec.Struct):
    """One running download, in the wire's own words."""

    digest: str
    downloadedBytes: int = 0  # noqa: N815 - the wire's name


class _Downloads(msgspec.Struct):
    """The answer of /model/downloads."""

    downloads: list[_Download]
