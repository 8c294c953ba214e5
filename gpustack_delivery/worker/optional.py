"""Kinds that a cluster may do without: mirrored as empty until somebody installs them.

ModelDeployments, Instances and InstanceTypes belong to others. Where their definitions are missing,
the API server answers 404 for the whole kind; that is a cluster without such objects, not a
failure, and it may change at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from gpustack_delivery.errors import Gone, NotFound
from gpustack_delivery.ports import Change, Clock, Kube, Page, Selection, Watch

LOOK_AGAIN_SECONDS: Final = 30.0
_NEVER: Final = "0"


class OptionalKinds:
    """The two calls a mirror makes, for kinds that may be missing."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return one page; an empty one of a kind that is missing."""
        try:
            return self._kube.list_page(selection, continue_token)
        except NotFound:
            return Page((), _NEVER)

    def watch(self, selection: Selection, resource_version: str) -> Watch:
        """Open a watch; of a kind that is missing, one that soon asks for another list."""
        if resource_version == _NEVER:
            return _Absence(self._clock)
        try:
            return self._kube.watch(selection, resource_version)
        except NotFound:
            return _Absence(self._clock)


class _Absence:
    """A watch of nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = False

    def __iter__(self) -> Iterator[Change]:
        deadline = self._clock.monotonic() + LOOK_AGAIN_SECONDS
        with self._changed:
            while not self._closed and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._changed, left)
            if self._closed:
                return
        raise Gone("the kind was missing; it may be there now", code=410)
        yield  # makes this a generator, which begins to wait when it is iterated and not before

    def close(self) -> None:
        """End the wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
