"""Git's own names for trees, commits and tags: every id a hub shows is the one git would give.

Ids follow from content alone: the same files committed in the same order have the same ids in
every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

_AUTHOR = "Hub <hub@emulator.invalid>"


def pointer(sha256: str, size_bytes: int) -> bytes:
    """Return the LFS pointer file that git holds in place of a large file."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size_bytes}\n"
    ).encode()


def object_id(kind: str, body: bytes) -> str:
    """Return the id of an object: blob, tree, commit or tag."""
    header = f"{kind} {len(body)}\0".encode()
    return hashlib.sha1(header + body, usedforsecurity=False).hexdigest()


def tree_ids(blobs: Mapping[str, str]) -> dict[str, str]:
    """Return the tree id of every directory that a set of files needs; the root's key is "".

    Args:
        blobs: blob ids by path. Paths need not be ones that git would accept: a hub under test
            serves those too.
    """
    entries: dict[tuple[str, ...], list[tuple[bytes, bytes]]] = {(): []}
    for path, blob in blobs.items():
        segments = tuple(path.split("/"))
        for depth in range(1, len(segments)):
            entries.setdefault(segments[:depth], [])
        name = segments[-1].encode()
        entries[segments[:-1]].append((name, b"100644 " + name + b"\0" + bytes.fromhex(blob)))
    ids: dict[str, str] = {}
    for directory in sorted(entries, key=len, reverse=True):
        body = b"".join(line for _, line in sorted(entries[directory]))
        identifier = object_id("tree", body)
        ids["/".join(directory)] = identifier
        if directory:
            name = directory[-1].encode()
            line = b"40000 " + name + b"\0" + bytes.fromhex(identifier)
            entries[directory[:-1]].append((name + b"/", line))  # git sorts a folder as if slashed
    return ids


def commit_id(tree: str, parent: str, title: str, seconds: int) -> str:
    """Return the id of a commit; no parent for the first one."""
    lines = [f"tree {tree}"]
    if parent:
        lines.append(f"parent {parent}")
    lines += [f"{role} {_AUTHOR} {seconds} +0000" for role in ("author", "committer")]
    return object_id("commit", ("\n".join([*lines, "", title]) + "\n").encode())


def tag_id(commit: str, name: str, seconds: int) -> str:
    """Return the id of an annotated tag's own object."""
    lines = [f"object {commit}", "type commit", f"tag {name}"]
    lines.append(f"tagger {_AUTHOR} {seconds} +0000")
    return object_id("tag", ("\n".join([*lines, "", name]) + "\n").encode())
