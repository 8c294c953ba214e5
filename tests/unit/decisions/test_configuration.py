"""Configuration: the merge of the layers, the last valid value, and the check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustack_delivery.decisions.configuration import (
    check,
    hub_access,
    merge,
    read_thresholds,
    winner,
)
from gpustack_delivery.decisions.settings import effective
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

DEFAULTS = effective({}, {})
GPU = {"pool": "gpu"}
DEFAULT_SPEC = Spec(
    watermarks=Watermarks(80, 70),
    download=DownloadLimits(8, 0),
    hub=HubAccess("https://huggingface.co", "https://www.modelscope.cn"),
    peer_sync_enabled=True,
)


def store(name: str, selector: dict[str, object], **spec: object) -> ModelStore:
    """Return a ModelStore."""
    return ModelStore.from_wire(
        {"metadata": {"name": name}, "spec": {"nodeSelector": selector, **spec}}
    )


def test_settings_alone() -> None:
    """Without stores the Settings are the spec, the kubelet's thresholds beside them."""
    thresholds = KubeletThresholds("10%")
    merged = merge(DEFAULTS, [], GPU, thresholds, None)
    assert merged.spec == replace(DEFAULT_SPEC, kubelet=thresholds)
    assert merged.faults == ()
    assert check(DEFAULT_SPEC) == ()


def test_first_matching_store_wins() -> None:
    """Of two stores that select the node the first by name wins; others do not matter."""
    everything = store("b", {})
    pool = store("a", {"matchLabels": GPU})
    assert winner([everything, pool], GPU) is pool
    assert winner([everything, pool], {}) is everything
    assert winner([pool], {}) is None


def test_store_overrides_what_it_states() -> None:
    """A stated field wins, 0 included; a field left out keeps the Setting's."""
    pool = store("a", {}, watermarks={"highPercent": 60, "lowPercent": 50})
    spec = merge(DEFAULTS, [pool], GPU, None, None).spec
    assert spec == replace(DEFAULT_SPEC, watermarks=Watermarks(60, 50), store="a")
    slow = DEFAULTS | {settings.DOWNLOAD_BANDWIDTH.name: "1Mi"}
    free = store("a", {}, download={"concurrency": 2, "bytesPerSecond": 0})
    spec = merge(slow, [free], GPU, None, None).spec
    assert spec is not None
    assert spec.download == DownloadLimits(2, 0)
    spec = merge(slow, [], GPU, None, None).spec
    assert spec is not None
    assert spec.download == DownloadLimits(8, 2**20)


@pytest.mark.parametrize(
    ("setting", "bad", "said"),
    [
        (settings.HIGH_WATERMARK, "200", "high-watermark"),
        (settings.LOW_WATERMARK, "x", "low-watermark"),
        (settings.LOW_WATERMARK, "90", "watermark"),
        (settings.DOWNLOAD_CONCURRENCY, "0", "concurrency"),
        (settings.DOWNLOAD_BANDWIDTH, "fast", "bandwidth"),
        (settings.HUGGING_FACE_ENDPOINT, "hf", "huggingface"),
        (settings.MODEL_SCOPE_ENDPOINT, "ms", "modelscope"),
        (settings.HTTPS_PROXY, "http://u:secret@p", "proxy"),
        (settings.NO_PROXY, "\x00", "no-proxy"),
        (settings.CA_BUNDLE, "A", "ca-bundle"),
        (settings.PEER_SYNC, "maybe", "peer-sync"),
    ],
    ids=lambda value: value.name if isinstance(value, settings.Setting) else "",
)
def test_bad_setting_keeps_the_last_valid_value(
    setting: settings.Setting, bad: str, said: str
) -> None:
    """A bad value changes nothing of its part and everything else goes on; a new node waits."""
    values = DEFAULTS | {setting.name: bad}
    stored = Spec(
        watermarks=Watermarks(66, 55),
        download=DownloadLimits(3, 7),
        hub=HubAccess("https://a", "https://b", "http://c", "d", "e"),
        peer_sync_enabled=False,
    )
    merged = merge(values, [], GPU, None, stored)
    assert merged.spec is not None
    assert check(merged.spec) == ()
    (fault,) = merged.faults
    assert said in fault
    assert "the last valid value stays" in fault
    assert "secret" not in fault
    fresh = merge(DEFAULTS, [], GPU, None, stored).spec
    assert fresh is not None
    assert merged.spec != fresh
    kept = merge(values, [], GPU, None, merged.spec).spec
    assert kept == merged.spec
    new = merge(values, [], GPU, None, None)
    assert new.spec is None
    assert "no valid value yet" in new.faults[0]


