"""What the Settings' values must look like, and what they are worth.

A value comes from the Settings' Secret, or from its seed in the worker's environment, or is the
built-in default. An edit through the public API is judged before it is stored; a value that reached
the Secret directly is judged where it is used, and a bad one changes nothing. A bad seed stops the
worker at its start.

Each `parse_…` returns a value in its unit or raises ValueError with the check in words. None
repeats the value.

Rules: OP-SET-01, OP-SET-02.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpustack_delivery.decisions.addresses import (
    endpoint_fault,
    object_name_fault,
    plain_text_fault,
    proxy_fault,
)
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary import quantity, settings
from gpustack_delivery.vocabulary.duration import parse_duration

NODE_DELIVERY: Final = "Node"
ENGINE_DELIVERY: Final = "Engine"
MAX_HIGH_PERCENT: Final = 95
MAX_CONCURRENCY: Final = 64
MIN_INTERVAL_SECONDS: Final = 60.0
_MAX_BYTES: Final = 2**63 - 1
_BOOLEANS: Final = {"true": True, "false": False}


def parse_mode(text: str) -> str:
    """Return the delivery mode."""
    if text not in {ENGINE_DELIVERY, NODE_DELIVERY}:
        raise ValueError("must be Engine or Node")
    return text


def parse_endpoint(text: str) -> str:
    """Return a hub's endpoint."""
    return _faultless(text, endpoint_fault)


def parse_proxy(text: str) -> str:
    """Return the proxy's URL, or ""."""
    return _faultless(text, proxy_fault) if text else ""


def parse_no_proxy(text: str) -> str:
    """Return the list of hosts that need no proxy."""
    return _faultless(text, plain_text_fault)


def parse_config_map(text: str) -> str:
    """Return a ConfigMap's name, or ""."""
    return _faultless(text, object_name_fault) if text else ""


def parse_interval(text: str) -> float:
    """Return an interval in seconds."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ValueError("must be a duration such as 24h or 90m") from None
    if seconds < MIN_INTERVAL_SECONDS:
        raise ValueError("must be at least 1m")
    return seconds


def parse_high_percent(text: str) -> int:
    """Return the high watermark."""
    return _whole(text, 2, MAX_HIGH_PERCENT)


def parse_low_percent(text: str) -> int:
    """Return the low watermark."""
    return _whole(text, 1, MAX_HIGH_PERCENT - 1)


def parse_concurrency(text: str) -> int:
    """Return the number of requests at once."""
    return _whole(text, 1, MAX_CONCURRENCY)


def parse_bandwidth(text: str) -> int:
    """Return a limit in bytes per second; 0 is unlimited."""
    try:
        amount = quantity.parse(text)
    except ValueError:
        raise ValueError("must be a quantity of bytes per second such as 200Mi, or 0") from None
    if amount < 0 or amount.denominator != 1 or amount > _MAX_BYTES:
        raise ValueError("must be a whole number of bytes per second, not negative")
    return int(amount)


def parse_switch(text: str) -> bool:
    """Return a yes or no."""
    if text not in _BOOLEANS:
        raise ValueError("must be true or false")
    return _BOOLEANS[text]


def parse_image(text: str) -> str:
    """Return an image reference."""
    if not text or " " in text:
        raise ValueError("must be an image reference")
    return _faultless(text, plain_text_fault)


_PARSERS: Final[Mapping[settings.Setting, Callable[[str], object]]] = {
    settings.DELIVERY_MODE: parse_mode,
    settings.HUGGING_FACE_ENDPOINT: parse_endpoint,
    settings.MODEL_SCOPE_ENDPOINT: parse_endpoint,
    settings.HTTPS_PROXY: parse_proxy,
    settings.NO_PROXY: parse_no_proxy,
    settings.CA_BUNDLE: parse_config_map,
    settings.REVALIDATE_INTERVAL: parse_interval,
    settings.HIGH_WATERMARK: parse_high_percent,
    settings.LOW_WATERMARK: parse_low_percent,
    settings.DOWNLOAD_CONCURRENCY: parse_concurrency,
    settings.DOWNLOAD_BANDWIDTH: parse_bandwidth,
    settings.PEER_SYNC: parse_switch,
    settings.WARMUP_IMAGE: parse_image,
}


def effective(stored: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return every Setting's value as text: the stored one, else its seed, else the default.

    A seed variable that is set but empty counts as unset.
    """
    return {
        setting.name: stored.get(
            setting.name, environment.get(setting.seed_variable) or setting.default
        )
        for setting in settings.SETTINGS
    }


def check(values: Mapping[str, str]) -> dict[str, str]:
    """Say what is wrong with the values of every Setting, by name; empty when nothing is."""
    faults = {}
    for setting, parse in _PARSERS.items():
        try:
            parse(values[setting.name])
        except ValueError as fault:
            faults[setting.name] = str(fault)
    high, low = settings.HIGH_WATERMARK.name, settings.LOW_WATERMARK.name
    if not {high, low} & faults.keys() and int(values[low]) >= int(values[high]):
        faults[high] = f"must be above {low}"
    return faults


def edited(stored: Mapping[str, str], name: str, value: str | None) -> dict[str, str]:
    """Return the stored values after an edit; None gives a Setting its seed or default back."""
    others = {key: text for key, text in stored.items() if key != name}
    return others if value is None else others | {name: value.strip()}


def edit_fault(
    stored: Mapping[str, str], environment: Mapping[str, str], name: str, value: str | None
) -> str:
    """Say what is wrong with an edit of one Setting, "" if nothing is.

    A fault that another Setting had before is not held against this one; a fault that it would get
    from this edit is.
    """
    before = check(effective(stored, environment))
    after = check(effective(edited(stored, name, value), environment))
    if name in after:
        return f"{name} {after[name]}"
    return next((f"{key} {text}" for key, text in after.items() if before.get(key) != text), "")


def check_seeds(environment: Mapping[str, str]) -> None:
    """Judge the seeds.

    Raises:
        ConfigurationFault: a seed is invalid; the message names the variable and the check.
    """
    faults = check(effective({}, environment))
    for setting in settings.SETTINGS:
        if setting.name in faults:
            raise ConfigurationFault(
                f"{setting.seed_variable} (the seed of the Setting {setting.name}) "
                f"{faults[setting.name]}"
            )


def revalidate_seconds(values: Mapping[str, str]) -> float:
    """Return the revalidation interval; the built-in one stands in for a bad value."""
    try:
        return parse_interval(values[settings.REVALIDATE_INTERVAL.name])
    except ValueError:
        return parse_interval(settings.REVALIDATE_INTERVAL.default)


def _faultless(text: str, fault_of: Callable[[str], str]) -> str:
    fault = fault_of(text)
    if fault:
        raise ValueError(fault)
    return text


def _whole(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and low <= int(text) <= high):
        raise ValueError(f"must be a whole number from {low} to {high}")
    return int(text)
