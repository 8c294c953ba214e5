"""The configuration a node's kubelet runs with, as its configz endpoint shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EVICTION_HARD: Mapping[str, str] = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}


def configuration(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return configz: kubelet's defaults with some fields changed; None takes a field away."""
    fields: dict[str, Any] = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "enableServer": True,
        "syncFrequency": "1m0s",
        "fileCheckFrequency": "20s",
        "httpCheckFrequency": "20s",
        "port": 10250,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "2m0s"},
        },
        "authorization": {"mode": "Webhook"},
        "enableDebuggingHandlers": True,
        "healthzPort": 10248,
        "nodeStatusUpdateFrequency": "10s",
        "nodeStatusReportFrequency": "5m0s",
        "nodeLeaseDurationSeconds": 40,
        "imageMinimumGCAge": "2m0s",
        "imageMaximumGCAge": "0s",
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "volumeStatsAggPeriod": "1m0s",
        "maxPods": 110,
        "evictionHard": dict(EVICTION_HARD),
        "evictionPressureTransitionPeriod": "5m0s",
        "enableControllerAttachDetach": True,
        "serializeImagePulls": True,
    }
    changed = {**fields, **changes}
    return {"kubeletconfig": {key: value for key, value in changed.items() if value is not None}}
