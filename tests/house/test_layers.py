"""Imports point down: between the packages, between the rooms, and in no circle."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.house.tree import Source, imports, parse, sources

LAYERS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"errors", "redaction"}),
    frozenset({"vocabulary"}),
    frozenset({"decisions"}),
    frozenset({"ports"}),
    frozenset({"adapters", "mirror"}),
    frozenset({"node", "worker"}),
    frozenset({"embedded"}),
    frozenset({"__main__", "demo"}),
)
"""The rooms of gpustack_delivery, lowest first; rooms of one layer do not know each other."""

LEAVES: Final = frozenset({"csi_wire", "httpd", "terminal"})
"""Rooms that import nothing of ours and that everybody may import."""

BOTH_SIDES: Final = frozenset({"embedded", "demo"})
"""The rooms that may import the emulator."""

CLIENTS: Final[Mapping[str, frozenset[str]]] = {
    "kubernetes": frozenset({"adapters.kube_identity"}),
    "urllib3": frozenset({"adapters.boarding", "adapters.http"}),
    # The Kubernetes client lets its transport's errors through as they are.
    "urllib3.exceptions": frozenset({"adapters.http", "adapters.kube_streams"}),
    # How often it asks again by itself, and that it never sleeps for it.
    "urllib3.util": frozenset({"adapters.kube"}),
    "urllib3.connection": frozenset({"adapters.boarding"}),
    "urllib3.util.ssl_": frozenset({"adapters.boarding"}),
    "requests": frozenset({"adapters.http"}),
    "grpc": frozenset({"node.csi"}),
    "prometheus_client": frozenset({"node.metrics", "worker.metrics"}),
}
"""Third-party clients of the implementation, each with the modules that may import it."""

OURS: Final = "gpustack_delivery"


def room(module: str) -> str:
    """Return the room of a module of the implementation: `gpustack_delivery.node.csi` -> `node`."""
    return module.removeprefix(f"{OURS}.").partition(".")[0]


def layer(name: str) -> int:
    """Return the height of a room."""
    for height, names in enumerate(LAYERS):
        if name in names:
            return height
    raise AssertionError(f"{OURS}/{name} stands in no layer of tests/house/test_layers.py")


def upward(source: Source) -> Iterator[str]:
    """Yield the imports of one module that do not point down."""
    own, *_ = source.module.split(".")
    for name, line in imports(source):
        target = name.partition(".")[0]
        where = f"{source.module}:{line} imports {name}"
        if own in {"emulator", "spec_tests"} and target == OURS and name != OURS:
            if room(name) not in LEAVES:
                yield where
        elif (own == "emulator" and target in {"spec_tests", "tests"}) or (
            own == OURS and target in {"spec_tests", "tests"}
        ):
            yield where
        elif own == OURS and source.module != OURS:
            yield from _within(source, name, where)


def _within(source: Source, name: str, where: str) -> Iterator[str]:
    here = room(source.module)
    if name.partition(".")[0] == "emulator" and here not in BOTH_SIDES:
        yield where
    if not name.startswith(f"{OURS}."):
        return
    there = room(name)
    if there in LEAVES | {here}:
        return
    if here in LEAVES or layer(there) >= layer(here):
        yield where


def circles(modules: Mapping[str, Source]) -> list[list[str]]:
    """Return the import circles among some modules, each as a path that ends where it began."""
    graph = {name: _neighbours(source, modules) for name, source in modules.items()}
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in done:
            for neighbour in graph[name]:
                visit(neighbour, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return found


def _neighbours(source: Source, modules: Mapping[str, Source]) -> list[str]:
    return sorted(({name for name, _ in imports(source)} & modules.keys()) - {source.module})


def local_imports(source: Source) -> Iterator[str]:
    """Yield the imports that stand inside a function."""
    for function in ast.walk(source.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield f"{source.module}:{node.lineno}"


def misplaced_clients(found: Iterable[Source]) -> Iterator[str]:
    """Yield imports of a third-party client outside its one module."""
    for source in found:
        for name, line in imports(source):
            allowed = CLIENTS.get(name) or CLIENTS.get(name.partition(".")[0])
            if allowed is not None and source.module.removeprefix(f"{OURS}.") not in allowed:
                yield f"{source.module}:{line} imports {name}"


def test_imports_point_down() -> None:
    """No module imports a room above it, a sibling room, or the other side."""
    assert [
        line for source in sources(OURS, "emulator", "spec_tests") for line in upward(source)
    ] == []


def test_there_is_no_circle() -> None:
    """No module imports itself by a detour."""
    found = {source.module: source for source in sources(OURS, "emulator", "spec_tests")}
    assert circles(found) == []


def test_imports_stand_at_the_top() -> None:
    """No function hides an import, which is how a circle usually shows itself."""
    found = sources(OURS, "emulator", "spec_tests", "tests")
    assert [line for source in found for line in local_imports(source)] == []


def test_each_client_has_one_module() -> None:
    """Every third-party client of the implementation is imported by its own module alone."""
    assert list(misplaced_clients(sources(OURS))) == []


PLANTED: Final = [
    ("gpustack_delivery/decisions/a.py", "from gpustack_delivery.adapters import kube"),
    ("gpustack_delivery/node/a.py", "import gpustack_delivery.worker.operator"),
    ("gpustack_delivery/mirror.py", "from gpustack_delivery.adapters.http import Http"),
    ("gpustack_delivery/httpd/a.py", "from gpustack_delivery.errors import Fault"),
    ("gpustack_delivery/node/a.py", "from emulator import Cluster"),
    ("gpustack_delivery/demo.py", "from spec_tests import registry"),
    ("emulator/a.py", "from gpustack_delivery import ports"),
    ("emulator/a.py", "import spec_tests.registry"),
    ("spec_tests/a.py", "from gpustack_delivery.vocabulary.manifest import Manifest"),
]


@pytest.mark.parametrize(("path", "text"), PLANTED)
def test_a_planted_upward_import_is_seen(tmp_path: Path, path: str, text: str) -> None:
    """The check itself reports an import that points up, so that its silence means something."""
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / "gpustack_delivery").mkdir(exist_ok=True)
    (tmp_path / "gpustack_delivery" / "ports.py").touch()
    assert list(upward(parse(file, tmp_path)))


def test_a_planted_circle_is_seen(tmp_path: Path) -> None:
    """The check itself reports a circle of three modules, and a hidden import."""
    folder = tmp_path / "emulator"
    folder.mkdir()
    (folder / "a.py").write_text("from emulator import b")
    (folder / "b.py").write_text("import emulator.c")
    (folder / "c.py").write_text("def late():\n    from emulator.a import x\n")
    found = {source.module: source for source in sources("emulator", root=tmp_path)}
    assert circles(found) == [["emulator.a", "emulator.b", "emulator.c", "emulator.a"]]
    assert list(local_imports(found["emulator.c"])) == ["emulator.c:2"]


def test_a_planted_client_is_seen(tmp_path: Path) -> None:
    """The check itself reports a client that strayed."""
    file = tmp_path / "gpustack_delivery" / "worker" / "a.py"
    file.parent.mkdir(parents=True)
    file.write_text("import urllib3")
    assert list(misplaced_clients([parse(file, tmp_path)]))


def test_every_command_complains_in_one_line() -> None:
    """Whoever reads a command line takes the parser that says one line, not the library's own."""
    everyone = sources("gpustack_delivery", "emulator", "spec_tests", "tests")
    plain = {source.module for source in everyone if "argparse.ArgumentParser(" in source.text}
    own = {f"{OURS}.terminal", "tests.house.test_layers"}
    assert {module for module in plain if not module.startswith("tests.unit.")} <= own
