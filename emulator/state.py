"""What the verbs share: the clock, the store, the kinds, the pluggable steps."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from emulator.contracts import (
    Access,
    Admission,
    Authorizer,
    Clock,
    Elsewhere,
    Json,
    Patcher,
    Resource,
    Target,
    Virtual,
)
from emulator.errors import access_denied, not_found, version_ahead
from emulator.kinds.catalogue import SHARED
from emulator.kinds.kind import Kind
from emulator.kinds.registry import Registry
from emulator.objects import CollectionKey, Store

PATIENCE_SECONDS = 3.0
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class Steps:
    """The pluggable steps; each left out allows everything, or tracks nothing."""

    authorizer: Authorizer | None = None
    admission: Admission | None = None
    patcher: Patcher | None = None


class State:
    """One server's state. It has no behaviour of its own beyond looking things up."""

    def __init__(self, clock: Clock, steps: Steps, seed: int | None = None) -> None:
        # Names and uids need no secrecy, and a test may want the same ones twice.
        self._random = random.Random()  # noqa: S311
        self._seed = seed
        self._draws: Counter[str] = Counter()
        self.clock = clock
        self.steps = steps
        self.store = Store()
        self.registry = Registry()
        self.virtuals: dict[tuple[str, str, str], Virtual] = {}
        self.elsewhere: Elsewhere | None = None
        self.listeners: list[Callable[[Access], None]] = []
        self.bookmarks_at_rest = True
        self.closed = False
        for kind in self.registry.kinds():
            self.store.open(collection_of(kind.resource))

    def authorize(self, access: Access) -> None:
        """Ask the authorizer. Raises ApiError 403 in the server's own sentence when it says no."""
        for listener in self.listeners:
            listener(access)
        if self.steps.authorizer is None:
            return
        decision = self.steps.authorizer.decide(access)
        if not decision.allowed:
            raise access_denied(access, decision.reason)

    def now(self) -> str:
        """Return the time as objects carry it."""
        return self.later(0)

    def later(self, seconds: float) -> str:
        """Return the time in some seconds as objects carry it."""
        moment = datetime.fromtimestamp(self.clock.now() + seconds, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def uid(self, of: str = "") -> str:
        """Return a new uid; with a seed, the n-th one of the same `of` is always the same."""
        return str(uuid.UUID(int=self._draw(f"uid {of}").getrandbits(128), version=4))

    def suffix(self, of: str) -> str:
        """Return what a generated name ends in; with a seed as for uids."""
        return "".join(self._draw(f"suffix {of}").choices(_ALPHABET, k=5))

    def _draw(self, what: str) -> random.Random:
        """Return where to draw from.

        With a seed, threads that do things at the same moment must not take each other's numbers,
        so each subject has numbers of its own.
        """
        if self._seed is None:
            return self._random
        with self.store.lock:
            self._draws[what] += 1
            return random.Random(f"{self._seed} {what} {self._draws[what]}")  # noqa: S311 - no secret

    def lookup(self, key: CollectionKey, namespace: str, name: str) -> Json | None:
        """Return a stored object, or None."""
        return self.store.get(key, namespace, name)

    def stored(self, target: Target) -> Json:
        """Return the stored object a target names. Raises ApiError 404."""
        found = self.store.get(collection_of(target.resource), target.namespace, target.name)
        if found is None:
            raise not_found(target.resource, target.name)
        return found

    def kind(self, resource: Resource) -> Kind:
        """Return the rules of a resource. Raises ApiError 404 when it is no longer served."""
        return self.registry.kind(resource)

    def await_version(self, version: int) -> None:
        """Wait until a version exists. Raises ApiError 504 when it does not come in time."""
        deadline = self.clock.monotonic() + PATIENCE_SECONDS
        with self.store.lock:
            while self.store.version < version and not self.closed:
                left = deadline - self.clock.monotonic()
                if left <= 0:
                    raise version_ahead(version, self.store.version)
                self.clock.wait(self.store.moved, left)

    def retrying(self, attempt: Callable[[], Json | None]) -> Json:
        """Repeat an optimistic attempt until it wins."""
        while (result := attempt()) is None:
            pass
        return result


def collection_of(resource: Resource) -> CollectionKey:
    """Return the store's key of a resource; Events of both groups share one collection."""
    return SHARED.get(resource.collection, resource.collection)
