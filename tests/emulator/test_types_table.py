"""The table of built-in classes is a copy, and is held against its source here."""

from __future__ import annotations

from tests.emulator.type_table import TABLE, rendered


def test_table_says_what_the_client_says() -> None:
    """`types.json` is what the official client's models give; `type_table` writes it again."""
    assert TABLE.read_text("utf-8") == rendered()
