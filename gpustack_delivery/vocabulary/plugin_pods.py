"""The Pods that plugins run in, as far as another plugin needs to know them.

Rules: PS-CLI-01.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

COMPONENT_SELECTOR: Final = "app.kubernetes.io/component=model-manager"
PEER_PORT_NAME: Final = "peer-sync"


@dataclass(frozen=True, slots=True)
class PluginPod:
    """One plugin's Pod.

    `address` is empty before it has one, `peer_port` 0 when it declares none. `ready` is false as
    soon as the Pod is being deleted.
    """

    node: str
    address: str
    peer_port: int
    ready: bool

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Self:
        """Read a Pod."""
        spec, status = body.get("spec") or {}, body.get("status") or {}
        ports = [
            port["containerPort"]
            for container in spec.get("containers") or ()
            for port in container.get("ports") or ()
            if port.get("name") == PEER_PORT_NAME
        ]
        ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in status.get("conditions") or ()
        )
        return cls(
            node=spec.get("nodeName", ""),
            address=status.get("podIP", ""),
            peer_port=ports[0] if ports else 0,
            ready=ready and not body["metadata"].get("deletionTimestamp"),
        )
