"""The repository's own source files, read once for the house tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("gpustack_delivery", "emulator", "spec_tests", "conformance", "tests")


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file under a root: its dotted module name, its text and its syntax tree."""

    root: Path
    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """Return the package that holds the module; a package holds itself."""
        is_package = self.path.name == "__init__.py"
        return self.module if is_package else self.module.rpartition(".")[0]


@cache
def parse(path: Path, root: Path = ROOT) -> Source:
    """Read one file under a root."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    text = path.read_text(encoding="utf-8")
    return Source(root, path, ".".join(parts), text, ast.parse(text))


def sources(*packages: str, root: Path = ROOT) -> list[Source]:
    """Return every hand-written module of some packages; protobuf's are left out."""
    return [
        parse(path, root)
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    ]


def imports(source: Source) -> Iterator[tuple[str, int]]:
    """Yield every module a file imports, absolute, with the line.

    `from a import b` is an import of `a.b` where that is a module of ours, and of `a` otherwise.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = source.package.split(".")
                anchor = parts[: len(parts) - node.level + 1]
                base = ".".join([*anchor, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (whole if _is_module(source.root, whole) else base), node.lineno


def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
