"""`python -m tests.mutants`: run the specification against every mutant, and want each caught.

First the rules are asked about the implementation as it is: one that fails there proves nothing
about a mutant. Then every mutant gets a run of its own for each of its rules, of the tests of that
rule only, until one of them fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gpustack_delivery.terminal import Parser
from tests.mutants import MUTANTS

_ROOT: Final = Path(__file__).resolve().parents[2]
_RUN_SECONDS: Final = 900


def main(argv: Sequence[str] | None = None) -> int:
    """Run them; return 0 when every mutant was caught, 1 when one was not."""
    parser = Parser(prog="python -m tests.mutants", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="MUTANT", help="default: all of them")
    names = parser.parse_args(argv).names or list(MUTANTS)
    if unknown := sorted(set(names) - MUTANTS.keys()):
        parser.error(f"no mutant {unknown[0]!r}: there are {', '.join(MUTANTS)}")
    chosen = [(name, rule) for name in names for rule in MUTANTS[name].rules]
    verdicts, words = _run({rule for _, rule in chosen})
    bad = 0
    for name, rule in chosen:
        before = verdicts.get(rule, "no verdict")
        if before != "passed":
            bad += 1
            _say(f"UNPROVEN  {name}: {rule} is {before} without it\n{words}")
        else:
            bad += not _caught(name, rule)
    _say(f"{len(chosen) - bad} of {len(chosen)} were caught by the rule they break")
    return 1 if bad else 0


def _caught(name: str, rule: str) -> bool:
    verdicts, words = _run({rule}, "--mutant", name, "--maxfail=1")
    after = verdicts.get(rule, "no verdict")
    if after == "failed":
        _say(f"caught    {name} by {rule}")
        return True
    _say(f"SURVIVED  {name}: {rule} is {after}\n{words}")
    return False


def _run(rules: Iterable[str], *more: str) -> tuple[dict[str, str], str]:
    """Run the tests of some rules in a process of their own; return verdicts and last words."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return _report(Path(folder), rules, more)


def _report(folder: Path, rules: Iterable[str], more: Sequence[str]) -> tuple[dict[str, str], str]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "pytest", "spec_tests", "-p", "tests.mutants.breaking", "-q"]
    command += ["--rules", ",".join(sorted(rules)), "--spec-report", str(folder), *more]
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=_RUN_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {}, f"not done after {_RUN_SECONDS} s"
    words = "\n".join(done.stdout.splitlines()[-15:]) + done.stderr
    if not report.exists():
        return {}, words
    found = json.loads(report.read_text(encoding="utf-8"))
    return {rule["id"]: rule["verdict"] for rule in found["rules"]}, words


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
