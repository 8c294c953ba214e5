"""Listing and downloading from an emulated hub, as the node does it: one world, both adapters."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from emulator.hubs import (
    EXPIRED_URL,
    Flip,
    Gzip,
    HtmlPage,
    HuggingFaceHub,
    IgnoreRange,
    LfsRule,
    ModelScopeHub,
    Overrun,
    Reset,
    Resize,
    Stall,
    Status,
    Unmeasured,
    WrongRange,
)
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.adapters.modelscope import ModelScope
from gpustack_delivery.errors import AttemptFault, HubFault, Reason, Verdict
from gpustack_delivery.node.downloading import Target
from gpustack_delivery.ports import Hub
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Manifest
from tests.unit.node.downloading.site import SEGMENT, Site, pattern

FILES = {
    "config.json": b'{"model_type": "tiny"}',
    "empty.txt": b"",
    "weights/model #1.safetensors": pattern(SEGMENT * 6 + 11),
    "weights/é 🤖%41.safetensors": pattern(SEGMENT * 2, 1),
}
LARGE = LfsRule(patterns=("*.safetensors",), size_bytes=1 << 30)


class World:
    """A hub with one private repository, and a site with a token that may read it."""

    def __init__(self, stack: ExitStack, root: Path) -> None:
        self.site = Site(root, "")
        stack.callback(self.site.close)
        self.hub = stack.enter_context(HuggingFaceHub(clock=self.site.clock))
        self.hub.add_token("hf_canary", "ann")
        self.repository = self.hub.add_repository(
            "org/model", FILES, private=True, readers=["ann"], lfs=LARGE
        )
        self.token = Token("hf_canary")
        self.site.credential = lambda: self.token
        self.adapter: Hub = HuggingFace(self.hub.url, self.site.http)

    def targets(self) -> Sequence[Target]:
        """List the repository and return what is to be fetched."""
        commit = self.adapter.resolve("org/model", "main", self.token)
        manifest = Manifest.of(self.adapter.list_tree("org/model", commit, self.token))
        return [
            Target(
                entry,
                self.adapter.file_url("org/model", commit, entry.path),
                self.site.tree / entry.path,
            )
            for entry in manifest.entries
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give a fresh world."""
    with ExitStack() as stack:
        yield World(stack, tmp_path)


def arrived(world: World) -> bool:
    """Say whether every file is there with its bytes."""
    return {path: world.site.content(path) for path in FILES} == FILES


