"""Settings: every check, the layers of a value, and seeds."""

from __future__ import annotations

import pytest

from gpustack_delivery.decisions.settings import (
    check,
    check_seeds,
    effective,
    parse_bandwidth,
    revalidate_seconds,
)
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary import settings


def test_defaults_pass_their_checks() -> None:
    """The built-in defaults are a valid configuration."""
    assert check(effective({}, {})) == {}


def test_layers() -> None:
    """A stored value beats the seed, the seed beats the default, an empty seed counts as none."""
    high, low = settings.HIGH_WATERMARK, settings.LOW_WATERMARK
    environment = {high.seed_variable: "90", low.seed_variable: ""}
    values = effective({high.name: "85"}, environment)
    assert values[high.name] == "85"
    assert effective({}, environment)[high.name] == "90"
    assert values[low.name] == "70"


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        (settings.DELIVERY_MODE, ["Engine", "Node"], ["node", ""]),
        (
            settings.HUGGING_FACE_ENDPOINT,
            ["http://mirror:8080/hf", "https://[::1]:1"],
            [
                "",
                "ftp://h",
                "huggingface.co",
                "https://",
                "https://h:port",
                "https://[::1",
                "https://user:secret@h",
                "https://h?a=b",
                "https://h#a",
                "https://h h",
                "https://h\n",
                "https://h\\h",
                "https://" + "h" * 2048,
            ],
        ),
        (settings.MODEL_SCOPE_ENDPOINT, ["https://www.modelscope.cn"], ["", "www.modelscope.cn"]),
        (settings.HTTPS_PROXY, ["", "http://proxy:3128"], ["socks5://p", "http://u:p@proxy"]),
        (settings.NO_PROXY, ["", "localhost,.corp,10.0.0.0/8"], ["a\x00b", "a\ufffd"]),
        (settings.CA_BUNDLE, ["", "corp-ca"], ["Corp", "a..b", "-a", "a" * 254]),
        (settings.REVALIDATE_INTERVAL, ["1m", "24h", "90s"], ["59s", "", "daily", "-1h"]),
        (settings.HIGH_WATERMARK, ["71", "95"], ["96", "1", "80%", "8e1", "٨٠", "70"]),
        (settings.LOW_WATERMARK, ["1", "79"], ["0", "95", "-1", "", "80"]),
        (settings.DOWNLOAD_CONCURRENCY, ["1", "64"], ["0", "65", "0x8", "1000"]),
        (
            settings.DOWNLOAD_BANDWIDTH,
            ["0", "200Mi", "1e6"],
            ["-1", "1500m", "fast", "9e20", "99Ei"],
        ),
        (settings.PEER_SYNC, ["true", "false"], ["yes", "True", ""]),
        (settings.WARMUP_IMAGE, ["busybox:1"], ["", "a b", "a\tb"]),
    ],
    ids=lambda value: value.name if isinstance(value, settings.Setting) else "",
)
def test_checks(setting: settings.Setting, good: list[str], bad: list[str]) -> None:
    """Every Setting takes what it documents and refuses everything else by its own name."""
    for value in good:
        assert check(effective({setting.name: value}, {})) == {}, value
    for value in bad:
        faults = check(effective({setting.name: value}, {}))
        assert len(faults) == 1, value
        assert "must" in next(iter(faults.values()))
        assert value == "" or "secret" not in str(faults)


def test_watermarks_are_judged_together() -> None:
    """A pair that crosses is refused even if each value alone would do."""
    values = effective({settings.HIGH_WATERMARK.name: "60"}, {})
    assert check(values) == {
        settings.HIGH_WATERMARK.name: "must be above model-store-low-watermark"
    }


def test_bandwidth_value() -> None:
    """A bandwidth is worth its bytes per second."""
    assert parse_bandwidth("200Mi") == 200 * 2**20


def test_seeds() -> None:
    """A bad seed is named with its variable, its Setting and the check; good ones pass."""
    check_seeds({})
    with pytest.raises(ConfigurationFault) as fault:
        check_seeds({settings.DOWNLOAD_CONCURRENCY.seed_variable: "many"})
    assert str(fault.value) == (
        "GPUSTACK_MODEL_STORE_DOWNLOAD_CONCURRENCY (the seed of the Setting "
        "model-store-download-concurrency) must be a whole number from 1 to 64"
    )


def test_revalidate_interval() -> None:
    """A bad stored interval is replaced by the built-in one."""
    name = settings.REVALIDATE_INTERVAL.name
    assert revalidate_seconds({name: "90m"}) == 5400
    assert revalidate_seconds({name: "soon"}) == 86400
