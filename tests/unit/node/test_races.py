"""Mounts, unmounts, collections and restarts at once: what must hold at every moment.

a mounted target shows the tree of its digest, whole, for as long as it is mounted
a target carries at most one mount
after everything ended, references are exactly the mounts, and the trash is empty
"""

from __future__ import annotations

import random
import threading

import pytest

from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage

MODELS = 3
PODS = 4
STEPS = 12


class Pod(threading.Thread):
    """Mounts a model, reads it, unmounts it, again and again; keeps what went wrong."""

    def __init__(self, stage: Stage, name: str, digests: list[str], seed: int) -> None:
        super().__init__(name=name)
        self.stage = stage
        self.digests = digests
        self.random = random.Random(seed)  # noqa: S311 - a repeatable choice
        self.wrong: list[str] = []

    def run(self) -> None:
        """Live."""
        for _ in range(STEPS):
            number = self.random.randrange(len(self.digests))
            digest, model = self.digests[number], f"m{number}"
            for _ in range(200):
                code, message = self.stage.publish(digest, self.name, name=model)
                if code == "OK":
                    self.read(digest, model)
                    break
                if code not in ("ABORTED", "UNAVAILABLE"):
                    self.wrong.append(f"{code}: {message}")
            if self.stage.unpublish(self.name)[0] != "OK":
                self.wrong.append("unpublish failed")

    def read(self, digest: str, model: str) -> None:
        """Look through the mount as a container would."""
        mounts = self.stage.mounts.at(self.stage.target(self.name))
        if len(mounts) != 1:
            self.wrong.append(f"{len(mounts)} mounts")
        content = (self.stage.tree(digest) / "weights").read_bytes()
        if content != model.encode() * 2048:
            self.wrong.append(f"{model} is not whole")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_interleaving_breaks_an_invariant(stage: Stage, seed: int) -> None:
    """Every collection would like to remove everything, and time jumps past every grace."""
    stage.disk.total_bytes = 100_000
    stage.disk.used_bytes = 50_000
    stage.disk.devices = {stage.cache: "8:2"}
    stage.mounts.device = "8:2"
    stage.configure(watermarks={"highPercent": 90, "lowPercent": 1})
    digests = [
        stage.artifact(f"m{n}", repository=f"org/m{n}", files={"weights": f"m{n}".encode() * 2048})
        for n in range(MODELS)
    ]
    # A disk that takes its time opens every window between a look and an act.
    stage.disk.fail_sync = lambda path: threading.Event().wait(0.002) and False
    stage.start()
    pods = [Pod(stage, f"u{n}", digests, seed * 10 + n) for n in range(PODS)]
    for pod in pods:
        pod.start()
    chance = random.Random(seed)  # noqa: S311 - likewise
    while any(pod.is_alive() for pod in pods):
        assert stage.plugin is not None
        stage.disk.used_bytes = chance.choice([50_000, 95_000])
        stage.clock.advance(chance.choice([1, 30, 700]))
        stage.plugin._collector.collect()
    for pod in pods:
        pod.join()
        assert pod.wrong == []
    assert not stage.mounts.mounts
    assert stage.plugin is not None
    assert stage.plugin._store.references.digests() == frozenset()
    stage.stop()
    stage.start()
    assert not list((stage.cache / "ledger" / "refs").iterdir())
    assert not list((stage.cache / "trash").iterdir())


def test_restarts_lose_no_mount_and_no_reference(stage: Stage) -> None:
    """Twenty restarts under Pods that stay mounted; the table does not grow."""
    digest = stage.artifact()
    stage.start()
    for number in range(5):
        stage.mounted(digest, f"u{number}")
    for _ in range(20):
        stage.stop()
        stage.start()
        assert stage.publish(digest, "u0") == ("OK", "")
        assert len(stage.mounts.mounts) == 5
    eventually(lambda: stage.model(digest).get("referenced"))
    assert len(list((stage.cache / "ledger" / "refs").iterdir())) == 5
