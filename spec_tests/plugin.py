"""The suite's pytest plugin: cited rules, missing needs by name, a verdict for every rule.

Root conftest.py loads it, so that `needs` and `rule` mean the same in tests/ and in spec_tests/:

- `@pytest.mark.rule("NS-AUT-05")` must name rules of the catalogue, and every test under spec_tests
names one.
  A red test prints the sentence it broke.
- `@pytest.mark.needs("kubectl")` is not run where kubectl is missing, and the summary says so by
name.
- `@pytest.mark.feature("peer-sync")` is `unsupported` for an implementation that does not declare
the feature, and so is a test whose condition a target cannot make.

After a complete run (every rule outside pending.txt was cited) it writes the report to
`build/spec-report/<target>/`. The run fails when a rule failed, when the suite broke, when a
pending rule has a passing test, or when a rule that was expected to fail passes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from emulator.errors import ApiError
from spec_tests.needs import PROBES, missing
from spec_tests.registry import CatalogueError, Registry, load
from spec_tests.report.verdicts import Outcome, Run, TestResult, Verdict, judge
from spec_tests.report.writer import About, write
from spec_tests.targets import KINDS, Unsupported, preflight
from spec_tests.targets.manifest import Manifest, ManifestError
from spec_tests.targets.manifest import load as load_manifest
from spec_tests.targets.rights import Rights

REGISTRY: Final = pytest.StashKey[Registry]()
ABOUT: Final = pytest.StashKey[About]()
"""Who is under test; the `target` fixture fills it in."""
MANIFEST: Final = pytest.StashKey[Manifest]()
"""What the `processes` target starts."""
RIGHTS: Final = pytest.StashKey[Rights]()
"""What the accounts under test were granted and used, as far as it was seen."""
WORKER_ABOUT: Final = "about"
"""Under which name a worker of pytest-xdist tells the reporting process who is under test."""
WORKER_RIGHTS: Final = "rights"
"""Under which name it tells the rights it saw."""

_OF_A_WEBHOOK: Final = ("admission webhook ", "Internal error occurred: failed calling webhook ")
"""How the API server begins to say that a webhook refused a write, or could not judge it."""

_SUITE: Final = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("specification")
    group.addoption(
        "--target", choices=KINDS, default="in-process", help="what the specification runs against"
    )
    group.addoption(
        "--manifest", type=Path, metavar="FILE", help="TOML: what --target processes starts"
    )
    group.addoption(
        "--real-seconds",
        type=float,
        default=10.0,
        metavar="N",
        help="how long a test may wait at once where time is real (default: 10)",
    )
    group.addoption(
        "--expected-failures",
        type=Path,
        metavar="FILE",
        help="TOML: rule = reason; strict, see docs/conformance.md",
    )
    group.addoption(
        "--idle-rights",
        type=Path,
        metavar="FILE",
        help="TOML: granted right that no test uses = reason; strict, see docs/conformance.md",
    )
    group.addoption(
        "--spec-report",
        type=Path,
        metavar="DIR",
        help="write the report here, even of a part of the suite",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Read the catalogue and begin to collect results."""
    config.addinivalue_line(
        "markers", "feature(*names): features an implementation must declare for this test"
    )
    config.stash[REGISTRY] = load(_SUITE)
    config.stash[RIGHTS] = Rights()
    if config.getoption("--target") == "processes":
        config.stash[MANIFEST] = _manifest(config)
    if not hasattr(config, "workerinput"):
        # A worker of pytest-xdist only runs tests; the process that hands them out reports.
        config.pluginmanager.register(_Results(config), "specification-results")


