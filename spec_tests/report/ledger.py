"""Lists what the emulator was compared with: each recording, its replay, and what differs.

`pages` puts the list into docs/emulator.md, between two marks; a house test compares it there. The
differences are those of tests/emulator/deviations.yaml, which the replaying tests hold strictly:
one that no longer differs fails them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

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
    tests = root / "tests" / "emulator"
    lines = [*_recordings(tests), "", *_deviations(tests)]
    return f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}"


def _recordings(tests: Path) -> Iterator[str]:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(tests.rglob("test_*.py"))}
    yield "| recording | what it shows | exchanges | replayed by |"
    yield "| --- | --- | --: | --- |"
    for path in sorted((tests / "golden").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if "exchanges" not in document:
            continue  # an object that recordings need, and no recording
        users = [
            f"`{source.relative_to(tests).as_posix()}`"
            for source, text in sources.items()
            if f'"{path.stem}"' in text or f'"{path.name}"' in text
        ]
        title, count = document["title"].replace("|", "/"), len(document["exchanges"])
        yield f"| {path.stem} | {title} | {count} | {', '.join(users) or 'nothing yet'} |"


def _deviations(tests: Path) -> Iterator[str]:
    known = yaml.safe_load((tests / "deviations.yaml").read_text(encoding="utf-8"))
    yield "What is answered otherwise than recorded, on purpose:"
    yield ""
    yield "| recording | exchange | why |"
    yield "| --- | --- | --- |"
    for recording, exchanges in sorted(known.items()):
        for exchange, reason in exchanges.items():
            yield f"| {recording} | {exchange} | {reason.strip()} |"
