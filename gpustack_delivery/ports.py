"""What we need from the world, as Protocols: clock, kube, hub, mounts and disk.

Decisions never see these. Rooms above (`node`, `worker`, `mirror`) take them in their constructors;
the real ones stand in `adapters`, and tests bring their own. Units stand in names; every failure
leaves as a class of `errors`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry
from gpustack_delivery.vocabulary.resources import Json, Resource


class Clock(Protocol):
    """Time, and the only way to wait for it."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on a condition the caller holds until it is notified or `seconds` have passed on
        this clock.

        May return early: callers loop on their own predicate and deadline. None waits for the
        notification alone.
        """


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind; an empty namespace means all of them, an empty selector any."""

    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: items, the list's version, and the next page's token ("" at the end)."""

    items: Sequence[Json]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One watch event. `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Json


class Kube(Protocol):
    """The Kubernetes API. Every call may raise a class of `errors.ApiFault`."""

    def within(self, seconds: float) -> Kube:
        """Return the same API for somebody in a hurry: silence is given up after so long."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object as the server holds it."""

    def list_page(self, selection: Selection, continue_token: str = "") -> Page:
        """Return one page of a collection."""

    def watch(self, selection: Selection, resource_version: str) -> Watch:
        """Open a watch with bookmarks after `resource_version`."""

    def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Create an object, or ask a review."""

    def update(self, resource: Resource, body: Json, *, subresource: str = "") -> Json:
        """Replace an object by its metadata's name, namespace and resourceVersion."""

    def apply(
        self, resource: Resource, body: Json, *, field_manager: str, subresource: str = ""
    ) -> Json:
        """Apply a partial object by server-side apply, forcing conflicts: its fields are ours."""

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Json:
        """Patch an object by JSON merge patch."""

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object; with `uid`, only that very one."""

    def get_raw(self, path: str, *, timeout_seconds: float) -> bytes:
        """Return the body of a path outside the resources, such as a node's proxied configz."""


class Watch(Protocol):
    """An open watch; it ends by the server, by `close` from another thread, or in silence."""

    def __iter__(self) -> Iterator[Change]:
        """Yield changes.

        Raises:
            Gone: an ERROR event, or an answer, said that the version is too old.
            Unreachable: the connection broke.
        """

    def close(self) -> None:
        """End the watch; safe from any thread, and twice."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A request to the Kubernetes API as it goes over the wire: the target has path and query."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)


class Reply(Protocol):
    """The answer to an errand; read it whole or line by line, or close it."""

    status: int

    def header(self, name: str) -> str:
        """Return a header's value, empty when there is none."""

    def read(self) -> bytes:
        """Return the whole body and end the exchange."""

    def lines(self) -> Iterator[bytes]:
        """Yield the body's lines as they come; `close` from another thread ends it.

        Raises:
            Silent: none came for as long as `pass_on` was told to wait.
            Unreachable: the connection broke.
        """

    def close(self) -> None:
        """End the exchange; safe from any thread, and twice."""


class Passage(Protocol):
    """The way to the Kubernetes API for requests that are somebody else's."""

    def pass_on(self, errand: Errand, *, timeout_seconds: float) -> Reply:
        """Send a request as ourselves; a bad answer is an answer too.

        Args:
            timeout_seconds: the longest silence that is waited through.

        Raises:
            ApiFault: there is no answer, or our own identity was refused.
        """


class PluginDownloads(Protocol):
    """The plugins' own ports, as far as running downloads are concerned."""

    def read(self, address: str, port: int, *, timeout_seconds: float) -> bytes:
        """Return the JSON of one plugin's running downloads.

        Raises:
            HostFault: there was no good answer in time.
        """


class Hub(Protocol):
    """A model hub's API.

    Every call may raise `errors.HubFault`, whose texts come from status and error codes alone.
    """

    def resolve(self, repository: str, revision: str, token: Token | None) -> str:
        """Return the 40-hex commit that a branch, tag or commit names now."""

    def list_tree(self, repository: str, commit: str, token: Token | None) -> tuple[Entry, ...]:
        """Return every file at a commit, unfiltered and in no promised order."""

    def probe(self, repository: str, commit: str, token: Token | None) -> None:
        """Check that the credential still reads the repository at a commit; follow no redirect."""

    def accepts(self, token: Token) -> bool:
        """Say whether the hub takes the token at all."""

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """Return the URL a file is downloaded from, every segment escaped once."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table: where it is, which part of which device it shows, and how."""

    target: Path
    root: str
    device: str  # major:minor
    read_only: bool


class Mounts(Protocol):
    """The node's mount table. Failures are `errors.HostFault`."""

    def table(self) -> tuple[Mount, ...]:
        """Return every live mount, stacked ones repeated, in mount order."""

    def bind_read_only(self, source: Path, target: Path) -> None:
        """Bind a directory read-only, nosuid and nodev; all of it holds or nothing is mounted."""

    def unmount(self, target: Path) -> None:
        """Take the topmost mount off a target; one that is not mounted is no error."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A filesystem's size and what is taken of it; blocks reserved for root count as used."""

    total_bytes: int
    used_bytes: int


class Disk(Protocol):
    """Facts of filesystems, and the calls that make bytes outlive a power cut.

    Failures are `errors.HostFault`.
    """

    @property
    def direct_writes(self) -> bool:
        """Say whether large files are to be written past the page cache, where that is possible."""

    def usage(self, path: Path) -> Usage:
        """Return the usage of the filesystem that holds a path."""

    def device(self, path: Path) -> str:
        """Return the `major:minor` of the filesystem that holds a path, as in the mount table."""

    def sync_file(self, path: Path) -> None:
        """Make a regular file's bytes and size durable."""

    def sync_directory(self, path: Path) -> None:
        """Make a directory's entries durable."""
