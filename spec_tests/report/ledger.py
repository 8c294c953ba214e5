"""Lists what the emulator was compared with: each recording, and the tests that replay it.

`pages` puts the list into docs/emulator.md, between two marks; a house test compares it there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- begin: made by `make docs` -->"
END: Final = "<!-- end -->"


def fill(root: Path, page: str) -> str:
    """Return a page with the ledger between its marks.

    Raises:
        ValueError: the page lacks a mark.
    """
    if BEGIN not in page or END not in page:
        raise ValueError(f"docs/emulator.md needs the lines {BEGIN} and {END}")
    head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
    return f"{head}{BEGIN}\n{_table(root)}{END}{tail}"


def _table(root: Path) -> str:
    tests = root / "tests" / "emulator"
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(tests.rglob("*.py"))}
    lines = ["| recording | what it shows | exchanges | replayed by |", "| --- | --- | --: | --- |"]
    for path in sorted((tests / "golden").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        users = [
            f"`{source.relative_to(tests).as_posix()}`"
            for source, text in sources.items()
            if path.stem in text or f'"{path.stem[:2]}' in text
        ]
        title = str(document.get("title", "")).replace("|", "/")
        count = len(document.get("exchanges", []))
        lines.append(f"| {path.stem} | {title} | {count} | {', '.join(users) or 'nothing yet'} |")
    return "\n".join(lines) + "\n"
