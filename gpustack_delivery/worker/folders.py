"""A local folder as the files of a repository: each file's path, size and the digest a hub gives
it.

Hugging Face keeps large files outside git and knows them by their SHA-256; all others it knows by
git's blob id. Which is which, the folder's own `.gitattributes` says, as it does on the hub;
without one, the names that weights usually have and the size beyond which the hub takes no file
into git. ModelScope knows every file by its SHA-256. What a hub's client leaves beside the files
that it downloads is none of them.
`manifest_command` calls it.

Rules: AR-DIG-01, AR-DIG-02.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.errors import ConfigurationFault, HostFault
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Entry
from gpustack_delivery.vocabulary.patterns import Patterns

ATTRIBUTES: Final = ".gitattributes"
LARGE_BYTES: Final = 10 * 2**20
_CHUNK_BYTES: Final = 2**20
_BOOKKEEPING: Final = {
    HubKind.HUGGING_FACE: frozenset({".git", ".cache/huggingface"}),
    HubKind.MODEL_SCOPE: frozenset({".git", ".msc", ".mdl", ".mv", "._____temp"}),
}
_WEIGHTS: Final = (
    "*.7z", "*.arrow", "*.bin", "*.ckpt", "*.gguf", "*.gz", "*.h5", "*.model", "*.msgpack",
    "*.npy", "*.npz", "*.onnx", "*.ot", "*.parquet", "*.pb", "*.pkl", "*.pt", "*.pth",
    "*.safetensors", "*.tar", "*.tflite", "*.tgz", "*.xz", "*.zip",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LargeFiles:
    """Which files a hub keeps outside git: rules in order, the last that matches decides."""

    rules: tuple[tuple[str, bool], ...]

    @classmethod
    def of_attributes(cls, text: str) -> Self:
        """Read a `.gitattributes` file."""
        rules = []
        for line in text.splitlines():
            pattern, *attributes = line.split() or [""]
            for attribute in attributes:
                if attribute.lstrip("-!").partition("=")[0] == "filter":
                    rules.append((pattern, attribute == "filter=lfs"))
        return cls(tuple(rules))

    @classmethod
    def of_names(cls, patterns: Sequence[str]) -> Self:
        """Take files by their names' patterns."""
        return cls(tuple((pattern, True) for pattern in patterns))

    def covers(self, path: str, size_bytes: int) -> bool:
        """Say whether a file is one."""
        if size_bytes > LARGE_BYTES:
            return True
        found = [large for pattern, large in self.rules if _matches(pattern, path)]
        return bool(found) and found[-1]


EVERY_FILE: Final = LargeFiles.of_names(("*",))


def _matches(pattern: str, path: str) -> bool:
    if "/" not in pattern:
        return fnmatchcase(path.rpartition("/")[2], pattern)
    pattern = pattern.lstrip("/")
    # In git `/**/` also stands for a single slash.
    return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("/**/", "/"))


def read_folder(
    folder: Path, patterns: Patterns, hub: HubKind = HubKind.HUGGING_FACE
) -> Iterator[Entry]:
    """Yield the files below a folder that the patterns keep, hashed; links to files are followed.

    Args:
        hub: by whose rules the files are hashed.

    Raises:
        ConfigurationFault: the folder is none, or holds something that is neither file nor folder.
        HostFault: something in it cannot be read.
    """
    try:
        if not folder.is_dir():
            what = "a file, not a folder" if folder.exists() else "not there"
            raise ConfigurationFault(f"{_shown(str(folder))} is {what}")
    except OSError as error:
        raise _unreadable(str(folder), error) from None
    large = EVERY_FILE if hub is HubKind.MODEL_SCOPE else _large_files(folder)
    hashing, bookkeeping = Hashing(), _BOOKKEEPING[hub]
    for path in _walk(folder, "", bookkeeping):
        if patterns.keeps(path):
            yield _entry(folder / path, path, large, hashing)


def _large_files(folder: Path) -> LargeFiles:
    attributes = folder / ATTRIBUTES
    if not attributes.is_file():
        return LargeFiles.of_names(_WEIGHTS)
    try:
        return LargeFiles.of_attributes(attributes.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise _unreadable(ATTRIBUTES, error) from None


def _walk(folder: Path, below: str, bookkeeping: Set[str]) -> Iterator[str]:
    try:
        with os.scandir(folder / below) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(below or str(folder), error) from None
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if path in bookkeeping:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder, path, bookkeeping)
        else:
            yield path


def _entry(file: Path, path: str, large: LargeFiles, hashing: Hashing) -> Entry:
    try:
        facts = file.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise ConfigurationFault(f"{_shown(path)} is a link to a folder: put the folder there")
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigurationFault(f"{_shown(path)} is neither a file nor a folder")
        algorithm = "sha256" if large.covers(path, facts.st_size) else "gitsha1"
        hasher = hashing.start(algorithm, facts.st_size)
        with file.open("rb") as content:
            size = 0
            while chunk := content.read(_CHUNK_BYTES):
                hasher.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise _unreadable(path, error) from None
    if size != facts.st_size:
        raise HostFault(f"{_shown(path)} changed while it was read")
    return Entry(path, size, f"{algorithm}:{hasher.hexdigest()}")


def _unreadable(path: str, error: OSError) -> HostFault:
    return HostFault(f"{_shown(path)} cannot be read: {error.strerror}")


def _shown(path: str) -> str:
    return repr(path)[:200]
