"""What may be said aloud: never a token, a header or a signed URL.

A `Token` cannot be printed by accident: `str`, `repr`, `format` and pickling all withhold it, and
only `reveal()` gives it out, at the one place that writes an Authorization header. `speakable_url`
is the only way a URL enters a message or a log line.
"""

from __future__ import annotations

from typing import NoReturn
from urllib.parse import urlsplit


class Token:
    """A hub credential or bearer token that does not print.

    Compares by value, so that a rotated Secret is noticed.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret itself; only for the request that needs it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Token(withheld)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Token is kept in memory only and cannot be pickled or copied")


def speakable_url(url: str) -> str:
    """Return scheme, host and path of a URL, without user, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
