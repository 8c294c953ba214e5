"""A node's effective configuration: the layers merged, and the check that guards it.

The cluster's Settings come first, and the ModelStore that wins the node overrides what it states. A
part that fails its check is never written: the node keeps the last valid value of that part, and a
node that never had one gets no object until the fault is mended. The plugin runs the same `check`
over what it is given.

Rules: NS-OWN-04, NS-OWN-05, NS-OWN-06, NS-OWN-07, MP-RES-01, MP-RES-02, MP-RES-03, OP-CAP-02.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gpustack_delivery.decisions import settings as judged
from gpustack_delivery.decisions.addresses import endpoint_fault, object_name_fault, proxy_fault
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary import settings
from gpustack_delivery.vocabulary.grants import ModelStore
from gpustack_delivery.vocabulary.node_store import (
    DownloadLimits,
    HubAccess,
    KubeletThresholds,
    Spec,
    Watermarks,
)
from gpustack_delivery.vocabulary.quantity import parse

_PERCENT: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?%")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged spec, without pins; None if some part has no valid value, old or new.

    `faults` says what was set aside, one line each.
    """

    spec: Spec | None
    faults: tuple[str, ...] = ()


def winner(stores: Sequence[ModelStore], labels: Mapping[str, str]) -> ModelStore | None:
    """Return the store whose overrides a node with these labels takes: the first by name."""
    matching = (store for store in stores if store.spec.node_selector.matches(labels))
    return min(matching, key=lambda store: store.metadata.name, default=None)


def merge(
    values: Mapping[str, str],
    stores: Sequence[ModelStore],
    labels: Mapping[str, str],
    kubelet: KubeletThresholds | None,
    stored: Spec | None,
) -> Merged:
    """Merge the layers for one node.

    Args:
        values: every Setting's effective value, unchecked.
        stores: every ModelStore.
        labels: the node's labels.
        kubelet: its kubelet's thresholds, None if they were never read.
        stored: the node's spec as it is now, None if there is none.
    """
    broken = {store.metadata.name for store in stores if not store.spec.node_selector.is_valid}
    if stored is not None and stored.store in broken:
        # Nobody can say whether the node still belongs to it, so nothing moves.
        return Merged(None, (f"the node selector of ModelStore {stored.store} is malformed",))
    store = winner(stores, labels)
    parts = _Parts(values)
    overrides = store.spec if store else None
    watermarks = parts.take(
        lambda: _watermarks(values, overrides.watermarks if overrides else None),
        stored.watermarks if stored else None,
        "watermarks",
    )
    limits = _limits(parts, store, stored.download if stored else None)
    hub = _hub_access(parts, stored.hub if stored else None)
    peers = parts.setting(settings.PEER_SYNC, judged.parse_switch, _of(stored, "peer_sync_enabled"))
    if watermarks is None or limits is None or hub is None or peers is None:
        return Merged(None, tuple(parts.faults))
    spec = Spec(
        watermarks=watermarks,
        download=limits,
        hub=hub,
        kubelet=kubelet,
        store=store.metadata.name if store else "",
        peer_sync_enabled=peers,
    )
    return Merged(spec, tuple(parts.faults))


def hub_access(values: Mapping[str, str]) -> HubAccess:
    """Return how the worker itself reaches the hubs.

    Raises:
        ConfigurationFault: a Setting of it is invalid; the message names it.
    """
    parts = _Parts(values)
    access = _hub_access(parts, None)
    if access is None:
        raise ConfigurationFault("; ".join(parts.faults))
    return access


def check(spec: Spec) -> tuple[str, ...]:
    """Say everything that keeps a spec from being executed; empty when nothing does."""
    low, high = spec.watermarks.low_percent, spec.watermarks.high_percent
    faults = []
    if not 1 <= low < high <= judged.MAX_HIGH_PERCENT:
        faults.append(f"watermarks: low {low} and high {high} must keep 1 <= low < high <= 95")
    if not 1 <= spec.download.concurrency <= judged.MAX_CONCURRENCY:
        faults.append(f"download.concurrency: {spec.download.concurrency} must be from 1 to 64")
    if spec.download.bytes_per_second < 0:
        faults.append("download.bytesPerSecond: must not be negative")
    hub = spec.hub
    named = {
        "huggingFaceEndpoint": endpoint_fault(hub.hugging_face_endpoint),
        "modelScopeEndpoint": hub.model_scope_endpoint and endpoint_fault(hub.model_scope_endpoint),
        "httpsProxy": hub.https_proxy and proxy_fault(hub.https_proxy),
        "caBundleConfigMap": hub.ca_bundle_config_map
        and object_name_fault(hub.ca_bundle_config_map),
    }
    faults += [f"hub.{name}: {fault}" for name, fault in named.items() if fault]
    if spec.kubelet is not None:
        faults += _kubelet_faults(spec.kubelet)
    return tuple(faults)


