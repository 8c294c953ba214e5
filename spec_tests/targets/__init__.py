"""What the specification runs against, and what each target must be able to do.

A test asks for conditions, never for mechanisms: a node that is full, a plugin that is gone, a
minute later. A target turns them into whatever its world needs. docs/conformance.md describes the
targets.

The suite knows an implementation by these Protocols alone; root conftest.py hands ours over, and
the suite imports none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

KINDS: Final = ("in-process", "processes")
"""The names that `--target` accepts."""


class Unsupported(Exception):
    """A target cannot make a condition, or the implementation lacks what a test asks for.

    It ends the test with the outcome `unsupported`, and its text is the reason in the report.
    """


class Ended(AssertionError):
    """A program of the implementation ended by itself, or never began; the text has its words."""


class RunningPlugin(Protocol):
    """A plugin that serves one node."""

    @property
    def metrics_url(self) -> str:
        """Return the base URL of its HTTPS port, without a path."""

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does, and wait until it has."""


class Installation(Protocol):
    """An implementation on one cluster."""

    def install(self) -> None:
        """Apply its objects: CRDs, CSIDriver, accounts, rights and, with a worker, webhooks."""

    def start_worker(self) -> None:
        """Start the worker and return when its webhooks answer."""

    def start_plugin(self, node: Any) -> RunningPlugin:
        """Start the plugin of an emulated node and its registration with kubelet."""

    def close(self) -> None:
        """End everything that still runs."""


class Implementation(Protocol):
    """Something under test: who it is, what it can do, and how it comes onto a cluster."""

    name: str
    version: str
    features: tuple[str, ...]
    worker_account: str
    """The worker's ServiceAccount in the operator namespace."""
    plugin_account: str
    """The plugin's ServiceAccount in the operator namespace."""

    def translate(self, error: OSError) -> Exception:
        """Return what its disk and mount ports raise in place of an OSError."""

    def on(self, cluster: Any, values: Mapping[str, Any]) -> Installation:
        """Prepare for one emulated cluster; `values` are the chart's."""
