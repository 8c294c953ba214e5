"""Writes docs/rules, a page for each page of the contract, and the ledger of the emulator.

    python -m spec_tests.report.pages docs

The verdicts come from the last complete run of the suite here,
`build/spec-report/in-process/report.json`. They are kept beside the pages in `verdicts.json`, so
that the pages can be made again, and compared, without a run. Called by `make docs` and compared
with the committed pages by a house test.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpustack_delivery.terminal import Parser
from spec_tests.homes import homes, tests
from spec_tests.registry import Registry, Rule, load
from spec_tests.report import ledger

TITLES: Final[Mapping[str, str]] = {
    "node-store": "Node Model Store",
    "artifact": "Model Artifact",
    "prefetch": "Model Prefetch",
    "operations": "Model Store Operations",
    "peer-sync": "Node-to-Node Sync",
    "views": "Views",
    "scheduling": "Scheduling",
}
"""The pages, in the order a reader wants them."""

_ROOT: Final = Path(__file__).resolve().parents[2]
_REPORT: Final = Path("build/spec-report/in-process/report.json")
_VERDICTS: Final = "verdicts.json"


def read_verdicts(report: Path) -> dict[str, str]:
    """Return rule identifier and verdict of a written report."""
    document = json.loads(report.read_text(encoding="utf-8"))
    return {rule["id"]: rule["verdict"] for rule in document["rules"]}


def render(root: Path, registry: Registry, verdicts: Mapping[str, str]) -> dict[str, str]:
    """Return file name and content of every page under docs/rules."""
    kept, tested = homes(root), tests(root)
    pages = {"index.md": _index(registry, verdicts)}
    for page, title in TITLES.items():
        rules = [rule for rule in registry if rule.page == page]
        parts = [f"# {title}\n", _note()]
        section = ""
        for rule in rules:
            if rule.section != section:
                section = rule.section
                parts.append(f"## {section.replace('-', ' ').capitalize()}\n")
            parts.append(_rule(rule, verdicts, kept.get(rule.id, []), tested.get(rule.id, [])))
        pages[f"{page}.md"] = "\n".join(parts)
    return pages


def _note() -> str:
    return (
        "<!-- Made by `make docs` from spec_tests/rules; an edit here is lost. -->\n\n"
        "What *seen at* and the verdicts mean is on the [conformance page](../conformance.md).\n"
    )


def _rule(
    rule: Rule, verdicts: Mapping[str, str], kept: Sequence[str], tested: Sequence[str]
) -> str:
    facts = [f"seen at {', '.join(rule.seen)}" + (", over time" if rule.clock else "")]
    if kept:
        facts.append("kept by " + ", ".join(_link(path) for path in kept))
    if tested:
        facts.append("tested by " + ", ".join(_link(path) for path in tested))
    verdict = verdicts.get(rule.id, "untested")
    head = f'<a id="{rule.id}"></a>**{rule.id}** · {verdict}'
    return f"{head}  \n{rule.text}  \n<sub>{' · '.join(facts)}</sub>\n"


def _link(path: str) -> str:
    return f"[`{path}`](../../{path})"


def _index(registry: Registry, verdicts: Mapping[str, str]) -> str:
    counted = [verdicts.get(rule.id, "untested") for rule in registry]
    lines = [
        "# Rules\n",
        _note(),
        f"Specification: {registry.specification}.\n",
        "| page | rules | passed | other verdicts | untested |",
        "| --- | --: | --: | --: | --: |",
    ]
    for page, title in TITLES.items():
        of_page = [verdicts.get(rule.id, "untested") for rule in registry if rule.page == page]
        lines.append(f"| [{title}]({page}.md) {_counts(of_page)}")
    lines.append(f"| all {_counts(counted)}")
    return "\n".join(lines) + "\n"


def _counts(verdicts: Sequence[str]) -> str:
    passed, untested = verdicts.count("passed"), verdicts.count("untested")
    return f"| {len(verdicts)} | {passed} | {len(verdicts) - passed - untested} | {untested} |"


def main(arguments: Sequence[str]) -> int:
    """Write the pages under a documentation folder; return the exit status."""
    parser = Parser(prog="python -m spec_tests.report.pages", description=main.__doc__)
    parser.add_argument("docs", metavar="DOCS", help="the folder that holds emulator.md")
    docs = parser.parse_args(arguments).docs
    if not os.path.isfile(f"{docs}/emulator.md"):  # noqa: PTH113 - never raises
        parser.error(f"argument DOCS: {docs!r} is no documentation folder: it has no emulator.md")
    folder = Path(docs) / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / _VERDICTS
    report = _ROOT / _REPORT
    verdicts = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    if report.exists():
        verdicts = read_verdicts(report)
    kept.write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
    for name, content in render(_ROOT, load(), verdicts).items():
        (folder / name).write_text(content, encoding="utf-8")
    emulator = folder.parent / "emulator.md"
    page = ledger.fill(_ROOT, emulator.read_text(encoding="utf-8"))
    emulator.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
