"""The manifest of an implementation: a TOML file that says how its programs are started.

docs/conformance.md is its description for strangers. Every word is checked before anything runs: a
key that nobody reads, a placeholder that nobody fills, or a file that is not there is refused by
name.

Called by `processes` and, for the strict list, by `spec_tests.plugin`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

WORKER: Final = "worker"
MODEL_MANAGER: Final = "model-manager"
CLOCK: Final = "clock"
"""The feature of an implementation whose programs live by the clock that the suite serves."""

PLACEHOLDERS: Final[Mapping[str, frozenset[str]]] = {
    WORKER: frozenset(
        {
            "kubeconfig",
            "namespace",
            "clock_socket",
            "token_file",
            "webhook_port",
            "api_port",
            "worker_url",
            "certificate_dir",
        }
    ),
    MODEL_MANAGER: frozenset(
        {
            "kubeconfig",
            "namespace",
            "clock_socket",
            "node",
            "pod_address",
            "kubelet_dir",
            "cache_root",
            "csi_socket",
            "secure_port",
            "peer_port",
            "peer_streams",
            "peer_token",
        }
    ),
}
"""What is filled in between braces in the words of each command."""

FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    CLOCK: (),
    "peer-sync": ("PS-", "NS-DL-05"),
    "modelscope": ("AR-MS-",),
    "expected-digest": ("AR-ANC-",),
    "consumers": ("SC-", "NS-MNT-01", "NS-MNT-02", "NS-REQ-02", "NS-REQ-04"),
    "progress": ("VW-PRG-",),
    "public-api": ("VW-RES-", "VW-AUT-", "NS-MET-09", "NS-OWN-09"),
}
"""What an implementation may declare, and how the rules begin that are `unsupported` without it.

A test says by `@pytest.mark.feature(...)` what it needs beyond that; no rule as a whole needs the
clock.
"""

_ACCOUNTS: Final = {f"{WORKER}-account", f"{MODEL_MANAGER}-account"}
_KEYS: Final = (
    {"name", "version", WORKER, MODEL_MANAGER, "objects", "features", "expected-failures"}
    | {"environment", "chart-values"}
    | _ACCOUNTS
)
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


def features_of(rule: str) -> set[str]:
    """Return the features that a rule is about."""
    return {feature for feature, rules in FEATURES.items() if rule.startswith(rules)}


class ManifestError(ValueError):
    """The manifest cannot be used; the message names the file, the key and what to write."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An implementation, as its author describes it.

    Attributes:
        name: shown in the report, and the release name of a chart among the objects.
        version: shown in the report.
        folder: where the manifest lies; relative paths begin here.
        commands: the words of `worker` and `model-manager`, of whichever there are.
        accounts: by the same names, the ServiceAccount each runs as; without one, the cluster's
            administrator.
        objects: patterns of YAML files, or folders that hold a Helm chart.
        chart_values: laid over a chart's values; the text `{peer_port}` becomes the number.
        environment: added to the environment of every program.
        expected_failures: the strict list, if there is one.
    """

    name: str
    version: str
    folder: Path
    commands: Mapping[str, tuple[str, ...]]
    accounts: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    chart_values: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Path | None = None

    @property
    def title(self) -> str:
        """Return the name for the report; half an implementation says which half it is."""
        if len(self.commands) == 2:
            return self.name
        return f"{self.name} (partial: {next(iter(self.commands))} only)"

    def command(self, program: str, values: Mapping[str, str]) -> list[str]:
        """Return the words of one program with everything filled in."""
        first, *rest = self.commands[program]
        if "/" in first:
            first = str(self.folder / first)  # an absolute path stays what it is
        return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in (first, *rest)]


def load(file: Path) -> Manifest:
    """Read a manifest.

    Raises:
        ManifestError: it is unreadable, or says something that nobody would heed.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ManifestError(f"{file}: {error}") from error
    try:
        return _manifest(file.resolve().parent, table)
    except ManifestError as error:
        raise ManifestError(f"{file}: {error}") from error


def _manifest(folder: Path, table: Mapping[str, Any]) -> Manifest:
    if unknown := sorted(table.keys() - _KEYS):
        raise ManifestError(f"unknown key {unknown[0]!r}: known are {', '.join(sorted(_KEYS))}")
    commands = {
        program: _words(table, program) for program in (WORKER, MODEL_MANAGER) if program in table
    }
    if not commands:
        raise ManifestError(f"give the command {WORKER!r}, or {MODEL_MANAGER!r}, or both")
    for program, words in commands.items():
        _check_placeholders(program, words)
    features = _words(table, "features", may_be_empty=True)
    _check_clock(commands, declared=CLOCK in features)
    if strange := sorted(set(features) - FEATURES.keys()):
        raise ManifestError(f"unknown feature {strange[0]!r}: known are {sorted(FEATURES)}")
    environment = table.get("environment", {})
    if not isinstance(environment, dict) or not all(
        isinstance(v, str) for v in environment.values()
    ):
        raise ManifestError("environment must be a table of texts")
    if wrong := [n for n, v in environment.items() if not n or "=" in n or "\0" in n + v]:
        raise ManifestError(f"environment: {wrong[0]!r} cannot be a variable of a program")
    chart_values = table.get("chart-values", {})
    if not isinstance(chart_values, dict):
        raise ManifestError("chart-values must be a table")
    expected = _text(table, "expected-failures", required=False)
    return Manifest(
        name=_text(table, "name"),
        version=_text(table, "version"),
        folder=folder,
        commands=commands,
        accounts={
            program: _text(table, f"{program}-account")
            for program in commands
            if f"{program}-account" in table
        },
        objects=_words(table, "objects", may_be_empty=True),
        features=features,
        chart_values=chart_values,
        environment=environment,
        expected_failures=folder / expected if expected else None,
    )


def _check_clock(commands: Mapping[str, tuple[str, ...]], *, declared: bool) -> None:
    """Refuse a program that would live by another clock than the rest of its world."""
    for program, words in commands.items():
        told = any("{clock_socket}" in word for word in words)
        if declared and not told:
            raise ManifestError(f"{program}: the feature 'clock' needs {{clock_socket}} in it")
        if told and not declared:
            raise ManifestError(f"{program}: {{clock_socket}} needs the feature 'clock'")


def _text(table: Mapping[str, Any], key: str, *, required: bool = True) -> str:
    found = table.get(key, "")
    if not isinstance(found, str) or (required and not found):
        raise ManifestError(f"{key} must be a text that is not empty")
    return found


def _words(table: Mapping[str, Any], key: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    found = table.get(key, [])
    fit = isinstance(found, list) and all(isinstance(word, str) and word for word in found)
    if not fit or not (found or may_be_empty) or any("\0" in word for word in found):
        raise ManifestError(f"{key} must be a list of texts that are not empty and hold no NUL")
    return tuple(found)


def _check_placeholders(program: str, words: tuple[str, ...]) -> None:
    known = PLACEHOLDERS[program]
    for word in words:
        for name in _PLACEHOLDER.findall(word):
            if name not in known:
                raise ManifestError(
                    f"{program}: nothing fills {{{name}}}: known are "
                    + ", ".join(f"{{{each}}}" for each in sorted(known))
                )
