"""Loads the specification's plugin for every test, and hands it our implementation.

One of the three files that know both sides, with `gpustack_delivery.embedded` and the demo: the
suite never imports the implementation it judges, and gets it here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pytest

pytest_plugins = ["pytester", "spec_tests.plugin"]


class Ours:
    """The implementation of this repository, as `spec_tests.targets.Implementation` wants it."""

    name = "gpustack-delivery"
    version = version("gpustack-delivery")
    features = (
        "clock",
        "consumers",
        "expected-digest",
        "modelscope",
        "peer-sync",
        "progress",
        "public-api",
    )

    def __init__(self) -> None:
        """Import it; tests of the emulator and of the house never get here and never wait."""
        self._embedded = importlib.import_module("gpustack_delivery.embedded")
        self.worker_account: str = self._embedded.WORKER_ACCOUNT
        self.plugin_account: str = self._embedded.PLUGIN_ACCOUNT

    def translate(self, error: OSError) -> Exception:
        """Return what our ports raise for an OSError."""
        fault: Exception = self._embedded.host_fault(error)
        return fault

    def on(self, cluster: Any, values: Mapping[str, Any]) -> Any:
        """Prepare ourselves for one cluster."""
        return self._embedded.Embedded(cluster, values=values)


@pytest.fixture(scope="session")
def implementation() -> Ours:
    """Give the implementation under test."""
    return Ours()
