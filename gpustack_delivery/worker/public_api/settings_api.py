"""`gpustack.ai/v1` `settings`: get, list, watch, update and patch.

A value that fails its check is refused here, with the check named, before it is stored.

Rule: OP-SET-01.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gpustack_delivery.errors import ApiFault, Gone
from gpustack_delivery.httpd import Request, Response
from gpustack_delivery.ports import Clock, Kube, Watch
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.settings import read_secret
from gpustack_delivery.worker.public_api import targets
from gpustack_delivery.worker.public_api.settings_edits import read_edit
from gpustack_delivery.worker.public_api.settings_store import Held, SettingsStore
from gpustack_delivery.worker.public_api.statuses import JSON, Refused, document, not_found
from gpustack_delivery.worker.public_api.tables import INCLUDED, LAYOUTS, bad_include
from gpustack_delivery.worker.public_api.targets import Form, Target, form

_RESOURCE: Final = targets.SETTINGS
_LAYOUT: Final = LAYOUTS[_RESOURCE.plural]


class SettingsApi:
    """Answers requests for Settings that have been allowed."""

    def __init__(self, kube: Kube, clock: Clock, store: SettingsStore) -> None:
        self._kube = kube
        self._clock = clock
        self._store = store

    def answer(self, target: Target, request: Request) -> Response:
        """Do what an allowed request asks for.

        Raises:
            Refused: it cannot be done.
            ApiFault: the API server does not answer.
        """
        wanted = form(request.headers.get("Accept") or "")
        if wanted is Form.METADATA:
            raise Refused(406, "NotAcceptable", "settings have no metadata of their own to list")
        if wanted is Form.TABLE and target.parameter("includeObject") not in INCLUDED:
            raise bad_include(target.parameter("includeObject"))
        if target.name and target.namespace != self._store.namespace:
            raise not_found(_RESOURCE.group, _RESOURCE.plural, target.name)
        match target.verb:
            case "get":
                found = self._store.objects(self._store.read()).get(target.name)
                if found is None:
                    raise not_found(_RESOURCE.group, _RESOURCE.plural, target.name)
                return document(self._shown(target, [found], found["metadata"], wanted) or found)
            case "list":
                held = self._store.read()
                chosen = self._chosen(target, held)
                metadata = {"resourceVersion": held.version}
                return document(
                    self._shown(target, chosen, metadata, wanted)
                    or {
                        "apiVersion": _RESOURCE.api_version,
                        "kind": f"{_RESOURCE.kind}List",
                        "metadata": metadata,
                        "items": chosen,
                    }
                )
            case "watch":
                return self._watch(target, wanted)
        edit, warnings = read_edit(target, request)
        headers = [("Warning", f"299 - {msgspec.json.encode(said).decode()}") for said in warnings]
        return document(self._store.edit(edit), headers=[*JSON, *headers])

    def _chosen(self, target: Target, held: Held) -> list[Json]:
        """Return the Settings that a list or watch is about."""
        if target.parameter("labelSelector"):
            raise Refused(400, "BadRequest", "settings have no labels: name one instead")
        objects = self._store.objects(held)
        if target.namespace not in {"", self._store.namespace}:
            return []
        selector = target.parameter("fieldSelector")
        key, _, name = selector.partition("=")
        if selector and key != "metadata.name":
            raise Refused(400, "BadRequest", "settings can be selected by metadata.name alone")
        return [one for each, one in objects.items() if not selector or each == name.lstrip("=")]

    def _shown(
        self, target: Target, objects: list[Json], metadata: Json, wanted: Form
    ) -> Json | None:
        """Return the table of some Settings if one is wanted."""
        if wanted is not Form.TABLE:
            return None
        include = target.parameter("includeObject")
        return _LAYOUT.table(objects, metadata, include, self._clock.now())

    def _watch(self, target: Target, wanted: Form) -> Response:
        if target.parameter("sendInitialEvents"):
            message = "sendInitialEvents: Forbidden: settings are listed first and then watched"
            raise Refused(422, "Invalid", message)
        held = self._store.read()
        self._chosen(target, held)  # refuses a selector while it still can
        watch = self._kube.watch(self._store.selection, held.version)

        def show(one: Json) -> Json:
            return self._shown(target, [one], one["metadata"], wanted) or one

        def chosen(state: Held) -> dict[str, Json]:
            return {one["metadata"]["name"]: one for one in self._chosen(target, state)}

        events = _Events(watch, chosen, show)
        events.begin(held, target.parameter("resourceVersion"))
        return Response(200, list(JSON), events, live=True)


class _Events:
    """The body of a watch on Settings: an event for every one that a change of the Secret moved."""

    def __init__(self, watch: Watch, chosen: Any, show: Any) -> None:
        self._watch = watch
        self._changes = iter(watch)
        self._chosen = chosen
        self._show = show
        self._known: dict[str, Json] = {}
        self._due: list[bytes] = []

    def begin(self, held: Held, since: str) -> None:
        """Say what somebody who knows the state of a version, or of none, has to hear first."""
        self._known = self._chosen(held)
        if since in {"", "0"}:
            self._due = [self._line("ADDED", one) for one in self._known.values()]
        elif not _unchanged_since(held, since):
            self._due = [self._line("MODIFIED", one) for one in self._known.values()]

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next event's line.

        Raises:
            StopIteration: the watch is over.
        """
        while not self._due:
            try:
                change = next(self._changes)
            except Gone:
                self._changes = iter(())
                return _encode("ERROR", _EXPIRED)
            except ApiFault:
                raise StopIteration from None
            if change.type != "BOOKMARK":
                secret = None if change.type == "DELETED" else change.object
                version = change.object["metadata"]["resourceVersion"]
                stored = read_secret(secret)
                self._moved(Held(stored, version, version if secret else ""))
        return self._due.pop(0)

    def close(self) -> None:
        """End the watch; from any thread, and twice."""
        self._watch.close()

    def _moved(self, held: Held) -> None:
        found = self._chosen(held)
        for name, one in found.items():
            known = self._known.get(name, {})
            if (one["spec"], one["status"]) != (known.get("spec"), known.get("status")):
                self._due.append(self._line("MODIFIED", one))
        self._known = found

    def _line(self, kind: str, one: Json) -> bytes:
        return _encode(kind, self._show(one))


_EXPIRED: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version",
    "reason": "Expired",
    "code": 410,
}


def _encode(kind: str, body: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def _unchanged_since(held: Held, since: str) -> bool:
    """Say whether the Secret is no younger than a version; unsure means no."""
    versions = (held.secret_version, since)
    if not all(version.isascii() and version.isdigit() for version in versions):
        return held.version == since
    return int(held.secret_version) <= int(since)