def test_crossed_watermarks_of_a_store_keep_the_last_pair() -> None:
    """A store whose pair crosses is set aside as a pair."""
    crossed = store("a", {}, watermarks={"highPercent": 50, "lowPercent": 60})
    merged = merge(DEFAULTS, [crossed], GPU, None, DEFAULT_SPEC)
    assert merged.spec == replace(DEFAULT_SPEC, store="a")
    assert "watermark" in merged.faults[0]


def test_broken_selector_freezes_only_its_own_nodes() -> None:
    """A node of a store whose selector broke keeps its spec; any other node goes on."""
    broken = store("a", {"matchExpressions": [{"key": "x", "operator": "Near"}]})
    inside = merge(DEFAULTS, [broken], GPU, None, replace(DEFAULT_SPEC, store="a"))
    assert inside.spec is None
    assert "ModelStore a" in inside.faults[0]
    outside = merge(DEFAULTS, [broken], GPU, None, DEFAULT_SPEC)
    assert outside.spec == DEFAULT_SPEC


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replace(DEFAULT_SPEC, watermarks=Watermarks(70, 70)), "watermarks"),
        (replace(DEFAULT_SPEC, watermarks=Watermarks(96, 70)), "watermarks"),
        (replace(DEFAULT_SPEC, watermarks=Watermarks(80, 0)), "watermarks"),
        (replace(DEFAULT_SPEC, download=DownloadLimits(0)), "concurrency"),
        (replace(DEFAULT_SPEC, download=DownloadLimits(65)), "concurrency"),
        (replace(DEFAULT_SPEC, download=DownloadLimits(8, -1)), "bytesPerSecond"),
        (replace(DEFAULT_SPEC, hub=HubAccess("")), "huggingFaceEndpoint"),
        (replace(DEFAULT_SPEC, hub=HubAccess("https://h", "ms")), "modelScopeEndpoint"),
        (replace(DEFAULT_SPEC, hub=HubAccess("https://h", https_proxy="p")), "httpsProxy"),
        (replace(DEFAULT_SPEC, hub=HubAccess("https://h", ca_bundle_config_map="_")), "caBundle"),
        (replace(DEFAULT_SPEC, kubelet=KubeletThresholds("101%")), "nodefsAvailable"),
        (replace(DEFAULT_SPEC, kubelet=KubeletThresholds("", "-1Gi")), "imagefsAvailable"),
        (replace(DEFAULT_SPEC, kubelet=KubeletThresholds("much")), "nodefsAvailable"),
        (replace(DEFAULT_SPEC, kubelet=KubeletThresholds("", "", 101)), "imageGCHigh"),
    ],
)
def test_check_names_the_field(spec: Spec, said: str) -> None:
    """Each fault names its field."""
    (fault,) = check(spec)
    assert said in fault


def test_check_reports_everything() -> None:
    """All faults are told at once; a valid kubelet adds none."""
    spec = replace(DEFAULT_SPEC, watermarks=Watermarks(0, 0), download=DownloadLimits(0, -1))
    assert len(check(spec)) == 3
    assert check(replace(DEFAULT_SPEC, kubelet=KubeletThresholds("12.5%", "20Gi", 85))) == ()


def test_thresholds() -> None:
    """Hard eviction thresholds and the image threshold are read; what is unset stays empty."""
    configz = {
        "kubeletconfig": {
            "evictionHard": {"nodefs.available": "10%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 85,
        }
    }
    assert read_thresholds(configz) == KubeletThresholds("10%", "", 85)


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"evictionHard": None, "imageGCHighThresholdPercent": "85"},
        {"evictionHard": {"nodefs.available": "much", "imagefs.available": 7}},
        {"imageGCHighThresholdPercent": 101},
        {"imageGCHighThresholdPercent": True},
    ],
)
def test_unusable_thresholds_are_left_out(configuration: dict[str, object]) -> None:
    """A threshold that means nothing is as good as unset."""
    assert read_thresholds({"kubeletconfig": configuration}) == KubeletThresholds()


@pytest.mark.parametrize("answer", [None, [], "x", {}, {"kubeletconfig": []}])
def test_what_is_no_configuration(answer: object) -> None:
    """An answer without a configuration is a failed read."""
    with pytest.raises(ValueError, match="kubeletconfig"):
        read_thresholds(answer)


def test_worker_reaches_the_hubs_by_the_same_settings() -> None:
    """The worker's own access is the Settings', and a bad one is named."""
    assert hub_access(DEFAULTS) == DEFAULT_SPEC.hub
    with pytest.raises(ConfigurationFault, match="huggingface-endpoint: must be an absolute"):
        hub_access(DEFAULTS | {settings.HUGGING_FACE_ENDPOINT.name: "hf"})
