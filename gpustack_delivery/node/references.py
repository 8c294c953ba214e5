"""References: which target shows which digest, on disk and in memory, and what the mount table
says.

A reference is a mounted target. It is written before the bind, so that a tree is protected before
it is in use, and removed after the unmount. When the plugin starts, the live mounts are the truth:
a record without a mount is dropped, a mount without a record adopted, and where both disagree the
mount wins.

Rules: NS-REF-01, NS-REF-03, NS-REF-05, NS-GC-06.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Self

from gpustack_delivery.errors import HostFault
from gpustack_delivery.node.cache import CacheRoot, digest_of, hex_of
from gpustack_delivery.node.records import read_record, remove_record, write_record
from gpustack_delivery.ports import Disk, Mount
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import present

_SHOWN_TREE: Final = re.compile(r"/published/([0-9a-f]{64})/tree$")
_POD_VOLUME: Final = re.compile(r"/pods/([^/]+)/volumes/kubernetes\.io~csi/([^/]+)/mount$")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reference:
    """One target that shows one digest, and whose volume it is; the Pod stays on the node."""

    target: str
    digest: str
    volume_id: str
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""

    @classmethod
    def from_wire(cls, wire: Json) -> Self:
        """Read a reference.

        Raises:
            KeyError, ValueError: it is damaged.
        """
        digest = digest_of(str(wire["hex"]))
        if digest is None or not wire["targetPath"]:
            raise ValueError("it names no digest or no target")
        return cls(
            target=str(wire["targetPath"]),
            digest=digest,
            volume_id=str(wire.get("volumeID", "")),
            pod_namespace=str(wire.get("podNamespace", "")),
            pod_name=str(wire.get("podName", "")),
            pod_uid=str(wire.get("podUID", "")),
        )

    def to_wire(self) -> Json:
        """Write a reference."""
        return {
            "volumeID": self.volume_id,
            "targetPath": self.target,
            "hex": hex_of(self.digest),
        } | present(
            {"podNamespace": self.pod_namespace, "podName": self.pod_name, "podUID": self.pod_uid}
        )


class References:
    """The references of one node. Safe from any thread.

    Args:
        root: the cache they are recorded in.
        disk: for writes that last.
        kubelet: the kubelet directory as configured and with its symlinks followed; only mounts
            below count.
    """

    def __init__(self, root: CacheRoot, disk: Disk, kubelet: tuple[Path, Path]) -> None:
        self._root = root
        self._disk = disk
        self._kubelet = kubelet
        self._lock = threading.Lock()
        self._by_target: dict[str, Reference] = {}
        self._gone: set[str] = set()  # dropped before the references were known
        self._rebuilt = False

    @property
    def rebuilt(self) -> bool:
        """Say whether the references are known: `rebuild` has succeeded once."""
        return self._rebuilt

    def rebuild(self, table: Iterable[Mount]) -> frozenset[str]:
        """Make the references what the live mounts are, and the records what the references are.

        A record that cannot be mended now is mended by the next start: the mounts are the truth.

        Returns:
            The digests of references whose mount went while nobody looked, by a reboot say.
        """
        recorded = {}
        for path in sorted(self._root.references.glob("*.json")):
            if path.is_dir():  # nobody's record, and it is in nobody's way
                continue
            reference = _read(path)
            if reference is None or path != self._path(reference.target):
                self._remove(path)
            if reference is not None:
                recorded[reference.target] = reference
        live = {str(mount.target): shown for mount in table if (shown := self.shown_by(mount))}
        lost = recorded.keys() - live.keys()
        for target in lost:
            _log.info("reference without a mount dropped: target=%s", target)
            self._remove(self._path(target))
        found = {}
        for target, digest in live.items():
            reference = recorded.get(target)
            kept = reference is not None and self._path(target).exists()
            if reference is None or reference.digest != digest:
                _log.info("mount without a reference adopted: target=%s digest=%s", target, digest)
                reference, kept = _adopted(target, digest), False
            if not kept:
                with _left_to_the_next_start():
                    write_record(self._path(target), reference.to_wire(), self._disk)
            found[target] = reference
        with self._lock:
            for target in self._gone & found.keys():  # unmounted since the table was read
                del found[target]
                self._remove(self._path(target))
            self._by_target = found
            self._rebuilt = True
        return frozenset(recorded[target].digest for target in lost)

    def shown_by(self, mount: Mount) -> str | None:
        """Return the digest whose published tree a mount shows, or None for any other mount.

        The device is not asked: some filesystems have several numbers, and it is better to keep a
        tree too long than to take one from under a Pod.
        """
        match = _SHOWN_TREE.search(mount.root)
        below = any(directory in mount.target.parents for directory in self._kubelet)
        return f"sha256:{match[1]}" if match and below else None

    def shows_ours(self, mount: Mount, digest: str) -> bool:
        """Say whether a mount shows this very cache's tree of a digest, read-only."""
        return (
            mount.read_only
            and self.shown_by(mount) == digest
            and mount.device == self._disk.device(self._root.path)
        )

    def record(self, reference: Reference) -> None:
        """Write a reference.

        Raises:
            HostFault: it could not be written; there is none.
        """
        with self._lock:
            write_record(self._path(reference.target), reference.to_wire(), self._disk)
            self._by_target[reference.target] = reference

    def drop(self, target: str) -> Reference | None:
        """Remove a target's reference and return it; None if there was none.

        A record that cannot be removed has no mount when the plugin starts again, and goes then.
        """
        with self._lock:
            reference = self._by_target.pop(target, None)
            if not self._rebuilt:
                self._gone.add(target)
            if reference is not None:
                self._remove(self._path(target))
        return reference

    def digests(self) -> frozenset[str]:
        """Return every digest that some target shows."""
        with self._lock:
            return frozenset(reference.digest for reference in self._by_target.values())

    def names(self, digest: str) -> bool:
        """Say whether some target shows a digest."""
        return digest in self.digests()

    def _remove(self, path: Path) -> None:
        with _left_to_the_next_start():
            remove_record(path, self._disk)

    def _path(self, target: str) -> Path:
        # A target is unique on a node and may hold any character; its hash is both a key and a file
        # name.
        name = hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()
        return self._root.references / f"{name}.json"


@contextmanager
def _left_to_the_next_start() -> Iterator[None]:
    try:
        yield
    except HostFault as fault:
        _log.error("record of a reference left as it is: %s detail=%s", fault, fault.detail)


def _read(path: Path) -> Reference | None:
    record = read_record(path)
    try:
        return None if record is None else Reference.from_wire(record)
    except (KeyError, ValueError) as error:
        _log.warning("reference ignored: path=%s error=%s", path, error)
        return None


def _adopted(target: str, digest: str) -> Reference:
    """Return the reference of a mount without a record; its volume id is as kubelet derives it."""
    match = _POD_VOLUME.search(str(PurePosixPath(target)))
    uid, volume = (match[1], match[2]) if match else ("", "")
    derived = hashlib.sha256(f"{uid}{volume}".encode()).hexdigest()
    return Reference(target, digest, f"csi-{derived}", pod_uid=uid)
