"""Who can be asked for a digest: read from what the cluster publishes, when there is a question.

A node that wants nothing asks nothing: there is no watch on the other nodes' statuses, because in a
large cluster the statuses of all, sent to all, would be most of the API server's work. A question
is one list of NodeModelStores and one of plugin Pods; while a node waits for another's copy it
reads that one node's status only.

Rules: PS-CLI-01.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from gpustack_delivery.decisions.peering import Neighbourhood, Peer, peers
from gpustack_delivery.errors import ApiFault, NotFound
from gpustack_delivery.ports import Clock, Kube, Selection
from gpustack_delivery.vocabulary.node_store import ModelEntry
from gpustack_delivery.vocabulary.plugin_pods import COMPONENT_SELECTOR, PluginPod
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES, PODS, Json, Resource

SET_ASIDE_SECONDS: Final = 60.0
NOBODY: Final = Neighbourhood({}, {})
_UNREADABLE: Final = (KeyError, TypeError, ValueError, AttributeError)
_log = logging.getLogger(__name__)
Record = TypeVar("Record")


class Directory:
    """The other nodes and what they hold. Thread-safe.

    Args:
        own_node: is never its own peer.
        namespace: where the plugins' Pods are.
    """

    def __init__(self, kube: Kube, clock: Clock, own_node: str, namespace: str) -> None:
        self._kube = kube
        self._clock = clock
        self.own_node = own_node
        self._namespace = namespace
        self._lock = threading.Lock()
        self._aside: dict[str, float] = {}

    def around(self, digest: str) -> Neighbourhood:
        """Return the peers that may be asked now, and what every other node has of a digest.

        An API server that does not answer means that there is nobody.
        """
        try:
            found = self._peers()
            if not found:
                return NOBODY
            entries = dict(self._list(NODE_MODEL_STORES, lambda body: _entry(body, digest)))
        except ApiFault as fault:
            _log.warning("peers cannot be looked up: %s (%s)", fault, fault.detail)
            return NOBODY
        entries.pop(self.own_node, None)
        usable = {node: peer for node, peer in found.items() if not self._is_aside(peer)}
        return Neighbourhood(usable, {node: entry for node, entry in entries.items() if entry})

    def serves(self, node: str) -> bool:
        """Say whether a node's plugin is there; while nobody can tell, it is."""
        try:
            return node in self._peers()
        except ApiFault as fault:
            _log.warning("peers cannot be looked up: %s (%s)", fault, fault.detail)
            return True

    def entry(self, node: str, digest: str) -> ModelEntry | None:
        """Return what one node has of a digest; None for nothing, or an unreadable answer."""
        try:
            return _entry(self._kube.get(NODE_MODEL_STORES, node), digest)[1]
        except (NotFound, *_UNREADABLE):
            return None
        except ApiFault as fault:
            _log.warning("a node's status cannot be read: %s (%s)", fault, fault.detail)
            return None

    def set_aside(self, peer: Peer) -> None:
        """Ask a peer nothing for a minute: it did not deliver what it says it holds."""
        with self._lock:
            now = self._clock.monotonic()
            self._aside = {url: until for url, until in self._aside.items() if until > now}
            self._aside[peer.url] = now + SET_ASIDE_SECONDS

    def _peers(self) -> dict[str, Peer]:
        pods = tuple(self._list(PODS, PluginPod.from_wire, self._namespace, COMPONENT_SELECTOR))
        return peers(self.own_node, pods)

    def _is_aside(self, peer: Peer) -> bool:
        with self._lock:
            return self._clock.monotonic() < self._aside.get(peer.url, 0.0)

    def _list(
        self,
        resource: Resource,
        read: Callable[[Json], Record],
        namespace: str = "",
        label_selector: str = "",
    ) -> Iterator[Record]:
        """Yield every object that can be read; an odd one hides no other."""
        selection, token = Selection(resource, namespace, label_selector), ""
        while True:
            page = self._kube.list_page(selection, token)
            for body in page.items:
                try:
                    yield read(body)
                except _UNREADABLE as error:
                    kind = type(error).__name__
                    _log.warning("an object of %s cannot be read: %s", resource.plural, kind)
            token = page.continue_token
            if not token:
                return


def _entry(body: Json, digest: str) -> tuple[str, ModelEntry | None]:
    """Return a store's node and its entry of a digest, reading nothing else of it."""
    models = (body.get("status") or {}).get("models") or ()
    found = next((model for model in models if model["digest"] == digest), None)
    return body["metadata"]["name"], None if found is None else ModelEntry.from_wire(found)