def test_repository_arrives(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Every kind of file and name arrives; the token goes to the hub and nowhere else."""
    with caplog.at_level(logging.DEBUG):
        world.site.fetch(*world.targets())
    assert arrived(world)
    cdn = world.hub.requests.entries(host="cdn")
    assert cdn
    assert not [entry for entry in cdn if entry.carries("canary")]
    ours = [r for r in caplog.records if r.name.startswith("gpustack_delivery")]
    assert not [r for r in ours if "canary" in r.getMessage() or "Signature" in r.getMessage()]
    kept = b"".join(path.read_bytes() for path in world.site.state.iterdir())
    assert b"canary" not in kept
    assert world.hub.url.encode() not in kept


def test_second_fetch_asks_for_nothing(world: World) -> None:
    """What has arrived is not asked for again."""
    targets = world.targets()
    world.site.fetch(*targets)
    world.hub.requests.clear()
    world.site.fetch(*targets)
    assert world.hub.requests.entries() == []


@pytest.mark.parametrize(
    "fault",
    [
        EXPIRED_URL,
        Status(503, retry_after=2),
        Status(429, retry_after=1),
        Reset(offset=SEGMENT * 3 + 7),
        Stall(offset=SEGMENT + 9),
        WrongRange(start_by=1),
        IgnoreRange(),
        Unmeasured(),
        Gzip(),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_passing_trouble_is_survived(world: World, fault: object) -> None:
    """Trouble that passes costs retries, and the files are right in the end."""
    targets = world.targets()
    rule = world.hub.faults.add(fault, path="*#1.safetensors", times=2)  # type: ignore[arg-type]  # every kind
    world.site.fetch(*targets)
    assert rule.hits >= 1
    assert arrived(world)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Status(401), Reason.ACCESS_DENIED),
        (Status(404), Reason.ACCESS_DENIED),
        (Status(500), Reason.SOURCE_UNAVAILABLE),
        (Flip(offset=SEGMENT * 4), Reason.INTEGRITY_MISMATCH),
        (Resize(by=-1), Reason.SOURCE_UNAVAILABLE),
        (WrongRange(total_by=1), Reason.INTEGRITY_MISMATCH),
        (HtmlPage(), Reason.INTEGRITY_MISMATCH),
    ],
    ids=lambda value: getattr(value, "value", type(value).__name__),
)
def test_lasting_trouble_has_its_reason(world: World, fault: object, reason: Reason) -> None:
    """Trouble that stays ends the attempt with its reason; what was right is kept for the next."""
    targets = world.targets()
    world.hub.faults.add(fault, path="*#1.safetensors")  # type: ignore[arg-type]  # every kind
    with pytest.raises(AttemptFault) as caught:
        world.site.fetch(*targets)
    assert caught.value.reason is reason
    if reason is Reason.INTEGRITY_MISMATCH:
        assert not (world.site.tree / "weights/model #1.safetensors").exists()
    world.hub.faults.clear()
    world.site.fetch(*targets)
    assert arrived(world)


def test_overrun_is_cut(world: World) -> None:
    """A body that goes on past what was asked for does not spoil what follows."""
    targets = world.targets()
    world.hub.faults.add(Overrun(), path="*.safetensors")
    world.site.fetch(*targets)
    assert arrived(world)


def test_rotated_token_reaches_a_running_attempt(world: World) -> None:
    """After the old token is gone, the next request carries the new one."""
    targets = world.targets()
    world.hub.remove_token("hf_canary")
    world.hub.add_token("hf_rotated", "ann")
    with pytest.raises(AttemptFault, match="HTTP 401"):
        world.site.fetch(*targets)
    world.token = Token("hf_rotated")
    world.site.fetch(*targets)
    assert arrived(world)


@pytest.mark.parametrize(
    ("repository", "revision", "expected"),
    [
        ("org/none", "main", Verdict.ACCESS_DENIED),
        ("org/model", "no-such-branch", Verdict.REVISION_NOT_FOUND),
    ],
)
def test_hub_refuses_as_documented(
    world: World, repository: str, revision: str, expected: Verdict
) -> None:
    """Missing repositories look like private ones; a missing branch is named."""
    with pytest.raises(HubFault) as caught:
        world.adapter.resolve(repository, revision, world.token)
    assert caught.value.verdict is expected


def test_probe_and_token_check(world: World) -> None:
    """The access probe passes for readers alone, and tokens are told apart."""
    commit = world.adapter.resolve("org/model", "main", world.token)
    world.adapter.probe("org/model", commit, world.token)
    assert world.adapter.accepts(world.token)
    assert not world.adapter.accepts(Token("hf_unknown"))
    with pytest.raises(HubFault):
        world.adapter.probe("org/model", commit, None)


def test_modelscope_repository_arrives(tmp_path: Path) -> None:
    """The other hub's branch, listing and files, the same engine."""
    site = Site(tmp_path, "")
    with ModelScopeHub(clock=site.clock) as hub:
        hub.add_repository("org/model", FILES)
        adapter: Hub = ModelScope(hub.url, site.http)
        commit = adapter.resolve("org/model", "master", None)
        entries = adapter.list_tree("org/model", commit, None)
        adapter.probe("org/model", commit, None)
        site.fetch(
            *(
                Target(e, adapter.file_url("org/model", commit, e.path), site.tree / e.path)
                for e in entries
            )
        )
    site.close()
    assert {path: site.content(path) for path in FILES} == FILES
