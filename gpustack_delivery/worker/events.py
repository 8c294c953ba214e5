"""Events on the objects that people look at.

An Event that repeats itself is counted instead of written again. A failure to write one is logged
and costs nothing else: events explain, they decide nothing.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.errors import ApiFault, NotFound
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import EVENTS, Json, Resource
from gpustack_delivery.vocabulary.wire import format_time

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
COMPONENT: Final = "gpustack-delivery-worker"
_REMEMBERED: Final = 512
_MAX_MESSAGE: Final = 1024
# Events about cluster-scoped objects live here, by Kubernetes' own convention.
_CLUSTER_NAMESPACE: Final = "default"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Told:
    """An Event already written, and how often it happened."""

    name: str
    count: int


class Events:
    """Writes Events; safe from any thread."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, ...], _Told] = OrderedDict()

    def tell(
        self, resource: Resource, about: Metadata, kind: str, reason: str, message: str
    ) -> None:
        """Write an Event of a kind (`NORMAL`, `WARNING`) about an object."""
        message = message[:_MAX_MESSAGE]
        key = (resource.plural, about.uid, *about.key, reason, message)
        namespace = about.namespace or _CLUSTER_NAMESPACE
        with self._lock:
            told = self._told.pop(key, None)
            try:
                if told is None or not self._repeat(told, namespace):
                    told = self._write(resource, about, kind, reason, message)
            except ApiFault as fault:
                _log.info("an Event %s cannot be written: %s %s", reason, fault, fault.detail)
                return
            self._told[key] = told
            while len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)

    def _repeat(self, told: _Told, namespace: str) -> bool:
        """Count an Event once more; False if the server has forgotten it."""
        patch = {"count": told.count + 1, "lastTimestamp": format_time(self._clock.now())}
        try:
            self._kube.merge_patch(EVENTS, told.name, patch, namespace)
        except NotFound:
            return False
        told.count += 1
        return True

    def _write(
        self, resource: Resource, about: Metadata, kind: str, reason: str, message: str
    ) -> _Told:
        namespace = about.namespace or _CLUSTER_NAMESPACE
        now = format_time(self._clock.now())
        name = f"{about.name[:230]}.{secrets.token_hex(8)}"
        body: Json = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
        }
        self._kube.create(EVENTS, body, namespace)
        return _Told(name, 1)
