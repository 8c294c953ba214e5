"""ModelScope's own SDK downloads from the emulated hub as it is."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from modelscope_hub import HubApi
from modelscope_hub.errors import HubError

from emulator.hubs import ModelScopeHub, Status

FILES = {
    "config.json": b'{"a": 1}',
    "weights/model.safetensors": random.Random(7).randbytes(3_000_000),  # noqa: S311 - no secret
}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the SDK a cache and settings of its own, and no proxy."""
    for name in list(os.environ):
        if name.upper().startswith("MODELSCOPE_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "cache"))


def _downloaded(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def _download(hub: ModelScopeHub, folder: Path, token: str = "", revision: str = "") -> Path:
    api = HubApi(token=token or None, endpoint=hub.url)
    found = api.download_repo("org/name", "model", local_dir=str(folder), revision=revision or None)
    return Path(str(found))


def test_a_repository_comes_whole(tmp_path: Path) -> None:
    """Small files and weights arrive as they are; the weights from the content host."""
    with ModelScopeHub() as hub:
        hub.add_repository("org/name", FILES)
        assert _downloaded(_download(hub, tmp_path / "model")) == FILES
        assert {entry.host for entry in hub.requests.entries("*safetensors*")} >= {"cdn"}


def test_a_revision_is_the_one_that_was_named(tmp_path: Path) -> None:
    """A tag leads to its commit after the branch has moved on."""
    with ModelScopeHub() as hub:
        repository = hub.add_repository("org/name", {"config.json": b"1"})
        first = repository.resolve("master")
        assert first is not None
        repository.tag("v1", first.id)
        repository.commit({"config.json": b"2"}, branch="master")
        old = _download(hub, tmp_path / "old", revision="v1")
        assert _downloaded(old) == {"config.json": b"1"}
        assert _downloaded(_download(hub, tmp_path / "new")) == {"config.json": b"2"}


def test_a_private_repository_wants_a_reader(tmp_path: Path) -> None:
    """Without a reader's token there is no such repository."""
    with ModelScopeHub() as hub:
        hub.add_repository("org/name", FILES, private=True, readers=["ann"])
        hub.add_token("ms-ann", "ann")
        with pytest.raises(HubError):
            _download(hub, tmp_path / "nobody")
        assert _downloaded(_download(hub, tmp_path / "ann", token="ms-ann")) == FILES


def test_a_failing_listing_is_an_error(tmp_path: Path) -> None:
    """What the hub refuses never looks like an empty repository."""
    with ModelScopeHub() as hub:
        hub.add_repository("org/name", FILES)
        hub.faults.add(Status(404), at="tree")
        with pytest.raises(HubError):
            _download(hub, tmp_path / "model")
