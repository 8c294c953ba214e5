"""From the outcomes of tests to a verdict for every rule; no I/O.

A rule's verdict is the worst of its tests, in the order of `Verdict`. A suite that broke says so
and never passes for a failing implementation, nor for a passing one.

Called by `plugin` at the end of a run, and by `writer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from spec_tests.registry import Registry, Rule


class Verdict(StrEnum):
    """What a run says about one rule, the worst first."""

    SUITE_ERROR = "suite-error"
    FAILED = "failed"
    EXPECTED_FAILURE = "expected-failure"
    PASSED = "passed"
    UNSUPPORTED = "unsupported"
    UNTESTED = "untested"


class Outcome(StrEnum):
    """What became of one test."""

    SUITE_ERROR = "suite-error"
    FAILED = "failed"
    EXPECTED_FAILURE = "expected-failure"
    PASSED = "passed"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test that ran, or could not: which rules it names, what became of it, and why.

    `reason` says what was missing for `not-run` and `unsupported`; `evidence` is the failure's text
    and what the world looked like then.
    """

    __test__ = False

    nodeid: str
    rules: tuple[str, ...]
    outcome: Outcome
    seconds: float
    reason: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule, its verdict and the tests behind it."""

    rule: Rule
    verdict: Verdict
    tests: tuple[TestResult, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """All that a report states about one run."""

    rules: tuple[RuleResult, ...]
    breaches: tuple[str, ...]
    complete: bool

    def count(self, verdict: Verdict) -> int:
        """Return how many rules have a verdict."""
        return sum(result.verdict is verdict for result in self.rules)

    @property
    def good(self) -> bool:
        """Say whether nothing failed, nothing broke and no strict list was breached."""
        bad = {Verdict.FAILED, Verdict.SUITE_ERROR}
        return not self.breaches and not any(result.verdict in bad for result in self.rules)


def judge(
    registry: Registry, tests: Iterable[TestResult], expected_failures: Mapping[str, str]
) -> Run:
    """Give every rule its verdict.

    Args:
        registry: the catalogue, with the pending list.
        tests: what became of every test of the run.
        expected_failures: rule identifiers and the reason each is known to fail; strict.
    """
    by_rule: dict[str, list[TestResult]] = {identifier: [] for identifier in registry.rules}
    for test in tests:
        for identifier in test.rules:
            by_rule[identifier].append(test)
    results = tuple(
        RuleResult(
            rule, _verdict(rule.id, by_rule[rule.id], expected_failures), tuple(by_rule[rule.id])
        )
        for rule in registry
    )
    cited = {identifier for identifier, found in by_rule.items() if found}
    complete = cited >= registry.rules.keys() - registry.pending
    breaches = (
        *_pending_breaches(registry, by_rule),
        *_expected_breaches(by_rule, expected_failures),
    )
    return Run(results, breaches, complete)


def _verdict(
    identifier: str, tests: list[TestResult], expected_failures: Mapping[str, str]
) -> Verdict:
    outcomes = {test.outcome for test in tests}
    if Outcome.EXPECTED_FAILURE in outcomes and identifier not in expected_failures:
        # Another rule of the same test was expected to fail; this one was not.
        outcomes.add(Outcome.FAILED)
    found = {outcome.value for outcome in outcomes}
    return next((verdict for verdict in Verdict if verdict.value in found), Verdict.UNTESTED)


def _pending_breaches(registry: Registry, by_rule: Mapping[str, list[TestResult]]) -> Iterable[str]:
    for identifier in sorted(registry.pending):
        if any(test.outcome is Outcome.PASSED for test in by_rule[identifier]):
            yield f"{identifier} has a passing test: remove it from spec_tests/pending.txt"


def _expected_breaches(
    by_rule: Mapping[str, list[TestResult]], expected_failures: Mapping[str, str]
) -> Iterable[str]:
    for identifier in sorted(expected_failures):
        tests = by_rule.get(identifier)
        if tests is None:
            yield f"{identifier} is expected to fail and is no rule"
        elif tests and all(test.outcome is Outcome.PASSED for test in tests):
            yield f"{identifier} is expected to fail and passes: remove it from the list"
