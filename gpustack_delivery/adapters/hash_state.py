"""A hash half done, as the download engine's checkpoints keep it: the same on every machine and in
every library. `hashing` makes and reads them.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Any, Final, Self

BLOCK_BYTES: Final = 64
WORDS: Final = {"sha256": 8, "sha1": 5}
"""How many words of 32 bits an algorithm's chaining state has."""


@dataclass(frozen=True, slots=True)
class HashState:
    """A hash half done, in no library's own form.

    Args:
        algorithm: `sha256` or `sha1`.
        words: the chaining state, 8 or 5 words of 32 bits.
        byte_count: how many bytes went in, git's blob header among them.
        tail: the last `byte_count % 64` bytes, which do not fill a block yet.

    Raises:
        ValueError: the parts do not fit together.
    """

    algorithm: str
    words: tuple[int, ...]
    byte_count: int
    tail: bytes

    def __post_init__(self) -> None:
        if len(self.words) != WORDS.get(self.algorithm):
            raise ValueError("a hash state names an algorithm and has as many words as it needs")
        if any(not 0 <= word < 1 << 32 for word in self.words):
            raise ValueError("a hash state's words have 32 bits")
        if not 0 <= self.byte_count < 1 << 61 or len(self.tail) != self.byte_count % BLOCK_BYTES:
            raise ValueError("a hash state's tail is what its byte count leaves of a block")

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form: words and tail in hex, the words big-endian."""
        return {
            "algorithm": self.algorithm,
            "words": b"".join(word.to_bytes(4, "big") for word in self.words).hex(),
            "byteCount": self.byte_count,
            "tail": self.tail.hex(),
        }

    @classmethod
    def from_wire(cls, wire: Any) -> Self:
        """Read the JSON form.

        Raises:
            ValueError: it is not one.
        """
        try:
            words = binascii.unhexlify(wire["words"])
            return cls(
                algorithm=wire["algorithm"],
                words=tuple(
                    int.from_bytes(words[at : at + 4], "big") for at in range(0, len(words), 4)
                ),
                byte_count=wire["byteCount"],
                tail=binascii.unhexlify(wire["tail"]),
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a hash state: {error!r}") from None
