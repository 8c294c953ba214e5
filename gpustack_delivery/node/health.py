"""Whether the cache can be used: taken at the start, and looked at in every round of the reporter.

A cache whose filesystem does not answer is no reason to be away: unmounting needs the mount table
alone, and kubelet has nobody else to ask for it. So the plugin starts without what it cannot read,
mounts and removes nothing, says why, and takes the cache as soon as it answers. What a person must
mend, a wrong flag or a foreign root, ends the start.

Rules: NS-AUT-14, NS-REF-04..06, NS-GC-08, NS-RES-15.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gpustack_delivery.errors import ConfigurationFault, HostFault
from gpustack_delivery.node.cache import is_away
from gpustack_delivery.node.collector import Store
from gpustack_delivery.ports import Clock, Mounts

_log = logging.getLogger(__name__)


class Health:
    """The state of one cache. `start` comes first, then one thread calls `look`."""

    def __init__(self, store: Store, mounts: Mounts, clock: Clock) -> None:
        self._store = store
        self._mounts = mounts
        self._clock = clock
        self._taken = False
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Return what is wrong with the cache or with what is known of it, "" if nothing is."""
        return self._trouble

    def start(self) -> None:
        """Take the cache if its filesystem answers, and make memory what it and the mounts say.

        Raises:
            ConfigurationFault, HostFault: somebody must mend it first.
        """
        try:
            self._take()
        except HostFault as fault:
            if not is_away(fault):
                raise
            self._say(fault)
        else:
            self.look()

    def look(self) -> None:
        """Catch up on what could not be done yet, and see whether the cache can be used now."""
        try:
            if not self._taken:
                self._take()
            if not self._store.references.rebuilt:
                self._rebuild()
            self._store.root.probe()
        except (ConfigurationFault, HostFault) as fault:
            self._say(fault)
            return
        if self._trouble:
            _log.info("the cache can be used again")
        self._trouble = ""

    def _say(self, fault: ConfigurationFault | HostFault) -> None:
        if str(fault) != self._trouble:
            _log.error("nothing new is mounted: %s detail=%s", fault, fault.detail)
        self._trouble = str(fault)

    def _take(self) -> None:
        """Open the root, read what is remembered, and clear what no attempt owns."""
        store = self._store
        store.root.open()
        try:
            with _said_in_a_line():
                store.ledger.load()
                store.trees.load()
                store.partials.discard_orphans(store.ledger.all().keys())
            # A marker that could not be read counts as none: what is missing must not be an outage.
            store.root.probe(writable=False)
        except BaseException:
            store.root.close()
            raise
        self._taken = True

    def _rebuild(self) -> None:
        """Learn from the live mounts what is in use, and clear what is not and is no tree."""
        store = self._store
        try:
            table = self._mounts.table()
        except HostFault as fault:
            message = f"the references on this node cannot be read: {fault}"
            raise HostFault(message, detail=fault.detail) from fault
        with _said_in_a_line():
            for digest in store.references.rebuild(table):
                if store.trees.has(digest):
                    self._lost(digest)
            store.trees.discard_strays(store.references.digests())
            store.trees.empty_trash(mount.root for mount in table)

    def _lost(self, digest: str) -> None:
        """Note that a tree was in use until now, for all that is known; a full disk hinders not."""
        try:
            self._store.ledger.remember(digest, used_at=self._clock.now())
        except HostFault as fault:
            _log.error("last use not recorded: digest=%s detail=%s", digest, fault.detail)


@contextmanager
def _said_in_a_line() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the cache cannot be read: {error.strerror}"
        raise HostFault(message, detail=str(error)) from error
