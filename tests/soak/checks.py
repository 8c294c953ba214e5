"""What must hold on a node, seen from outside the plugin: by the kernel's mount table and by bytes.

at any moment     a mount of ours shows exactly its digest's files, read-only, one a target
                  a mount has its record, which says that digest: it was written before the bind
                  and goes after the unmount
                  a directory under `published` with a marker is whole
after a restart   the records of references are exactly the live mounts
                  nothing in the trash, at most one partial a digest, no record half written,
                  nothing published without a marker
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpustack_delivery.node.inspection import FILE_MODE
from gpustack_delivery.ports import Mount, Mounts
from tests.soak.world import Model

_VICTIM: Final = "config.json"
_TREE: Final = re.compile(r"/(?:published|trash)/([0-9a-f]{64})[^/]*/tree$")


@dataclass(frozen=True, slots=True)
class Look:
    """A view of one node.

    Args:
        root: the root directory of the mount namespace that the plugin lives in.
        table: that namespace's mount table.
        models: what may be there, by the hex of the digest.
    """

    root: Path
    kubelet: Path
    cache: Path
    table: Mounts
    models: Mapping[str, Model]

    def mounts(self) -> None:
        """Check every mount, and every tree that could be mounted."""
        for mount in self._ours():
            self.mount(mount.target)
            assert self._recorded().get(str(mount.target)) == _shown(mount), (
                f"a mount without its record: {mount.target}"
            )
        for directory in self._children("published"):
            if _marked(directory):
                self._whole(directory / "tree", self.models[directory.name])

    def mount(self, target: Path) -> None:
        """Check what a container would see through a target."""
        found = [mount for mount in self._ours() if mount.target == target]
        assert len(found) == 1, f"{len(found)} mounts at {target}"
        assert found[0].read_only, f"a writable mount at {target}"
        match = _TREE.search(found[0].root)
        assert match, f"{target} is not whole: it shows {found[0].root}"
        self._whole(self.inside(target), self.models[match[1]])

    def references(self) -> None:
        """Check that the records of references are the live mounts."""
        live = {str(mount.target): _shown(mount) for mount in self._ours()}
        assert self._recorded() == live, f"records {self._recorded()} of mounts {live}"

    def recovered(self) -> None:
        """Check that a plugin which serves has left nothing behind of those that died."""
        self.references()
        assert self._children("trash") == [], "something is left in the trash"
        for directory in self._children("published"):
            assert (directory / "marker").exists(), f"published without a marker: {directory}"
            assert {p.name for p in directory.iterdir()} == {"marker", "manifest.json", "tree"}
        for directory in self._children("partial"):
            assert len(list(directory.iterdir())) == 1, f"orphans in {directory}"
        for where in ("ledger/refs", "ledger/digests"):
            torn = [p for p in self._children(where) if p.suffix != ".json"]
            assert torn == [], f"half written records: {torn}"

    def shown(self, target: Path) -> str | None:
        """Return the digest that is mounted at a target."""
        found = [mount for mount in self._ours() if mount.target == target]
        return f"sha256:{_shown(found[-1])}" if found else None

    def used(self) -> set[str]:
        """Return every digest that is mounted."""
        return {f"sha256:{_shown(mount)}" for mount in self._ours()}

    def published(self) -> set[str]:
        """Return every published digest."""
        return {f"sha256:{path.name}" for path in self._children("published") if _marked(path)}

    def missing_bytes(self, unwanted: Set[str] = frozenset()) -> int:
        """Return how many bytes of all models are neither published nor noted as safe.

        Args:
            unwanted: digests that nobody will ask for again.
        """
        missing = 0
        for name, model in self.models.items():
            directory = self.inside(self.cache / "published" / name)
            if model.digest in unwanted:
                continue
            if not _marked(directory) or self._damaged(directory):
                missing += model.size_bytes - self._safe_bytes(name)
        return missing

    def damage(self, name: str) -> None:
        """Change a file's mode in a published tree."""
        (self.inside(self.cache / "published" / name) / "tree" / _VICTIM).chmod(0o644)

    def _damaged(self, directory: Path) -> bool:
        return stat.S_IMODE((directory / "tree" / _VICTIM).stat().st_mode) != FILE_MODE

    def inside(self, path: Path) -> Path:
        """Return a path of the namespace as this process can open it."""
        return self.root / path.relative_to("/")

    def _safe_bytes(self, name: str) -> int:
        """Return the bytes of a digest's newest partial that its own notes call safe."""
        attempts = sorted(self._children(f"partial/{name}"), key=lambda path: int(path.name))
        if not attempts:
            return 0
        tree, state, safe = attempts[-1] / "tree", attempts[-1] / "state", {}
        for path in state.glob("*.json"):
            record = json.loads(path.read_bytes())
            safe[record["path"]] = record["offset"]
        finished = state / "finished"
        lines = finished.read_text().splitlines() if finished.exists() else []
        for line in lines:
            with suppress(ValueError):  # it is torn
                path, size, _ = json.loads(line)
                safe[path] = size
        present = {p: s for p, s in safe.items() if (tree / p).exists()}
        return sum(s for p, s in present.items() if (tree / p).stat().st_size >= s)

    def _recorded(self) -> dict[str, str]:
        """Return what the records of references say: the hex of a digest by its target."""
        paths = [p for p in self._children("ledger/refs") if p.suffix == ".json"]
        records = [json.loads(path.read_bytes()) for path in paths]
        return {record["targetPath"]: record["hex"] for record in records}

    def _ours(self) -> list[Mount]:
        return [m for m in self.table.table() if m.target.is_relative_to(self.kubelet)]

    def _children(self, where: str) -> list[Path]:
        directory = self.inside(self.cache / where)
        return sorted(directory.iterdir()) if directory.is_dir() else []

    def _whole(self, tree: Path, model: Model) -> None:
        found = {str(p.relative_to(tree)): _content(p) for p in tree.rglob("*") if p.is_file()}
        wrong = sorted(
            p for p in found.keys() | model.files.keys() if found.get(p) != model.files.get(p)
        )
        assert wrong == [], f"{model.name} at {tree} is not whole: {wrong}"


def _content(path: Path) -> bytes | None:
    """Return a file's bytes, None for one that is gone or cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _marked(directory: Path) -> bool:
    """Say whether a directory has the marker of its own digest."""
    try:
        marker = json.loads((directory / "marker").read_bytes())
    except (OSError, ValueError):
        return False
    return bool(marker["digest"] == f"sha256:{directory.name}")


def _shown(mount: Mount) -> str:
    match = _TREE.search(mount.root)
    return match[1] if match else mount.root
