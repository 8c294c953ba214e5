"""What a controller has yet to look at: each key once, in order, and again when it was refused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from emulator.errors import ApiError

_LOG = logging.getLogger(__name__)
_RACES = 5  # lost in a row before a key has to wait


class Worklist:
    """An ordered set of keys; used on the controllers' thread alone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._keys: dict[str, None] = {}
        self._refused: dict[str, None] = {}

    def add(self, *keys: str) -> None:
        """Note keys to look at."""
        self._keys.update(dict.fromkeys(keys))

    def extend(self, keys: Iterable[str]) -> None:
        """Note many keys to look at."""
        self._keys.update(dict.fromkeys(keys))

    def drain(self, look: Callable[[str], None]) -> None:
        """Look at every key, also at those that come up meanwhile; keep the refused for later."""
        races: Counter[str] = Counter()
        while self._keys:
            key = next(iter(self._keys))
            del self._keys[key]
            try:
                look(key)
            except ApiError as error:
                races[key] += 1
                if error.code in (404, 409) and races[key] < _RACES:
                    self._keys[key] = None  # somebody else was faster: look again at what is now
                    continue
                _LOG.info("controller=%s key=%s refused=%s", self._name, key, error.message)
                self._refused[key] = None

    @property
    def refused(self) -> bool:
        """Say whether something was refused, as by a webhook that does not answer."""
        return bool(self._refused)

    def revive(self) -> None:
        """Take up again what was refused."""
        self._keys.update(self._refused)
        self._refused.clear()
