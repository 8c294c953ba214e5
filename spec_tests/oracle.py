"""What the suite knows for itself: digests, texts and names, worked out apart from any
implementation.

An oracle that borrowed the code under test would agree with its mistakes, so everything here is
written a second time and on purpose: the canonical manifest, the git blob hash, and the shape of
the progress text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GROUP: Final = "worker.gpustack.ai"
API: Final = f"{GROUP}/v1alpha1"
DRIVER: Final = "model.csi.gpustack.ai"
OPERATOR_NAMESPACE: Final = "gpustack-system"
EPHEMERAL: Final = "csi.storage.k8s.io/ephemeral"
POD_NAMESPACE: Final = "csi.storage.k8s.io/pod.namespace"
POD_NAME: Final = "csi.storage.k8s.io/pod.name"
POD_UID: Final = "csi.storage.k8s.io/pod.uid"

_FIGURE: Final = r"(?:\d{1,4} B|\d{1,4}\.\d [KMGTPE]iB)"
PROGRESS: Final = re.compile(
    rf"materializing (?P<digest>sha256:[0-9a-f]{{4,64}})(?:…|\.\.\.)?:"
    rf" (?:listing.*|(?P<received>{_FIGURE}) of (?P<total>{_FIGURE}) received)"
)
"""The progress that a mount refused while materializing shows."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a repository: its content, and whether the hub stores it as LFS."""

    path: str
    content: bytes
    lfs: bool

    @property
    def digest(self) -> str:
        """Return what the file must hash to: SHA-256 for LFS, the git blob SHA-1 for any other."""
        if self.lfs:
            return "sha256:" + hashlib.sha256(self.content).hexdigest()
        blob = b"blob %d\0" % len(self.content) + self.content
        return "gitsha1:" + hashlib.sha1(blob).hexdigest()  # noqa: S324 - git chose it


@dataclass(frozen=True, slots=True)
class Tree:
    """A set of files, and what the canonical manifest makes of it."""

    files: tuple[File, ...]

    @property
    def manifest(self) -> bytes:
        """Return the canonical manifest of the files."""
        ordered = sorted(self.files, key=lambda file: file.path.encode())
        lines = [f"{file.digest} {len(file.content)} {file.path}" for file in ordered]
        return "".join(f"{line}\n" for line in ["gpustack-manifest v1", *lines]).encode()

    @property
    def digest(self) -> str:
        """Return the manifest digest, which is what a mount asks for."""
        return "sha256:" + hashlib.sha256(self.manifest).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Return the sum of the files' sizes."""
        return sum(len(file.content) for file in self.files)

    def contents(self) -> Mapping[str, bytes]:
        """Return path and content, as a reader of the mounted tree must find them."""
        return {file.path: file.content for file in self.files}

    def only(self, *paths: str) -> Tree:
        """Return the tree that a filter keeping just these paths leaves."""
        return Tree(tuple(file for file in self.files if file.path in paths))


def reads_as(figure: str, count: int) -> bool:
    """Say whether a figure of a message is a byte count, rounded either way in its one decimal."""
    number, _, unit = figure.partition(" ")
    exponent = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    scaled: float = count / 1024**exponent
    return abs(float(number) - scaled) < (0.1 if exponent else 0.5)


def pseudo_random(size_bytes: int, seed: int) -> bytes:
    """Return bytes that no two seeds share and that do not compress, the same in every run."""
    blocks = -(-size_bytes // 32)
    stream = b"".join(hashlib.sha256(b"%d:%d" % (seed, block)).digest() for block in range(blocks))
    return stream[:size_bytes]


def large(mebibytes: int, seed: int) -> bytes:
    """Return many bytes quickly, no two mebibytes alike."""
    block = pseudo_random(2**20 - 8, seed)
    return b"".join(number.to_bytes(8, "big") + block for number in range(mebibytes))
