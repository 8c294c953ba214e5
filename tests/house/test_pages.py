"""The pages for people on call are whole: every value, number and reason of the code is explained.

What the code can say is read from the code, so that a new reason, metric or value fails here until
somebody has written down what to do about it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from gpustack_delivery.errors import Reason, Verdict
from gpustack_delivery.node.metrics import Metrics as PluginMetrics
from gpustack_delivery.worker.metrics import Metrics as WorkerMetrics
from tests.house.tree import ROOT, Source, sources

_DOCS: Final = ROOT / "docs"
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_METRIC: Final = re.compile(r"gpustack_(?:model_manager|worker)_\w+")
_REASON: Final = re.compile(r"[A-Z][A-Za-z]+")
# Calls by the name of what is called, and which argument is the reason.
_SAYING: Final = {"Condition": 2, "_say": 2, "_say_degraded": 2, "tell": 3}
# What a mount is answered, in words of its own; kubelet makes events of them.
_ANSWERS: Final = frozenset({"Refused", "Waiting"})
# Where a mount meets the node: what fails there is answered as it is.
_FAILING: Final = frozenset(
    f"gpustack_delivery.{name}"
    for name in (
        "adapters.host",
        "adapters.threads",
        "node.cache",
        "node.health",
        "node.mounting",
        "node.records",
    )
)


def _page(name: str) -> str:
    return (_DOCS / name).read_text(encoding="utf-8")


def _rows(page: str) -> Iterator[list[str]]:
    """Yield the cells of every line of a page's tables."""
    for line in page.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


# values


def _leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield a line `path default` for each value that a table of the schema does not hold."""
    for key, value in values.items():
        here, below = f"{path}{key}", schema.get("properties", {}).get(key, {})
        if isinstance(value, dict) and value and "properties" in below:
            yield from _leaves(value, below, f"{here}.")
        else:
            yield f"{here} {json.dumps(value, ensure_ascii=False)}"


def _keys(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, below in schema.get("properties", {}).items():
        if "properties" in below:
            yield from _keys(below, f"{path}{key}.")
        else:
            yield f"{path}{key}"


@pytest.fixture(scope="module")
def values() -> list[str]:
    """Every value of the chart with its default."""
    schema = json.loads((ROOT / "chart" / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((ROOT / "chart" / "values.yaml").read_text(encoding="utf-8"))
    return sorted(_leaves(defaults, schema))


def test_every_value_has_its_row(values: list[str]) -> None:
    """installing.md has each value of the chart with its default, and no other."""
    found = []
    for path, default, meaning in _rows(_page("installing.md")):
        if not path.startswith("`"):
            continue
        assert meaning, path
        written = yaml.safe_load(default.strip("`"))
        found.append(f"{path.strip('`')} {json.dumps(written, ensure_ascii=False)}")
    assert sorted(found) == values


def test_the_schema_knows_every_value(values: list[str]) -> None:
    """values.schema.json and values.yaml name the same values; `global` is Helm's own."""
    schema = json.loads((ROOT / "chart" / "values.schema.json").read_text(encoding="utf-8"))
    known = set(_keys(schema)) - {"global"}
    named = {line.split(" ")[0] for line in values}
    # A label selector's two halves are the user's to fill in.
    halves = {f"volumeWebhook.namespaceSelector.match{half}" for half in ("Labels", "Expressions")}
    assert known - halves == named - {"volumeWebhook.namespaceSelector"}


# metrics


def _exported() -> set[str]:
    text = PluginMetrics().text() + WorkerMetrics().render()
    families = re.findall(r"^# TYPE (\S+) (\w+)$", text.decode(), re.MULTILINE)
    return {name for name, _ in families if not name.endswith("_created")}


def test_every_metric_has_its_row() -> None:
    """metrics.md explains each metric that a process exports, and no other."""
    rows = {row[0].strip("`").partition("{")[0] for row in _rows(_page("metrics.md"))}
    assert {name for name in rows if name.startswith("gpustack_")} == _exported()


def test_pages_speak_of_metrics_that_exist() -> None:
    """No page has an alert on a metric that nobody exports."""
    known = _exported()
    parts = {f"{name}{part}" for name in known for part in ("_bucket", "_sum", "_count")}
    for page in _DOCS.glob("*.md"):
        spoken = set(_METRIC.findall(page.read_text(encoding="utf-8")))
        assert spoken <= known | parts, page.name


# reasons and answers


def _called(call: ast.Call) -> str:
    name = call.func
    return name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")


def _calls(source: Source) -> Iterator[tuple[str, list[ast.expr]]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield _called(node), node.args


def _reasons() -> set[str]:
    """Return the reasons of conditions, events and failed attempts."""
    found = {str(member) for member in (*Reason, *Verdict)}
    for source in sources("gpustack_delivery"):
        for called, arguments in _calls(source):
            place = _SAYING.get(called, len(arguments))
            reason = arguments[place] if place < len(arguments) else None
            if isinstance(reason, ast.Constant) and isinstance(reason.value, str):
                assert _REASON.fullmatch(reason.value), (source.module, reason.value)
                found.add(reason.value)
    return found


def _answers() -> set[str]:
    """Return how each refusal of a mount begins."""
    found = set()
    for source in sources("gpustack_delivery"):
        if not source.module.startswith(("gpustack_delivery.node", "gpustack_delivery.decisions")):
            continue
        for called, arguments in _calls(source):
            if called in _ANSWERS and arguments:
                found |= _beginning(arguments[0])
    return found


def _beginning(text: ast.expr) -> set[str]:
    """Return what a written text begins with, up to its colon; nothing for one from elsewhere."""
    first = text.values[0] if isinstance(text, ast.JoinedStr) else text
    return (
        {str(first.value).partition(":")[0].strip()} if isinstance(first, ast.Constant) else set()
    )


def _faults() -> set[str]:
    """Return how what the node itself refuses a mount begins."""
    found = set()
    for source in sources("gpustack_delivery"):
        if source.module not in _FAILING:
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and _called(node) == "HostFault":
                found |= _beginning(node.args[0])
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "message":
                found |= _beginning(node.value)
    return found


def test_every_reason_has_its_row() -> None:
    """failures.md says what each reason of a condition, an event or an attempt means."""
    reasons, page = _reasons(), _page("failures.md")
    assert {"Resolving", "NothingToRemove", "InvalidTemplate", "AccessDenied"} <= reasons
    named = {
        word for row in _rows(page) for cell in row[:2] for word in re.findall(r"`(\w+)`", cell)
    }
    assert reasons - named == set()


def test_every_refusal_of_a_mount_has_its_row() -> None:
    """failures.md quotes how each refusal of a mount begins, and each failure of the node."""
    assert len(_answers()) > 8
    assert {"the node could not", "a record cannot be written"} <= _faults()
    answers = _answers() | _faults()
    quoted = {
        words.rstrip("… ")
        for row in _rows(_page("failures.md"))
        for words in re.findall(r"`([^`]+)`", row[0])
    }
    missing = {said for said in answers if not any(said.startswith(each) for each in quoted)}
    assert missing == set()


# links


def _anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.replace(" ", "-") for title in plain} | set(re.findall(r'<a id="([^"]+)"', page))


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link of a page names a file that is there, and a heading that it has."""
    broken = []
    for page in (*ROOT.glob("*.md"), *_DOCS.rglob("*.md")):
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if "://" in link:
                continue
            whole = target.exists() and (
                not anchor or anchor in _anchors(target.read_text(encoding="utf-8"))
            )
            if not whole:
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []
