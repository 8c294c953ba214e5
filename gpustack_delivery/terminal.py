"""What every command of ours says on a terminal: one line about what is wrong, and plain text.

A text that somebody wrote, a flag, a path, a name in a folder, may hold anything a terminal would
obey. It is shown with its own letters, whatever language they belong to, and with everything else
escaped. A terminal that lacks a letter gets it escaped too, rather than an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Final, NoReturn

_LONGEST_LINE: Final = 1000


class Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line and takes no abbreviated flag."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)  # type: ignore[arg-type]  # passed on as they are

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with status 2."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see --help\n")


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return the `type` of a flag that takes a whole number within bounds."""

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}: {text!r}"
            )
        return number

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Return the `type` of a flag that takes any number within bounds."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if least <= float(text) <= most:
                return float(text)
        raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}: {text!r}")

    return read


def filled(text: str) -> str:
    """Return a flag's text as it is; the `type` of a flag that an unset variable must not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def plain(text: str) -> str:
    """Return a text for one line: what does not print is escaped, all letters stay."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def one_line(message: str) -> str:
    """Return a complaint as one line that a person reads: plain, its middle cut if it is huge."""
    text = plain(message)
    if len(text) <= _LONGEST_LINE:
        return text
    return f"{text[: _LONGEST_LINE // 2]} […] {text[-_LONGEST_LINE // 2 :]}"


def tolerate_any_text() -> None:
    """Make the standard streams escape what their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
