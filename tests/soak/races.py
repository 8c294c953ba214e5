"""Many Pods at once, while plugins die, trees are collected and lonely downloads are given up.

The filesystem holds fewer models than there are, so that every download makes room first; Pods lose
patience by chance, so that attempts are cancelled; the conductor kills the plugin again and again.
Each Pod looks through its own mount, twice; while no plugin lives everything is looked at; and in
the end nothing is left.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpustack_delivery.csi_wire import csi_pb2
from tests.soak.scene import Scene, publication
from tests.soak.world import Model, World

MODELS: Final = 5
PODS: Final = 3
_PATIENCE: Final = 100
_BREATH_SECONDS: Final = 0.05


class Turns:
    """Lets Pods call a plugin, and holds them back while there is none, or for good."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._calling = 0
        self._closed = False
        self._lost = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Be one of those who call.

        Raises:
            AssertionError: no plugin will answer any more.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._lost or not self._closed)
            assert not self._lost, "another invariant broke"
            self._calling += 1
        try:
            yield
        finally:
            with self._moved:
                self._calling -= 1
                self._moved.notify_all()

    def close(self) -> None:
        """Let no further call begin."""
        with self._moved:
            self._closed = True

    def wait(self) -> None:
        """Wait until no call is under way."""
        with self._moved:
            self._moved.wait_for(lambda: not self._calling)

    def lose(self) -> None:
        """Let no call begin ever again."""
        with self._moved:
            self._lost = True
            self._moved.notify_all()

    def open(self) -> None:
        """Let calls begin."""
        with self._moved:
            self._closed = False
            self._moved.notify_all()


class Pod(threading.Thread):
    """Mounts a model, looks at it, unmounts it; again and again, sometimes losing patience."""

    def __init__(
        self, scene: Scene, turns: Turns, name: str, over: Callable[[], bool], seed: int
    ) -> None:
        super().__init__(name=name)
        self._scene = scene
        self._turns = turns
        self._target = scene.target(name)
        self._over = over
        self._chance = random.Random(seed)  # noqa: S311 - repeatable
        self.mounted = 0
        self.broken: AssertionError | None = None

    def run(self) -> None:
        """Live until it is over or an invariant broke."""
        models = self._scene.look.models
        try:
            while not self._over():
                self._once(models[self._chance.choice(sorted(models))])
        except AssertionError as error:
            self.broken = error
        except Exception as error:  # noqa: BLE001 - a Pod that ends early must not pass unnoticed
            self.broken = AssertionError(f"{self.name} ended with {error!r}")

    def _once(self, model: Model) -> None:
        patience = self._chance.choice([1, 3, _PATIENCE, _PATIENCE])
        if self._mount(model, patience):
            self.mounted += 1
            for _ in range(2):
                shown = self._scene.look.shown(self._target)
                assert shown == model.digest, f"{model.name} is not whole: it shows {shown}"
                self._scene.look.mount(self._target)
                self._rest()
        request = csi_pb2.NodeUnpublishVolumeRequest(
            volume_id=self.name, target_path=str(self._target)
        )
        while self._call("NodeUnpublishVolume", request) != "OK":
            self._rest()
        assert self._scene.look.shown(self._target) is None

    def _mount(self, model: Model, patience: int) -> bool:
        for _ in range(patience):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            request = publication(model, self.name, self._target)
            if self._call("NodePublishVolume", request) == "OK":
                return True
            self._rest()
        return False

    def _call(self, method: str, request: object) -> str:
        with self._turns.call():
            return self._scene.call(method, request)

    def _rest(self) -> None:
        threading.Event().wait(self._chance.uniform(0, 2 * _BREATH_SECONDS))


def race(over: Callable[[], bool], chance: random.Random, mutant: str = "") -> str:
    """Run until it is over; return what was survived.

    Args:
        over: says when.
        mutant: see `Scene`.

    Raises:
        AssertionError: an invariant broke.
    """
    world = World(models=MODELS, high=40, low=20, bytes_per_second=1 << 20)
    with world, Scene(world, mutant=mutant) as scene:
        scene.reset([])
        turns, ended = Turns(), threading.Event()
        pods = [
            Pod(scene, turns, f"p{n}", lambda: over() or ended.is_set(), chance.randrange(1 << 32))
            for n in range(PODS)
        ]
        for pod in pods:
            pod.start()
        try:
            deaths = _conduct(scene, turns, pods, over, chance)
        except BaseException:
            turns.lose()  # the plugin is dead, and Pods would ask it for ever
            raise
        finally:
            ended.set()
            for pod in pods:
                pod.join()
        for pod in pods:
            if pod.broken is not None:
                raise pod.broken
        assert not scene.look.used()
        scene.restart()
        scene.finish()
        mounts = sum(pod.mounted for pod in pods)
        log = scene.log.read_text(errors="replace")
        collected, cancelled = log.count("collected: digest="), log.count("reason=Canceled")
        return (
            f"{mounts} mounts, {deaths} kills, {collected} collections, {cancelled} cancellations"
        )


def _conduct(
    scene: Scene, turns: Turns, pods: list[Pod], over: Callable[[], bool], chance: random.Random
) -> int:
    deaths = 0
    while not over() and not any(pod.broken for pod in pods):
        threading.Event().wait(chance.uniform(0.1, 4.0))
        turns.close()
        scene.kill()
        turns.wait()
        scene.restart()
        deaths += 1
        turns.open()
    return deaths
