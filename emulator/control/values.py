"""Parameters of commands: from the text that somebody wrote to the value that a fault takes."""

from __future__ import annotations

from contextlib import suppress

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class CommandError(Exception):
    """A command cannot be done; the text says what would do."""


def convert(what: str, text: str, type_: str) -> int | float | str | bool | bytes:
    """Return a parameter's value as the first of its types that the text fits.

    Args:
        what: names the parameter in the message.
        type_: as annotations write it, such as `int | str | None`.

    Raises:
        CommandError: the text fits none.
    """
    kinds = type_.split(" | ")
    for kind in kinds:
        if kind == "bool" and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if kind in {"int", "float"}:
            with suppress(ValueError):
                return int(text) if kind == "int" else float(text)
        if kind == "str":
            return text
        if kind == "bytes":
            return text.encode()
    wanted = {
        "int": "a whole number",
        "float": "a number of seconds or percent",
        "bool": "true or false",
    }
    raise CommandError(f"{what}={text}: it takes {wanted.get(kinds[0], kinds[0])}")
