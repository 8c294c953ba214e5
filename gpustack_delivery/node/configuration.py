"""The node's applied configuration: which spec is in force, and the way to the hubs it makes.

The reporter hands every spec it reads to `apply`. One that fails the plugin's own check puts
nothing in force: no download starts and nothing is collected, not under an earlier spec either,
until a good one comes. A good one takes effect without a restart; requests that are already running
keep the way they began on.

Rules: NS-RES-04, NS-RES-22, NS-DL-11, NS-DL-13, NS-GC-08, NS-GC-09, OP-CAP-02.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gpustack_delivery.decisions import capacity
from gpustack_delivery.decisions.configuration import check
from gpustack_delivery.errors import AttemptFault, ConfigurationFault, Reason
from gpustack_delivery.node.downloading import Cancellation, Limits, Target
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Hub, Usage
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.node_store import CA_BUNDLE_KEY, HubAccess, Spec

NOT_YET: Final = "no configuration has been applied yet"


class Route(Protocol):
    """The way to the hubs under one `spec.hub`."""

    def hub(self, kind: HubKind) -> Hub:
        """Return a hub.

        Raises:
            ConfigurationFault: the configuration names no usable endpoint of that kind.
        """

    def fetch(
        self,
        targets: Sequence[Target],
        workspace: Workspace,
        *,
        credential: Callable[[], Token | None],
        cancellation: Cancellation,
        received: Callable[[int], None],
    ) -> None:
        """Download files, as `downloading.Downloader.fetch` does."""

    def close(self) -> None:
        """Start nothing new; what runs may finish."""


Connect = Callable[[HubAccess, str], Route]
"""Makes a route from an access and the PEM text of its CA bundle; raises ConfigurationFault."""


@dataclass(frozen=True, slots=True)
class _State:
    fault: str = NOT_YET
    spec: Spec | None = None
    bundle: str = ""
    route: Route | None = None


class Configuration:
    """What is in force on the node; read by everyone, changed by the reporter alone.

    Args:
        connect: makes the route of a valid spec.
        limits: the node's one set of download limits, kept in step with the spec.
        beside_kubelet: says whether the cache shares kubelet's filesystem.
    """

    def __init__(
        self, connect: Connect, limits: Limits, beside_kubelet: Callable[[], bool]
    ) -> None:
        self._connect = connect
        self._limits = limits
        self._beside_kubelet = beside_kubelet
        self._lock = threading.Lock()
        self._state = _State()

    @property
    def fault(self) -> str:
        """Return why nothing is in force, or "" if something is."""
        return self._state.fault

    @property
    def spec(self) -> Spec | None:
        """Return the spec in force; None while there is none."""
        state = self._state
        return None if state.fault else state.spec

    def apply(self, spec: Spec, bundle_of: Callable[[str], dict[str, str] | None]) -> None:
        """Check a spec and put it in force, or nothing.

        Args:
            spec: the NodeModelStore's.
            bundle_of: returns the data of a ConfigMap in the operator namespace, None if there is
                none.
        """
        before = self._state
        faults = list(check(spec))
        bundle, bundle_fault = _bundle(spec.hub.ca_bundle_config_map, bundle_of)
        faults += [bundle_fault] if bundle_fault else []
        route = before.route
        if not faults and (route is None or _moved(before, spec, bundle)):
            try:
                route = self._connect(spec.hub, bundle)
            except ConfigurationFault as fault:
                faults.append(str(fault))
        # A spec that failed is no base for comparison: the next good one makes its route afresh.
        kept = _State("; ".join(faults), None if faults else spec, bundle, route)
        if not faults:
            self._limits.change(
                concurrency=spec.download.concurrency,
                bytes_per_second=spec.download.bytes_per_second,
            )
        with self._lock:
            self._state = kept
        if before.route is not None and before.route is not route:
            before.route.close()

    def route(self) -> Route:
        """Return the way to the hubs.

        Raises:
            AttemptFault: `InvalidRequest`, nothing is in force.
        """
        state = self._state
        if state.fault or state.route is None:
            raise AttemptFault(Reason.INVALID_REQUEST, state.fault)
        return state.route

    def watermarks(self, usage: Usage) -> capacity.Effective | None:
        """Return the watermarks in force on this filesystem; None while nothing is in force."""
        spec = self.spec
        if spec is None:
            return None
        if not self._beside_kubelet():
            return capacity.Effective(spec.watermarks)
        return capacity.effective(spec.watermarks, spec.kubelet, usage.total_bytes)

    def close(self) -> None:
        """Close the route; nothing is in force afterwards."""
        with self._lock:
            state, self._state = self._state, _State("the plugin is stopping")
        if state.route is not None:
            state.route.close()


def _moved(before: _State, spec: Spec, bundle: str) -> bool:
    return before.spec is None or before.spec.hub != spec.hub or before.bundle != bundle


def _bundle(name: str, bundle_of: Callable[[str], dict[str, str] | None]) -> tuple[str, str]:
    """Return the PEM text of a CA ConfigMap and what is wrong with it, one of them empty."""
    if not name:
        return "", ""
    data = bundle_of(name)
    if data is None:
        return "", f"the CA ConfigMap {name} does not exist in the operator namespace"
    text = data.get(CA_BUNDLE_KEY, "")
    return (text, "") if text.strip() else ("", f"the CA ConfigMap {name} has no {CA_BUNDLE_KEY}")