def _manifest(config: pytest.Config) -> Manifest:
    """Return the manifest of the command line, and take up its list of expected failures."""
    file: Path | None = config.getoption("--manifest")
    if file is None:
        raise pytest.UsageError("--target processes needs --manifest FILE: docs/conformance.md")
    if missing(("kernel-mounts",)):
        raise pytest.UsageError("--target processes mounts for real: run it as root, on Linux")
    try:
        manifest = load_manifest(file)
    except ManifestError as error:
        raise pytest.UsageError(str(error)) from error
    try:
        preflight.check(manifest)
    except ManifestError as error:
        raise pytest.UsageError(f"{file}: {error}") from error
    if config.getoption("--expected-failures") is None:
        config.option.expected_failures = manifest.expected_failures
    return manifest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check every citation and remember it on the test."""
    registry = config.stash[REGISTRY]
    expected = expected_failures(config)
    for item in items:
        cited = tuple(dict.fromkeys(_names(item, "rule")))
        try:
            for identifier in cited:
                registry.cite(identifier)
        except CatalogueError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from error
        unknown = [need for need in _names(item, "needs") if need not in PROBES]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid}: no probe for {unknown} in spec_tests/needs.py")
        if _SUITE in item.path.parents:
            if not cited:
                raise pytest.UsageError(f"{item.nodeid}: names no rule: @pytest.mark.rule(...)")
            item.user_properties.extend(("rule", identifier) for identifier in cited)
            reasons = [expected[identifier] for identifier in cited if identifier in expected]
            if reasons:
                # Not strict here: a rule may have several tests; `judge` is strict over them all.
                item.add_marker(pytest.mark.xfail(reason="; ".join(reasons), strict=False))


def _names(item: pytest.Item, marker: str) -> list[str]:
    return [str(name) for mark in item.iter_markers(marker) for name in mark.args]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out, by name, a test whose needs are not met here."""
    absent = missing(tuple(_names(item, "needs")))
    if absent:
        reason = f"needs {', '.join(absent)}"
        item.user_properties.append(("not-run", reason))
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broken sentences and the world's state to a red report, and say whose fault it is."""
    report = yield
    if call.excinfo is None or not (report.failed or hasattr(report, "wasxfail")):
        return report
    if issubclass(call.excinfo.type, Unsupported):
        return _unsupported(report, str(call.excinfo.value))
    if not report.failed:
        return report
    registry = item.config.stash[REGISTRY]
    for identifier in _names(item, "rule"):
        rule = registry.cite(identifier)
        report.sections.append((f"rule {rule.id} ({rule.doc})", rule.text))
    if call.when != "teardown":
        witness = getattr(item, "funcargs", {}).get("worlds")
        report.sections.extend(witness.evidence() if witness is not None else ())
    kind = Outcome.FAILED if _was_seen(call.excinfo.value) else Outcome.SUITE_ERROR
    report.user_properties = [*report.user_properties, ("kind", kind.value)]
    return report


def _was_seen(error: BaseException) -> bool:
    """Say whether an error is the implementation's: it broke a sentence, or stopped a write."""
    if isinstance(error, ApiError):
        return error.message.startswith(_OF_A_WEBHOOK)
    return isinstance(error, (AssertionError, pytest.fail.Exception))


def _unsupported(report: pytest.TestReport, reason: str) -> pytest.TestReport:
    """Turn a report into that of a test that was left out, and says why."""
    file, line, _ = report.location
    report.outcome = "skipped"
    report.longrepr = (file, (line or 0) + 1, f"unsupported: {reason}")
    report.user_properties = [*report.user_properties, ("unsupported", reason)]
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    return report


