"""What each node's kubelet is set to, read from its configz through the API server's node proxy.

A good reading is taken again after half an hour, a failed one after a minute; a failed one keeps
the last. Readings live in memory: after a restart a node keeps what its spec holds until its
kubelet was read again. They have threads of their own, so that nodes that do not answer hold nobody
else up.

Rules: NS-OWN-06, NS-OWN-07, OP-CAP-02.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from gpustack_delivery.decisions.configuration import read_thresholds
from gpustack_delivery.errors import ApiFault
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.node_store import KubeletThresholds
from gpustack_delivery.worker.controller import Controller, Observer

READ_SECONDS: Final = 1800.0
RETRY_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 5.0
_THREADS: Final = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of the last attempts: the last good thresholds, None if there never were any."""

    thresholds: KubeletThresholds | None


class Kubelets:
    """Reads kubelets from `start` to `stop`.

    Args:
        changed: told the node's name after each attempt that changed its reading.
        wanted: says whether a node is still to be read.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        observer: Observer,
        *,
        changed: Callable[[str], None],
        wanted: Callable[[str], bool],
    ) -> None:
        self._kube = kube
        self._changed = changed
        self._wanted = wanted
        self._readings: dict[str, Reading] = {}
        self._controller = Controller("kubelets", self._read, clock, observer, threads=_THREADS)

    def start(self) -> None:
        """Begin to read."""
        self._controller.start()

    def stop(self) -> None:
        """Let the reads under way end."""
        self._controller.stop()

    def reading(self, node: str) -> Reading | None:
        """Return what came of reading a node's kubelet; None before the first attempt has ended."""
        return self._readings.get(node)

    def read(self, node: str) -> None:
        """Read a node's kubelet soon, and from then on regularly."""
        self._controller.enqueue(("", node))

    def _read(self, key: Key) -> float | None:
        _, node = key
        if not self._wanted(node):
            self._readings.pop(node, None)
            return None
        last = self._readings.get(node)
        reading, again = self._ask(node, last)
        if reading != last:
            self._readings[node] = reading
            self._changed(node)
        return again

    def _ask(self, node: str, last: Reading | None) -> tuple[Reading, float]:
        path = f"/api/v1/nodes/{quote(node, safe='')}/proxy/configz"
        try:
            answer = self._kube.get_raw(path, timeout_seconds=TIMEOUT_SECONDS)
            return Reading(read_thresholds(json.loads(answer))), READ_SECONDS
        except (ApiFault, ValueError, RecursionError) as error:
            _log.info("the kubelet of %s cannot be read: %s", node, type(error).__name__)
            return last or Reading(None), RETRY_SECONDS
