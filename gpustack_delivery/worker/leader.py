"""One leader among the worker's replicas, by a Lease.

A replica takes the Lease when nobody holds it or when its holder has not renewed it for its whole
duration. How long that is, each replica measures on its own monotonic clock from the moment it saw
the last renewal: the times in the Lease are other machines' and prove nothing. A leader that could
not renew in time stops leading before anybody else can start, and one that stops in order gives the
Lease back, so that the next one starts at once.

`leading` is the fence: whoever writes on the leader's behalf asks it first.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.errors import AlreadyExists, ApiFault, NotFound
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.resources import LEASES, Json
from gpustack_delivery.vocabulary.wire import format_micro_time

LEASE_SECONDS: Final = 15
MAX_LEASE_SECONDS: Final = 3600
# Of a Lease's duration: how long a leader leads without a renewal, and how often it is asked for.
_DEADLINE_SHARE: Final = 2 / 3
_RETRY_SHARE: Final = 2 / 15

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Which Lease is asked for, under which name, and for how long.

    The identity is this replica's alone. All candidates of a Lease ask for the same duration.
    """

    namespace: str
    lease: str
    identity: str
    lease_seconds: int = LEASE_SECONDS

    @property
    def deadline_seconds(self) -> float:
        """Return for how long a leader may lead without a renewal."""
        return self.lease_seconds * _DEADLINE_SHARE

    @property
    def retry_seconds(self) -> float:
        """Return how long a candidate waits before it asks again."""
        return self.lease_seconds * _RETRY_SHARE


class Elector:
    """Asks for the Lease from `start` to `stop`, and tells when leading begins and ends.

    Both callbacks run on the elector's own thread, `lost` once for each `won`; renewals go on from
    another thread while `won` works.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        candidacy: Candidacy,
        won: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._candidacy = candidacy
        self._won = won
        self._lost = lost
        self._changed = threading.Condition()
        self._stopping = False
        self._renewed_at: float | None = None  # None: not leading
        self._seen: tuple[object, float] | None = None  # the last renewal seen, and when
        self._renewer = threading.Thread(target=self._renew, name="leader:renew", daemon=True)
        self._thread = threading.Thread(target=self._follow, name="leader", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._renewer.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop leading in order, and give the Lease back."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in (self._thread, self._renewer):
            if thread.ident is not None:
                thread.join()

    @property
    def leading(self) -> bool:
        """Say whether this replica may act now: it renewed within the deadline."""
        return self._left_seconds() > 0

    def _left_seconds(self) -> float:
        """Return for how long this replica may still act without another renewal."""
        renewed_at = self._renewed_at
        if renewed_at is None:
            return 0.0
        return renewed_at + self._candidacy.deadline_seconds - self._clock.monotonic()

    def _renew(self) -> None:
        """Take or renew the Lease again and again."""
        while True:
            began = self._clock.monotonic()
            try:
                held = self._ask()
            except ApiFault as fault:
                _log.warning("the Lease cannot be asked for: %s %s", fault, fault.detail)
                held = None
            with self._changed:
                if held is True:
                    self._renewed_at = began
                elif held is False or not self.leading:
                    self._renewed_at = None
                self._changed.notify_all()
                spread = random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, keeps no secret
                pause = self._candidacy.retry_seconds * spread
                deadline = self._clock.monotonic() + pause
                while not self._stopping:
                    left = deadline - self._clock.monotonic()
                    if left <= 0:
                        break
                    self._clock.wait(self._changed, left)
                if self._stopping:
                    return

    def _follow(self) -> None:
        """Begin and end what a leader does, as the Lease comes and goes."""
        while self._await(leading=True):
            _log.info("leading as %s", self._candidacy.identity)
            self._won()
            self._await(leading=False)
            self._lost()
            _log.info("no longer leading")
        self._renewer.join()
        if self._renewed_at is not None:
            self._renewed_at = None
            self._give_back()

    def _await(self, *, leading: bool) -> bool:
        """Wait until leading is so; False if `stop` came first."""
        with self._changed:
            while not self._stopping and self.leading is not leading:
                # The end of leading comes by itself, its beginning is always told.
                left = None if leading else self._left_seconds()
                self._clock.wait(self._changed, left)
            return not self._stopping

    def _ask(self) -> bool:
        """Take or renew the Lease; say whether it is ours."""
        who = self._candidacy
        try:
            lease = self._kube.get(LEASES, who.lease, who.namespace)
        except NotFound:
            try:
                self._kube.create(LEASES, self._body({}, 0), who.namespace)
            except AlreadyExists:
                return False
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in {"", who.identity} and not self._expired(spec):
            return False
        changes = 0 if holder == who.identity else 1
        body = self._body(spec, spec.get("leaseTransitions", 0) + changes)
        # The version read makes a race end in a conflict: only one replica takes the Lease.
        self._kube.update(LEASES, lease | {"spec": body["spec"]})
        return True

    def _expired(self, spec: Json) -> bool:
        """Say whether another's Lease has run out, on our own clock."""
        now = self._clock.monotonic()
        renewal = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if self._seen is None or self._seen[0] != renewal:
            self._seen = (renewal, now)
        duration = spec.get("leaseDurationSeconds") or self._candidacy.lease_seconds
        # No candidate asks for more; what says more was written by a stranger, who never renews it.
        return now - self._seen[1] >= min(duration, MAX_LEASE_SECONDS)

    def _body(self, spec: Json, transitions: int) -> Json:
        who = self._candidacy
        now = format_micro_time(self._clock.now())
        ours = spec.get("holderIdentity") == who.identity
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": who.lease, "namespace": who.namespace},
            "spec": {
                "holderIdentity": who.identity,
                "leaseDurationSeconds": who.lease_seconds,
                "acquireTime": spec.get("acquireTime", now) if ours else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _give_back(self) -> None:
        who = self._candidacy
        try:
            lease = self._kube.get(LEASES, who.lease, who.namespace)
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") == who.identity:
                freed = spec | {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._kube.update(LEASES, lease | {"spec": freed})
        except ApiFault as fault:
            _log.info("the Lease runs out by itself: %s %s", fault, fault.detail)