class _Results:
    """Gathers what became of every test and reports on it; lives in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._not_run: dict[str, str] = {}
        self._written: Path | None = None
        self._run: Run | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if "not-run" in properties:
            self._not_run[report.nodeid] = str(properties["not-run"])
        if "rule" in properties:
            self._reports.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over from a worker of pytest-xdist what it knows of the implementation."""
        output = getattr(node, "workeroutput", {})
        if WORKER_RIGHTS in output:
            self._config.stash[RIGHTS].add(Rights.from_wire(output[WORKER_RIGHTS]))
        told = output.get(WORKER_ABOUT)
        if told is not None:
            self._config.stash[ABOUT] = About(**{**told, "features": tuple(told["features"])})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._reports:
            return
        config = self._config
        registry = config.stash[REGISTRY]
        tests = [_result(reports) for reports in self._reports.values()]
        self._run = judge(registry, tests, expected_failures(config))
        if self._run.complete and config.getoption("--idle-rights"):
            found = config.stash[RIGHTS].breaches(_reasons(config, "--idle-rights"))
            self._run = replace(self._run, breaches=(*self._run.breaches, *found))
        chosen: Path | None = config.getoption("--spec-report")
        about = config.stash.get(ABOUT, None)
        if about is not None and (self._run.complete or chosen):
            folder = chosen or config.rootpath / "build" / "spec-report" / about.kind
            write(folder, about, registry, self._run)
            self._written = folder
        if not self._run.good and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._not_run:
            terminalreporter.section("not run", sep="=", yellow=True)
            for nodeid, reason in sorted(self._not_run.items()):
                terminalreporter.line(f"NOT RUN {nodeid}: {reason}", yellow=True)
        if self._run is None:
            return
        terminalreporter.section("specification", sep="=")
        terminalreporter.line(
            ", ".join(f"{self._run.count(verdict)} {verdict}" for verdict in Verdict)
        )
        for breach in self._run.breaches:
            terminalreporter.line(f"BREACH {breach}", red=True)
        if self._run.complete and not self._config.getoption("--idle-rights"):
            for right in self._config.stash[RIGHTS].idle():
                terminalreporter.line(f"granted and never used: {right}", yellow=True)
        if self._written is not None:
            terminalreporter.line(f"report: {self._written / 'index.html'}")
        elif not self._run.complete:
            terminalreporter.line(
                "report: not written, a part of the suite ran (--spec-report DIR writes one)"
            )


def _result(reports: list[pytest.TestReport]) -> TestResult:
    """Sum up a test's phases: the worst counts, and one that never got to its body did not pass."""
    phases = [_phase(report) for report in reports]
    found = [phase for phase in phases if phase[0] is not Outcome.PASSED]
    if not found and not any(report.when == "call" for report in reports):
        found = [(Outcome.NOT_RUN, "the run was interrupted")]
    outcome, reason = min(found, key=lambda phase: list(Outcome).index(phase[0]), default=phases[0])
    return TestResult(
        nodeid=reports[0].nodeid,
        rules=tuple(str(value) for key, value in reports[0].user_properties if key == "rule"),
        outcome=outcome,
        seconds=sum(report.duration for report in reports),
        reason=reason,
        evidence="\n\n".join(_evidence(report) for report in reports if report.failed),
    )


def _phase(report: pytest.TestReport) -> tuple[Outcome, str]:
    properties = dict(report.user_properties)
    if report.failed:
        return Outcome(str(properties.get("kind", Outcome.SUITE_ERROR))), ""
    if report.skipped:
        if hasattr(report, "wasxfail"):
            return Outcome.EXPECTED_FAILURE, str(report.wasxfail)
        if "unsupported" in properties:
            return Outcome.UNSUPPORTED, str(properties["unsupported"])
        return Outcome.NOT_RUN, str(properties.get("not-run", report.longreprtext))
    return Outcome.PASSED, ""


def _evidence(report: pytest.TestReport) -> str:
    return "\n".join(
        [report.longreprtext, *(f"-- {title}\n{text}" for title, text in report.sections)]
    )


def expected_failures(config: pytest.Config) -> Mapping[str, str]:
    """Return the rules that are expected to fail, each with its reason. Raises UsageError."""
    return _reasons(config, "--expected-failures")


def _reasons(config: pytest.Config, option: str) -> Mapping[str, str]:
    """Read the strict list that an option names; without the option it is empty.

    Raises:
        pytest.UsageError: the file is not a flat TOML table of reasons.
    """
    file: Path | None = config.getoption(option)
    if file is None:
        return {}
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{option} {file}: {error}") from error
    for entry, reason in table.items():
        if not isinstance(reason, str) or not reason.strip():
            raise pytest.UsageError(f"{option} {file}: {entry} gives no reason")
    return table
