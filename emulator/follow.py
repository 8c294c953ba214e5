"""Follows one kind of object as a controller does: list, watch, and both again at a break."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from emulator.client import Client, Watch
from emulator.contracts import Json, ListOptions, Target, copied


class Follower:
    """Tells, on its own thread, what happens to the objects of one kind.

    `seen` gets ADDED, MODIFIED or DELETED and the object. After a break it gets what changed
    meanwhile, too: objects that are gone as DELETED in their last known state.
    """

    def __init__(
        self,
        client: Client,
        kind: tuple[str, str],
        seen: Callable[[str, Json], None],
        *,
        name: str,
        namespace: str = "",
        fields: str = "",
    ) -> None:
        """Follow a kind, as apiVersion and kind; `start` begins."""
        self._client = client
        self._kind = kind
        self._seen = seen
        self._namespace = namespace
        self._fields = fields
        self._known: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._stopped = False
        self._watch: Watch | None = None
        self._before: Callable[[Mapping[str, Json]], None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, before: Callable[[Mapping[str, Json]], None] | None = None) -> None:
        """Begin; `before` gets the first list by uid before any of it is told."""
        self._before = before
        self._thread.start()

    def stop(self) -> None:
        """Stop telling, and wait for the thread."""
        with self._lock:
            self._stopped = True
            watch = self._watch
        if watch is not None:
            watch.close()
        self._thread.join()

    def _run(self) -> None:
        while (watch := self._open()) is not None:
            for kind, obj in watch:
                if kind == "ERROR":
                    break
                self._tell(kind, obj)

    def _open(self) -> Watch | None:
        """List, tell what is new, and open a watch from there; None when stopped."""
        api_version, kind = self._kind
        target = Target(self._client.api.resource_of(api_version, kind), self._namespace)
        page = self._client.api.list(target, ListOptions(field_selector=self._fields))
        if not self._stopped:
            self._compare({obj["metadata"]["uid"]: copied(obj) for obj in page.items})
        options = ListOptions(field_selector=self._fields, resource_version=page.resource_version)
        with self._lock:
            if self._stopped:
                return None
            self._watch = self._client.watch(
                api_version, kind, namespace=self._namespace, options=options
            )
            return self._watch

    def _compare(self, found: Mapping[str, Json]) -> None:
        """Tell what differs between what is known and a complete list."""
        if self._before is not None:
            self._before(found)
            self._before = None
        for uid in self._known.keys() - found.keys():
            self._tell("DELETED", self._known[uid])
        for uid, obj in found.items():
            known = self._known.get(uid)
            if known is None:
                self._tell("ADDED", obj)
            elif known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._tell("MODIFIED", obj)

    def _tell(self, kind: str, obj: Json) -> None:
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            self._known.pop(uid, None)
        else:
            self._known[uid] = obj
        self._seen(kind, obj)
