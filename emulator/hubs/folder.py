"""Any local folder as the files of a repository.

Everything below the folder is served under its own name, links to files followed, so the snapshot
folders of `huggingface_hub` work as they are. Nothing is left out silently: what cannot be served
is an error that names it. Left out on purpose are `.git` and `.cache/huggingface`, which are
bookkeeping beside the content and which the real hub's upload leaves out as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from emulator.hubs.content import DiskFile
from emulator.hubs.errors import HubError

_BOOKKEEPING = frozenset({(".git",), (".cache", "huggingface")})


def read_folder(folder: Path) -> dict[str, DiskFile]:
    """Return the files below a folder by their path within it, slashes between segments.

    Raises:
        HubError: the folder is missing, unreadable, empty or not a folder, or something in it can
        be neither
            read nor served.
    """
    if not folder.exists():
        raise HubError(f"there is no folder {str(folder)!r}")
    if not folder.is_dir():
        raise HubError(f"{str(folder)!r} is not a folder")
    files: dict[str, DiskFile] = {}
    pending: list[tuple[str, ...]] = [()]
    while pending:
        directory = pending.pop()
        for entry in _scan(folder.joinpath(*directory)):
            segments = (*directory, entry.name)
            if segments in _BOOKKEEPING:
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(segments)
            else:
                files[_name(segments)] = _file(Path(entry.path), entry)
    if not files:
        raise HubError(f"the folder {str(folder)!r} holds no files")
    return files


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise HubError(f"cannot read the folder {str(directory)!r}: {error.strerror}") from error


def _name(segments: tuple[str, ...]) -> str:
    name = "/".join(segments)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise HubError(f"the name {os.fsencode(name)!r} is not UTF-8") from None
    return name


def _file(path: Path, entry: os.DirEntry[str]) -> DiskFile:
    if not entry.is_file():
        kind = "a link to a folder" if path.is_dir() else "neither a file nor a folder"
        kind = kind if path.exists() else "a link to nothing"
        raise HubError(f"{str(path)!r} is {kind} and cannot be served")
    return DiskFile(path)
