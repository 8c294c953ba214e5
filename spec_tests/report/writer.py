"""Writes a run's report: report.json, junit.xml for build servers, index.html for people.

The form of report.json is a contract, stated in docs/conformance.md. index.html stands alone: no
script, no font and no image from elsewhere, so that it can be attached, mailed and published as it
is.

Called by `plugin` when a run ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from jinja2 import Environment, StrictUndefined

from spec_tests.registry import Registry
from spec_tests.report.verdicts import Outcome, Run, TestResult, Verdict

SUITE_VERSION: Final = version("gpustack-delivery")
_RED: Final = {Outcome.FAILED, Outcome.SUITE_ERROR}
# XML 1.0 has no place for most control characters, and a failure's text may hold any.
_UNPRINTABLE: Final = {code: "�" for code in range(32) if chr(code) not in "\t\n\r"}


@dataclass(frozen=True, slots=True)
class About:
    """Who was tested, and how: the head of the report.

    `command` is the exact command line, `date` the start in seconds since the epoch, UTC.
    """

    kind: str
    name: str
    version: str
    features: tuple[str, ...]
    command: str
    date: float


def write(folder: Path, about: About, registry: Registry, run: Run) -> None:
    """Write the three files into a folder that is made when it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(as_json(about, registry, run), ensure_ascii=False, indent=2) + "\n"
    (folder / "report.json").write_text(document, encoding="utf-8")
    (folder / "junit.xml").write_bytes(as_junit(about, run))
    (folder / "index.html").write_text(as_html(about, registry, run), encoding="utf-8")


def as_json(about: About, registry: Registry, run: Run) -> Mapping[str, Any]:
    """Return the document of report.json."""
    return {
        "suite": {"version": SUITE_VERSION, "specification": registry.specification},
        "target": {
            "kind": about.kind,
            "name": about.name,
            "version": about.version,
            "features": sorted(about.features),
        },
        "summary": {
            verdict.value: run.count(verdict)
            for verdict in (
                Verdict.PASSED,
                Verdict.FAILED,
                Verdict.UNSUPPORTED,
                Verdict.EXPECTED_FAILURE,
                Verdict.UNTESTED,
                Verdict.SUITE_ERROR,
            )
        },
        "rules": [
            {
                "id": result.rule.id,
                "doc": result.rule.doc,
                "text": result.rule.text,
                "verdict": result.verdict.value,
                "tests": [_test_json(test) for test in result.tests],
            }
            for result in run.rules
        ],
    }


def _test_json(test: TestResult) -> Mapping[str, Any]:
    shown: dict[str, Any] = {
        "nodeid": test.nodeid,
        "outcome": test.outcome.value,
        "seconds": round(test.seconds, 3),
    }
    if test.reason:
        shown["reason"] = test.reason
    if test.outcome in _RED:
        shown["evidence"] = test.evidence
    return shown


def as_junit(about: About, run: Run) -> bytes:
    """Return the run as JUnit XML, one case a test, its rules among the properties."""
    tests = {test.nodeid: test for result in run.rules for test in result.tests}
    suite = ElementTree.Element(
        "testsuite",
        name=f"specification {about.kind}",
        tests=str(len(tests)),
        failures=str(sum(test.outcome is Outcome.FAILED for test in tests.values())),
        errors=str(sum(test.outcome is Outcome.SUITE_ERROR for test in tests.values())),
        skipped=str(sum(test.outcome not in _RED | {Outcome.PASSED} for test in tests.values())),
        time=f"{sum(test.seconds for test in tests.values()):.3f}",
        timestamp=datetime.fromtimestamp(about.date, UTC).isoformat(timespec="seconds"),
    )
    for test in tests.values():
        file, _, name = test.nodeid.partition("::")
        case = ElementTree.SubElement(
            suite, "testcase", classname=file, name=name, time=f"{test.seconds:.3f}"
        )
        properties = ElementTree.SubElement(case, "properties")
        for identifier in test.rules:
            ElementTree.SubElement(properties, "property", name="rule", value=identifier)
        if test.outcome in _RED:
            tag = "failure" if test.outcome is Outcome.FAILED else "error"
            child = ElementTree.SubElement(case, tag, message=", ".join(test.rules))
            child.text = test.evidence.translate(_UNPRINTABLE)
        elif test.outcome is not Outcome.PASSED:
            message = f"{test.outcome}: {test.reason}".translate(_UNPRINTABLE)
            ElementTree.SubElement(case, "skipped", message=message)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def as_html(about: About, registry: Registry, run: Run) -> str:
    """Return the report page; everything that came from outside is escaped."""
    pages: dict[str, dict[str, list[Any]]] = {}
    for result in run.rules:
        pages.setdefault(result.rule.page, {}).setdefault(result.rule.section, []).append(result)
    template = _environment().from_string(
        (files("spec_tests.report") / "index.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        about=about,
        date=datetime.fromtimestamp(about.date, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        suite_version=SUITE_VERSION,
        specification=registry.specification,
        counts={verdict: run.count(verdict) for verdict in Verdict},
        pages=pages,
        run=run,
    )


def _environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
