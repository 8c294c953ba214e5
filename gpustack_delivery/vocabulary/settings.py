"""Settings: what an administrator may change while everything runs.

They live in one Secret of the operator namespace, a data key each. A key that is missing has the
value of its seed variable in the worker's environment, or else the built-in default. What a value
must look like is decided in `decisions.settings`.

Rules: OP-SET-01, OP-SET-02.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SECRET_NAME: Final = "gpustack-settings"  # noqa: S105 - an object's name


@dataclass(frozen=True, slots=True)
class Setting:
    """One Setting: its name, its built-in default, and what it is for."""

    name: str
    default: str
    description: str

    @property
    def seed_variable(self) -> str:
        """Return the environment variable that stands in for a missing value."""
        return "GPUSTACK_" + self.name.upper().replace("-", "_")


DELIVERY_MODE: Final = Setting(
    "model-artifact-delivery-mode",
    "Engine",
    "Node mounts weights from the node cache; Engine leaves the download to the inference engine.",
)
HUGGING_FACE_ENDPOINT: Final = Setting(
    "model-artifact-huggingface-endpoint",
    "https://huggingface.co",
    "Where Hugging Face, or a mirror of it, is reached.",
)
MODEL_SCOPE_ENDPOINT: Final = Setting(
    "model-artifact-modelscope-endpoint",
    "https://www.modelscope.cn",
    "Where ModelScope, or a mirror of it, is reached.",
)
HTTPS_PROXY: Final = Setting(
    "model-artifact-https-proxy",
    "",
    "The proxy for https hubs; blank keeps the process environment's.",
)
NO_PROXY: Final = Setting(
    "model-artifact-no-proxy", "", "Hosts reached without the proxy, separated by commas."
)
CA_BUNDLE: Final = Setting(
    "model-artifact-ca-bundle",
    "",
    "A ConfigMap of the operator namespace whose key ca.crt is trusted beside the system's CAs.",
)
REVALIDATE_INTERVAL: Final = Setting(
    "model-artifact-revalidate-interval",
    "24h",
    "How often access to a resolved artifact is checked again.",
)
HIGH_WATERMARK: Final = Setting(
    "model-store-high-watermark",
    "80",
    "The usage of the cache filesystem, in percent, above which collection starts.",
)
LOW_WATERMARK: Final = Setting(
    "model-store-low-watermark",
    "70",
    "The usage of the cache filesystem, in percent, at which collection stops.",
)
DOWNLOAD_CONCURRENCY: Final = Setting(
    "model-store-download-concurrency", "8", "How many download requests run at once on a node."
)
DOWNLOAD_BANDWIDTH: Final = Setting(
    "model-store-download-bandwidth",
    "0",
    "A node's download limit in bytes per second, as a quantity; 0 is unlimited.",
)
PEER_SYNC: Final = Setting(
    "model-store-peer-sync", "true", "Whether a node pulls from nodes that already hold a tree."
)
WARMUP_IMAGE: Final = Setting(
    "model-prefetch-warmup-image",
    "gpustack/mirrored-python:3.12-alpine",
    "The image of warm-up Pods; it needs a shell, find and sha256sum.",
)

SETTINGS: Final = (
    DELIVERY_MODE,
    HUGGING_FACE_ENDPOINT,
    MODEL_SCOPE_ENDPOINT,
    HTTPS_PROXY,
    NO_PROXY,
    CA_BUNDLE,
    REVALIDATE_INTERVAL,
    HIGH_WATERMARK,
    LOW_WATERMARK,
    DOWNLOAD_CONCURRENCY,
    DOWNLOAD_BANDWIDTH,
    PEER_SYNC,
    WARMUP_IMAGE,
)


def read_secret(secret: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the stored values of known Settings, by name; an absent Secret stores none.

    A value that is not UTF-8 reads with replacement characters, which no check accepts: it is
    reported like any other bad value and never stops the reader.
    """
    data = (secret or {}).get("data") or {}
    return {
        setting.name: _decode(data[setting.name]) for setting in SETTINGS if setting.name in data
    }


def _decode(encoded: str) -> str:
    try:
        raw = base64.b64decode(encoded or "", validate=True)
    except binascii.Error:
        return "\N{REPLACEMENT CHARACTER}"
    return raw.decode(errors="replace").strip()
