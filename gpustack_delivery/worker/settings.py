"""The Settings as they are now: the Secret, watched, over the seeds.

A bad value is said once, in the log and as an Event on the Secret, and then judged where it is
used.

Rules: NS-OWN-04, OP-SET-02.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpustack_delivery.decisions.settings import check, effective
from gpustack_delivery.mirror import Key, Mirror
from gpustack_delivery.ports import Clock, Kube, Selection
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import SECRETS, Json
from gpustack_delivery.vocabulary.settings import SECRET_NAME, read_secret
from gpustack_delivery.worker.events import WARNING, Events

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The Secret's identity, and the values of the Settings it holds."""

    metadata: Metadata
    values: Mapping[str, str]


def _decode(body: Json) -> _Stored:
    # The identity must not differ from one version to the next: only changed values matter.
    read = Metadata.from_wire(body)
    return _Stored(Metadata(read.name, read.namespace, read.uid), read_secret(body))


class Settings:
    """The effective values, followed from `start` to `stop`."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        namespace: str,
        environment: Mapping[str, str],
        events: Events,
    ) -> None:
        self._namespace = namespace
        self._environment = environment
        self._events = events
        self._values = effective({}, environment)
        self._valid: dict[str, str] = {}  # touched by the mirror's thread alone
        selection = Selection(SECRETS, namespace, field_selector=f"metadata.name={SECRET_NAME}")
        self._mirror = Mirror(kube, clock, selection, _decode)
        self._mirror.subscribe(self._judge)

    def start(self) -> None:
        """Begin to follow the Secret."""
        self._mirror.start()

    def stop(self) -> None:
        """End the watch."""
        self._mirror.stop()

    def wait_synced(self, seconds: float) -> bool:
        """Wait until the Secret, or its absence, was read; False if not in time."""
        return self._mirror.wait_synced(seconds)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call a listener after every change of a value."""
        self._mirror.subscribe(lambda _key, _old, _new: listener())

    def values(self) -> dict[str, str]:
        """Return every Setting's value as text: valid, unless no valid one was seen."""
        return dict(self._values)

    def _judge(self, _key: Key, old: _Stored | None, stored: _Stored | None) -> None:
        if old is None and self._mirror.synced:
            self._remember(effective({}, self._environment))  # the Secret was known to be absent
        values = effective(stored.values if stored else {}, self._environment)
        faults = self._remember(values)
        for name, fault in faults.items():
            message = f"the Setting {name} {fault}; its last valid value stays in force"
            _log.warning("%s", message)
            if stored is not None:
                self._events.tell(SECRETS, stored.metadata, WARNING, "InvalidSetting", message)
        # Replaced at once, so that a reader never sees half of a change.
        self._values = values | {name: self._valid.get(name, values[name]) for name in faults}

    def _remember(self, values: dict[str, str]) -> dict[str, str]:
        """Remember the valid ones among values; return what is wrong with the others."""
        faults = check(values)
        self._valid |= {name: text for name, text in values.items() if name not in faults}
        return faults
