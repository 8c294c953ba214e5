"""Settings: names, seeds and the Secret."""

from __future__ import annotations

import base64

from gpustack_delivery.vocabulary.settings import (
    DOWNLOAD_CONCURRENCY,
    HIGH_WATERMARK,
    NO_PROXY,
    SETTINGS,
    read_secret,
)


def test_seed_variable() -> None:
    """A seed's name is the Setting's in upper snake case."""
    assert HIGH_WATERMARK.seed_variable == "GPUSTACK_MODEL_STORE_HIGH_WATERMARK"


def test_names_are_distinct() -> None:
    """No Setting hides another."""
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS) == 13


def test_secret_values() -> None:
    """Known keys are decoded and trimmed; unknown keys are ignored; no Secret stores nothing."""
    data = {
        HIGH_WATERMARK.name: base64.b64encode(b" 85\n").decode(),
        "something-else": "eA==",
    }
    assert read_secret({"data": data}) == {HIGH_WATERMARK.name: "85"}
    assert read_secret({"data": None}) == {}
    assert read_secret(None) == {}


def test_garbage_reads_as_a_value_no_check_accepts() -> None:
    """Bytes that are no text, and base64 that is none, read with the replacement character."""
    data = {
        NO_PROXY.name: base64.b64encode(b"a\xff").decode(),
        DOWNLOAD_CONCURRENCY.name: "!",
    }
    assert read_secret({"data": data}) == {
        NO_PROXY.name: "a\ufffd",
        DOWNLOAD_CONCURRENCY.name: "\ufffd",
    }
