"""The two files beside a published tree: the marker that makes it one, and the listing it was
checked by.

Both are read with suspicion: a file that is damaged or names another digest counts as missing.

Rules: NS-DL-19, NS-DL-20, NS-RES-11.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpustack_delivery.errors import HubFault
from gpustack_delivery.node.records import read_record, write_durably, write_record
from gpustack_delivery.ports import Disk
from gpustack_delivery.vocabulary.manifest import HEADER, Entry, Manifest
from gpustack_delivery.vocabulary.node_store import ByteSource
from gpustack_delivery.vocabulary.resources import Json
from gpustack_delivery.vocabulary.wire import format_time, parse_time


@dataclass(frozen=True, slots=True)
class Marker:
    """What a published tree says of itself; `source` is None on trees older than the field."""

    digest: str
    size_bytes: int
    file_count: int
    published_at: float
    attempt: int = 0
    source: ByteSource | None = None

    @classmethod
    def from_wire(cls, wire: Json) -> Marker:
        """Read a marker.

        Raises:
            KeyError, TypeError, ValueError: it is damaged.
        """
        source = wire.get("source")
        return cls(
            digest=wire["digest"],
            size_bytes=int(wire["sizeBytes"]),
            file_count=int(wire["fileCount"]),
            published_at=parse_time(wire["publishedTime"]),
            attempt=int(wire.get("attempt", 0)),
            source=ByteSource(source) if source else None,
        )

    def to_wire(self) -> Json:
        """Write a marker."""
        return {
            "digest": self.digest,
            "attempt": self.attempt,
            "manifestFormat": HEADER,
            "sizeBytes": self.size_bytes,
            "fileCount": self.file_count,
            "publishedTime": format_time(self.published_at),
        } | ({"source": self.source.value} if self.source else {})


def read_marker(directory: Path, digest: str) -> Marker | None:
    """Return the marker in a directory, or None if it is missing, damaged or of another digest."""
    record = read_record(directory / "marker")
    try:
        marker = None if record is None else Marker.from_wire(record)
    except (KeyError, TypeError, ValueError):
        return None
    return marker if marker is not None and marker.digest == digest else None


def write_marker(directory: Path, marker: Marker, disk: Disk) -> None:
    """Write a directory's marker; see `records.write_record`."""
    write_record(directory / "marker", marker.to_wire(), disk)


def read_listing(directory: Path, digest: str) -> Manifest | None:
    """Return the listing in a directory, or None unless it makes exactly this digest."""
    record = read_record(directory / "manifest.json")
    try:
        entries = [Entry(e["path"], e["size"], e["digest"]) for e in (record or {})["entries"]]
        manifest = Manifest.of(entries)
    except (KeyError, TypeError, AttributeError, HubFault):
        return None
    return manifest if manifest.digest == digest else None


def write_listing(directory: Path, manifest: Manifest, disk: Disk) -> None:
    """Write a directory's listing; see `records.write_record`."""
    entries = [
        {"path": entry.path, "size": entry.size_bytes, "digest": entry.digest}
        for entry in manifest.entries
    ]
    content = msgspec.json.encode({"digest": manifest.digest, "entries": entries})
    write_durably(directory / "manifest.json", content, disk)