def read_thresholds(configz: object) -> KubeletThresholds:
    """Read the thresholds out of what kubelet's configz endpoint answered.

    A threshold that is no percentage and no quantity is left out, as one kubelet does not set.

    Raises:
        ValueError: the answer is not a kubelet's configuration.
    """
    configuration = configz.get("kubeletconfig") if isinstance(configz, Mapping) else None
    if not isinstance(configuration, Mapping):
        raise ValueError("the answer holds no kubeletconfig")
    eviction = configuration.get("evictionHard")
    hard: Mapping[str, Any] = eviction if isinstance(eviction, Mapping) else {}
    percent = configuration.get("imageGCHighThresholdPercent")
    usable = type(percent) is int and 0 <= percent <= 100
    return KubeletThresholds(
        nodefs_available=_threshold(hard.get("nodefs.available")),
        imagefs_available=_threshold(hard.get("imagefs.available")),
        image_gc_high_percent=percent if usable else None,
    )


class _Parts:
    """Takes the parts of a spec one by one, and remembers what was wrong with them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.faults: list[str] = []

    def take(self, compute: Callable[[], Value], last: Value | None, name: str) -> Value | None:
        """Return the computed part, or the last valid one, or None."""
        try:
            return compute()
        except ValueError as fault:
            kept = "there is no valid value yet" if last is None else "the last valid value stays"
            self.faults.append(f"{name}: {fault}; {kept}")
            return last

    def setting(
        self, setting: settings.Setting, parse_text: Callable[[str], Value], last: Value | None
    ) -> Value | None:
        """Return one Setting's value, or the last valid one, or None."""
        text = self._values[setting.name]
        return self.take(lambda: parse_text(text), last, f"Setting {setting.name}")


def _watermarks(values: Mapping[str, str], override: Watermarks | None) -> Watermarks:
    high_name, low_name = settings.HIGH_WATERMARK.name, settings.LOW_WATERMARK.name
    chosen = override
    if chosen is None:
        try:
            high = judged.parse_high_percent(values[high_name])
        except ValueError as fault:
            raise ValueError(f"Setting {high_name} {fault}") from None
        try:
            chosen = Watermarks(high, judged.parse_low_percent(values[low_name]))
        except ValueError as fault:
            raise ValueError(f"Setting {low_name} {fault}") from None
    if not 1 <= chosen.low_percent < chosen.high_percent <= judged.MAX_HIGH_PERCENT:
        raise ValueError("the low watermark must be below the high one, both from 1 to 95")
    return chosen


def _limits(
    parts: _Parts, store: ModelStore | None, last: DownloadLimits | None
) -> DownloadLimits | None:
    concurrency = store.spec.concurrency if store else None
    speed = store.spec.bytes_per_second if store else None
    if concurrency is None:
        concurrency = parts.setting(
            settings.DOWNLOAD_CONCURRENCY, judged.parse_concurrency, _of(last, "concurrency")
        )
    if speed is None:
        speed = parts.setting(
            settings.DOWNLOAD_BANDWIDTH, judged.parse_bandwidth, _of(last, "bytes_per_second")
        )
    if concurrency is None or speed is None:
        return None
    return DownloadLimits(concurrency, speed)


def _hub_access(parts: _Parts, last: HubAccess | None) -> HubAccess | None:
    fields = [
        parts.setting(setting, parse_text, _of(last, field))
        for field, setting, parse_text in (
            ("hugging_face_endpoint", settings.HUGGING_FACE_ENDPOINT, judged.parse_endpoint),
            ("model_scope_endpoint", settings.MODEL_SCOPE_ENDPOINT, judged.parse_endpoint),
            ("https_proxy", settings.HTTPS_PROXY, judged.parse_proxy),
            ("no_proxy", settings.NO_PROXY, judged.parse_no_proxy),
            ("ca_bundle_config_map", settings.CA_BUNDLE, judged.parse_config_map),
        )
    ]
    known = [field for field in fields if field is not None]
    return HubAccess(*known) if len(known) == len(fields) else None


def _of(record: object, field: str) -> Any:
    """Return a field of the last valid record, or None where there is none."""
    return None if record is None else getattr(record, field)


def _threshold(value: object) -> str:
    return value if isinstance(value, str) and not _threshold_fault(value) else ""


def _threshold_fault(text: str) -> str:
    if _PERCENT.fullmatch(text):
        return "" if float(text[:-1]) <= 100 else "must be at most 100%"
    try:
        return "" if parse(text) >= 0 else "must not be negative"
    except ValueError:
        return "must be a percentage or a quantity"


def _kubelet_faults(kubelet: KubeletThresholds) -> list[str]:
    named = {
        "nodefsAvailable": kubelet.nodefs_available and _threshold_fault(kubelet.nodefs_available),
        "imagefsAvailable": kubelet.imagefs_available
        and _threshold_fault(kubelet.imagefs_available),
    }
    faults = [f"kubelet.{name}: {fault}" for name, fault in named.items() if fault]
    percent = kubelet.image_gc_high_percent
    if percent is not None and not 0 <= percent <= 100:
        faults.append(f"kubelet.imageGCHighThresholdPercent: {percent} must be from 0 to 100")
    return faults
