"""Prefetches that were let pass and that no list shows yet.

The API server stores a prefetch only when every webhook has let it pass, so of two that come at
once each would be judged without the other, and together they could pass the budget. Whoever fits
only without the other therefore waits until the other is stored or forgotten, and is judged again:
a prefetch that was let pass and never stored delays another, and refuses none.

Each replica remembers its own: two that come to two replicas do not hear of each other.

Rule: MP-BUD-09.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.decisions.budget import Ask
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock
from gpustack_delivery.vocabulary.prefetch import ModelPrefetch, Spec

# By then it was stored, unless another webhook refused it or its author's connection ended.
FORGOTTEN_SECONDS: Final = 5.0
# It counts beside a list that was begun before that, and no caller waits longer for a list.
_KEPT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A prefetch that is judged: what it says, and what it weighs."""

    key: Key
    spec: Spec
    ask: Ask


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was: which event it was of all, and when, on the monotonic clock."""

    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Listing:
    """A namespace's stored prefetches, and when they were asked for."""

    prefetches: Sequence[ModelPrefetch]
    began: Moment


@dataclass(slots=True)
class _Passed:
    """One that was let pass: until when it may be on its way, and the event that it was seen by.

    A list that begins after it was seen tells what becomes of it.
    """

    wish: Wish
    until: float
    seen: float = math.inf


class Admitted:
    """The memory of what was let pass; safe on any number of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._events = itertools.count()
        self._passed: list[_Passed] = []

    def moment(self) -> Moment:
        """Return the moment it is; every one is another event."""
        with self._lock:
            return Moment(next(self._events), self._clock.monotonic())

    def notice(self, listing: Listing) -> None:
        """Let those that a list shows count by what is stored from now on."""
        stored = {found.metadata.key: found.spec for found in listing.prefetches}
        with self._lock:
            now = next(self._events)
            for passed in self._passed:
                if stored.get(passed.wish.key) == passed.wish.spec:
                    passed.seen = min(passed.seen, now)

    def enter(
        self,
        wish: Wish,
        began: Moment,
        fits: Callable[[Sequence[Ask]], bool],
        *,
        remember: bool,
    ) -> bool:
        """Say whether a prefetch fits beside what was let pass and may not be listed yet.

        Args:
            wish: the prefetch.
            began: when the stored ones of its namespace were asked for.
            fits: says whether it fits beside those and what else is asked for.
            remember: let it count from now on if it fits.
        """
        namespace = wish.key[0]
        with self._lock:
            now = self._clock.monotonic()
            self._passed = [each for each in self._passed if each.until + _KEPT_SECONDS > now]
            others = [
                each.wish.ask
                for each in self._passed
                if each.wish.key[0] == namespace
                and each.wish.key != wish.key
                and began.number < each.seen
                and began.at < each.until
            ]
            fitting = fits(others)
            if fitting and remember:
                self._passed.append(_Passed(wish, now + FORGOTTEN_SECONDS))
            return fitting
