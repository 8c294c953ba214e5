"""Kubernetes quantities: amounts such as `200Gi`, `1.5G`, `1e3` or `500m`, exact.

Two spellings of one amount are equal only by value, so amounts are compared as numbers and never as
text.

    >>> parse("1Gi") == parse("1073741824")
    True
    >>> format_binary(3 * 2**30), format_binary(1000)
    ('3Gi', '1000')
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Final

_BINARY: Final = {
    suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_SCALES: Final = {**{key: Fraction(value) for key, value in _BINARY.items()}, **_DECIMAL}
# Three digits of exponent hold every amount that means something; more would only buy a slow power
# of ten.
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)
_MAX_LENGTH: Final = 64


def parse(quantity: str | int) -> Fraction:
    """Return the exact amount of a quantity as it stands on the wire, text or whole number.

    Raises:
        ValueError: the text is no quantity.
    """
    text = str(quantity)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH and text.isascii() else None
    if match is None or isinstance(quantity, bool):
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a quantity such as 200Gi or 1500M")
    number = Fraction(Decimal(match["number"]))
    if match["exponent"] is not None:
        return number * Fraction(10) ** int(match["exponent"])
    return number * _SCALES[match["suffix"] or ""]


def parse_bytes(quantity: str | int) -> int:
    """Return a quantity in whole bytes, rounded up.

    Raises:
        ValueError: the text is no quantity, or a negative one.
    """
    amount = parse(quantity)
    if amount < 0:
        raise ValueError(f"{str(quantity)[:_MAX_LENGTH]!r} is negative")
    return ceil(amount)


def format_binary(size_bytes: int) -> str:
    """Return bytes in the largest binary suffix that loses nothing."""
    suffix, scale = "", 1
    for name, value in _BINARY.items():
        if size_bytes and size_bytes % value == 0:
            suffix, scale = name, value
    return f"{size_bytes // scale}{suffix}"
