"""The API server as a model: every verb, no HTTP.

`api_server.ApiServer` puts HTTP before it, `client.Client` calls it in the same process. Both ask
`authorize` first: a verb itself does not, so that a forbidden request is refused before its body is
looked at. An apply that comes to create asks once more, for that.

A write goes through the same stations as in the real server: decode and warn of unknown fields,
patch, default and prune, reset of what the caller may not write, managed fields, mutating
admission, validation, validating admission, store. What the steps do is theirs
(`contracts.Authorizer`, `Admission`, `Patcher`).
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.contracts import (
    ADMIN,
    Access,
    Admission,
    Attributes,
    Authorizer,
    Caller,
    Clock,
    Decision,
    DeleteOptions,
    Elsewhere,
    FieldWrite,
    Json,
    ListOptions,
    ListResult,
    Outcome,
    Patch,
    Patcher,
    Resource,
    Target,
    Virtual,
    WatchEvent,
    WatchStream,
    WriteOptions,
)
from emulator.controllers.definitions import DefinitionController
from emulator.controllers.garbage import GarbageCollector
from emulator.controllers.loop import Loop
from emulator.controllers.namespaces import NamespaceController
from emulator.deletion import Deletion
from emulator.kinds.kind import Kind
from emulator.objects import Store
from emulator.reads import Reads
from emulator.state import State, Steps
from emulator.subresources import PodPosts, Scales, check_verb
from emulator.watching import Watch
from emulator.writes import Writes

__all__ = [
    "ADMIN",
    "Access",
    "Admission",
    "Api",
    "Attributes",
    "Authorizer",
    "Caller",
    "Clock",
    "Decision",
    "DeleteOptions",
    "FieldWrite",
    "Json",
    "ListOptions",
    "ListResult",
    "Outcome",
    "Patch",
    "Patcher",
    "Resource",
    "Steps",
    "Target",
    "Virtual",
    "WatchEvent",
    "WatchStream",
    "WriteOptions",
]

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_CRITICAL = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_ALL = ListOptions()
_PLAIN_WRITE = WriteOptions()
_PLAIN_DELETE = DeleteOptions()


class Api:
    """One API server. Thread-safe; construct, use, close.

    Args:
        clock: the time of creation times, timeouts and waits.
        steps: access, admission and patches; each left out allows everything, or tracks nothing.
        root_ca: PEM of the CA that every namespace's kube-root-ca.crt carries; "" for no such map.
        seed: of uids and generated names, for a test that wants them the same in every run.
        controllers: collect garbage, empty namespaces and end CRDs in the background; without them
            the server is as a kube-apiserver alone.
    """

    def __init__(
        self,
        clock: Clock,
        steps: Steps | None = None,
        *,
        root_ca: str = "",
        seed: int | None = None,
        controllers: bool = True,
    ) -> None:
        """Start with the four first namespaces and the two critical priorities."""
        self._state = State(clock, steps or Steps(), seed)
        self._reads = Reads(self._state)
        self._writes = Writes(self._state)
        self._deletion = Deletion(self._state, self._reads)
        self._pods = PodPosts(self._state, self._writes, self._deletion)
        self._scales = Scales(self._state, self._writes)
        self._watches: set[Watch] = set()
        self._root_ca = root_ca
        self._namespaces = NamespaceController(self._state, self._writes, self._deletion)
        self._definitions = DefinitionController(self._state, self._writes, self._deletion)
        garbage = GarbageCollector(self._state, self._writes, self._deletion)
        background = (garbage, self._namespaces, self._definitions) if controllers else ()
        self._loop = Loop(self._state, background)
        self._begin()
        self._loop.start()

    def _begin(self) -> None:
        namespaces = self.resource("", "v1", "namespaces")
        for name in NAMESPACES:
            self.create(ADMIN, Target(namespaces), {"metadata": {"name": name}})
        priorities = self.resource("scheduling.k8s.io", "v1", "priorityclasses")
        for name, value in _CRITICAL.items():
            self.create(ADMIN, Target(priorities), {"metadata": {"name": name}, "value": value})
        # Nothing of the beginning can be watched: version 1 is too old, as on a real cluster.
        self._state.store.compact()

    def close(self) -> None:
        """End every open watch and the background controllers."""
        self._state.closed = True
        self._loop.close()
        self.drop_watches()
        with self._state.store.lock:
            self._state.store.moved.notify_all()

    def idle(self) -> bool:
        """Say whether the controllers have acted on every change so far."""
        return self._loop.idle()

    def settle(self) -> None:
        """Wait until the controllers have acted on every change, their own included."""
        self._loop.settle()

    def keep_silent_at_rest(self) -> None:
        """Send no bookmarks of a kind that has not changed, as a server up to 1.32."""
        self._state.bookmarks_at_rest = False

    def compact(self) -> None:
        """Forget the past: whoever is not up to date gets 410 Expired."""
        self._state.store.compact()

    def drop_watches(self) -> None:
        """End every open watch, as a restart of the server would."""
        for watch in tuple(self._watches):
            watch.close()
        self._watches.clear()

    # resources

    @property
    def store(self) -> Store:
        """Return the store, for steps that look objects up; writes go through the verbs."""
        return self._state.store

    @property
    def clock(self) -> Clock:
        """Return the server's clock."""
        return self._state.clock

    def resource(self, group: str, version: str, plural: str) -> Resource:
        """Return a served resource. Raises ApiError 404 when there is none."""
        return self._state.registry.find(group, version, plural).resource

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return the resource whose objects carry this apiVersion and kind. Raises ApiError 404."""
        found = self._state.registry.find_kind(api_version, kind)
        if found is None:
            group, _, version = api_version.rpartition("/")
            raise self._state.registry.missing(group, version)
        return found.resource

    def resources(self) -> tuple[Resource, ...]:
        """Return every served resource in every version, built-in ones first."""
        return tuple(kind.resource for kind in self._state.registry.kinds())

    def withdraw(self, group: str, plural: str) -> None:
        """Serve a resource in no version any longer, as a server that is too old for it."""
        self._state.registry.replace(group, plural, ())

    def kind(self, resource: Resource) -> Kind:
        """Return the rules of a resource, for tables. Raises ApiError 404."""
        return self._state.kind(resource)

    def schema(self, resource: Resource) -> Json | None:
        """Return the schema of a custom resource's version; None for a built-in kind."""
        return self._state.kind(resource).schema

    def register(self, resource: Resource, subresource: str, virtual: Virtual) -> None:
        """Answer creates of a resource ("" as subresource), or of a subresource, by a function."""
        key = (resource.group, resource.plural, subresource)
        self._state.virtuals[key] = virtual

    def virtual(self, group: str, plural: str, subresource: str) -> Virtual | None:
        """Return the function that answers creates of a resource or subresource, if any."""
        return self._state.virtuals.get((group, plural, subresource))

    def timestamp(self) -> str:
        """Return the time as objects carry it."""
        return self._state.now()

    def attach(self, elsewhere: Elsewhere) -> None:
        """Say what servers there are behind this one: a namespace ends when it is empty there."""
        self._state.elsewhere = elsewhere

    def new_uid(self) -> str:
        """Return a uid that nothing has."""
        return self._state.uid()

    # access

    def authorize(self, access: Access) -> None:
        """Ask the authorizer. Raises ApiError 403 in the server's own sentence when it says no."""
        self._state.authorize(access)

    def tell_access(self, listener: Callable[[Access], None]) -> None:
        """Tell a listener of every question to the authorizer from now on, before it is asked."""
        self._state.listeners.append(listener)

    # verbs; each raises ApiError

    def get(self, target: Target, resource_version: str = "") -> Json:
        """Return a stored object, or its scale."""
        self.check_verb(target, "get")
        if self._scales.serves(target):
            return self._scales.get(target)
        return self._reads.get(target, resource_version)

    def list(self, target: Target, options: ListOptions = _ALL) -> ListResult:
        """Return one page; an empty namespace means all of them."""
        return self._reads.list(target, options)

    def watch(self, target: Target, options: ListOptions = _ALL) -> WatchStream:
        """Open a watch; a version that is too old comes as an ERROR event."""
        watch = Watch(self._state, target, options, self._watches.discard)
        self._watches.add(watch)
        return watch

    def create(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions = _PLAIN_WRITE
    ) -> Outcome:
        """Create an object (code 201); `body` is taken over and changed in place."""
        resource = target.resource
        virtual = self.virtual(resource.group, resource.plural, target.subresource)
        if virtual is not None:
            return virtual(caller, target, body, options)
        self.check_verb(target, "create")
        if target.subresource == "binding":
            return self._pods.bind(caller, target, body, options)
        if target.subresource == "eviction":
            return self._pods.evict(caller, target, body, options)
        outcome = self._writes.create(caller, target, body, options)
        if not options.dry_run:
            self._follow_up(target, outcome.object, created=True)
        return outcome

    def update(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions = _PLAIN_WRITE
    ) -> Outcome:
        """Replace an object, its status or its scale; `body` is taken over, changed in place."""
        self.check_verb(target, "update")
        if self._scales.serves(target):
            return self._scales.update(caller, target, body, options)
        outcome = self._writes.update(caller, target, body, options)
        self._follow_up(target, outcome.object, created=False)
        return outcome

    def patch(
        self, caller: Caller, target: Target, patch: Patch, options: WriteOptions = _PLAIN_WRITE
    ) -> Outcome:
        """Patch an object, its status or its scale; an apply may create (code 201)."""
        self.check_verb(target, "patch")
        if self._scales.serves(target):
            return self._scales.patch(caller, target, patch, options)
        outcome = self._writes.patch(caller, target, patch, options)
        if not options.dry_run:
            self._follow_up(target, outcome.object, created=outcome.code == 201)
        return outcome

    def delete(
        self, caller: Caller, target: Target, options: DeleteOptions = _PLAIN_DELETE
    ) -> Outcome:
        """Delete an object: a Status when it is gone, the object when something still holds it."""
        self.check_verb(target, "delete")
        outcome = self._deletion.delete(caller, target, options)
        if target.resource.collection == _DEFINITIONS and not options.dry_run:
            self._definitions.refuse_new(target.name)
        return outcome

    def delete_collection(
        self,
        caller: Caller,
        target: Target,
        selection: ListOptions = _ALL,
        options: DeleteOptions = _PLAIN_DELETE,
    ) -> ListResult:
        """Delete what a selection matches, one by one; return it as it was."""
        return self._deletion.delete_collection(caller, target, selection, options)

    def check_verb(self, target: Target, verb: str) -> None:
        """Refuse subresources that are not there, and verbs they do not have.

        Raises:
            ApiError: 404; 405; 501 for what a real server has and this one has not.
        """
        check_verb(self._state, target, verb)

    def _follow_up(self, target: Target, object_: Json, *, created: bool) -> None:
        """Do at once what others would have to wait for: furnish a namespace, establish a CRD."""
        name = object_["metadata"]["name"]
        if target.subresource:
            return
        if target.resource.collection == ("", "namespaces") and created:
            self._namespaces.furnish(name, self._root_ca)
        elif target.resource.collection == _DEFINITIONS:
            self._definitions.establish(name)
