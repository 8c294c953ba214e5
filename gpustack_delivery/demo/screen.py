"""How the demo looks: chapters, findings, progress and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.text import Text


class Meter(Protocol):
    """A running progress bar."""

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Show how far a download is."""


class Screen:
    """Draws on one console; knows nothing of clusters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._chapters = 0

    def chapter(self, title: str) -> None:
        """Begin a numbered part of the story."""
        self._chapters += 1
        self._console.print()
        self._console.print(Text(f"{self._chapters}. {title}", style="bold"))

    def say(self, text: str) -> None:
        """Print one sentence, exactly as it is."""
        self._console.print(Text("   " + text), soft_wrap=True)

    def check(self, text: str, *, ok: bool) -> None:
        """Print a promise and whether it was kept."""
        mark, style = ("✔", "green") if ok else ("✘", "bold red")
        self._console.print(Text.assemble("   ", (mark, style), " ", text), soft_wrap=True)

    @contextmanager
    def meter(self, label: str) -> Iterator[Meter]:
        """Show a progress bar while the block runs."""
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(label, total=None)

            def show(done_bytes: int, total_bytes: int) -> None:
                progress.update(task, completed=done_bytes, total=total_bytes or None)

            yield show

    def table(self, table: Mapping[str, Any]) -> None:
        """Draw a `meta.k8s.io/v1` Table as kubectl would: columns of priority 0, no frame."""
        columns = table["columnDefinitions"]
        shown = [index for index, column in enumerate(columns) if not column["priority"]]
        self.rows(
            [columns[index]["name"].upper() for index in shown],
            [[_cell(row["cells"][index]) for index in shown] for row in table["rows"]],
        )

    def rows(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Draw a plain table; nothing is cut, as kubectl cuts nothing."""
        lines = [titles, *rows] if titles else rows
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (set_cell_size(*cell) for cell in zip(line, widths, strict=True))
            # Whoever pastes the lines elsewhere wants no blanks at their ends.
            self.say("   ".join(cells).rstrip())


def _cell(value: object) -> str:
    return "<none>" if value is None or value == "" else str(value)
