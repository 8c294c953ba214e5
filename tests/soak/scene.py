"""A node under attack: the plugin as a process with kernel mounts, and kubelet's part played here.

`Scene` asks the plugin's socket again until it is served, as kubelet does; when the plugin has died
it looks at everything (`checks`), lets a power cut do its harm if one is wanted, starts the next
plugin with the next plan, and looks again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import grpc

from gpustack_delivery.adapters.host import KernelMounts
from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc
from tests.soak.checks import Look
from tests.soak.steps import Plan
from tests.soak.world import NAMESPACE, NODE, Model, World
from tests.unit.fakes import eventually

ROOT: Final = Path(__file__).parents[2]
NOWHERE: Final = Plan()
_EXPECTED: Final = {"OK", "ABORTED", "UNAVAILABLE", "INTERNAL"}


class Scene:
    """One node from `with` to its end; needs the right to mount.

    Args:
        world: the API and the hub around it.
        power: what a death does to the cache beyond a kill, given the cache and the journal of what
            was made durable; None for a kill alone.
        mutant: how the plugin is broken, a name of `mutants`; "" for not at all.
    """

    def __init__(
        self,
        world: World,
        power: Callable[[Path, Path], None] | None = None,
        mutant: str = "",
    ) -> None:
        self._world = world
        self._power = power
        self._mutant = mutant
        self._stack = ExitStack()
        self._plans: list[Plan] = []
        self._limit = 0
        self._served: set[str] = set()
        self._unwanted: set[str] = set()
        self._lives = 0
        self.deaths = 0
        self.died_at: set[str] = set()
        self.alive = False
        self.pid = 0

    def __enter__(self) -> Self:
        """Make the node; no plugin runs yet."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
            self.kubelet, self.cache = folder / "kubelet", folder / "cache"
            self.journal, self.traces, self.log = folder / "j", folder / "traces", folder / "log"
            for path in (self.kubelet / "pods", self.cache, self.journal, self.traces):
                path.mkdir(parents=True)
            unshare = ["unshare", "--mount", "--propagation", "private", sys.executable]
            where = ["-m", "tests.soak.launcher", str(self.kubelet), str(self.cache)]
            process = subprocess.Popen(  # noqa: S603 - our own module
                [*unshare, *where], cwd=ROOT, stdin=-1, stdout=-1, text=True
            )
            self._launcher = stack.enter_context(process)
            stack.callback(self.kill)
            self._order("poll")
            table = KernelMounts(Path(f"/proc/{process.pid}/mountinfo"))
            root = Path(f"/proc/{process.pid}/root")
            self.look = Look(root, self.kubelet, self.cache, table, world_models(self._world))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, and with them every mount."""
        self._stack.close()

    def reset(self, plans: Iterable[Plan]) -> None:
        """Make the node new, and say where its plugins will die, one after another."""
        self.kill()
        self._order("unmount")
        self._order("clear")
        for path in (*self.journal.iterdir(), *self.traces.iterdir()):
            path.unlink()
        self._lives = 0
        self._plans = list(plans)
        self._served.clear()
        self._unwanted.clear()
        self._world.forget_requests()
        self._limit = self.look.missing_bytes()
        self._start()

    def mount(self, model: Model, pod: str) -> None:
        """Publish until it is served, through every death on the way."""
        target = self.target(pod)

        def served() -> bool:
            target.parent.mkdir(parents=True, exist_ok=True)
            return self.call("NodePublishVolume", publication(model, pod, target)) == "OK"

        self._until(served, f"a mount of {model.name}")
        self._served.add(model.digest)
        assert self.look.shown(target) == model.digest, f"{pod} does not show {model.name}"
        self.look.mount(target)

    def unmount(self, pod: str) -> None:
        """Unpublish until it is done."""
        target = self.target(pod)
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=pod, target_path=str(target))
        self._until(lambda: self.call("NodeUnpublishVolume", request) == "OK", "an unmount")
        assert self.look.shown(target) is None

    def target(self, pod: str) -> Path:
        """Return a Pod's target."""
        return self.kubelet / "pods" / pod / "volumes" / "kubernetes.io~csi" / "model" / "mount"

    def damage(self, model: Model) -> None:
        """Change a file's mode in a published tree that nobody uses."""
        self._survive()
        if model.digest in self.look.published():
            self.look.damage(model.hex)
            self._served.discard(model.digest)
            self._limit += model.size_bytes

    def give_up(self, model: Model) -> None:
        """Let a model be collected: no Pod will ask for it again."""
        self._served.discard(model.digest)
        self._unwanted.add(model.digest)

    def finish(self) -> None:
        """Look at everything a last time."""
        look, reports = self.look, self._world.reports
        self._until(lambda: reports(look.published(), look.used()), "a true report")
        self.look.mounts()
        self.look.references()
        self._account()

    def restart(self) -> None:
        """Kill the plugin, look at what it left, and start another."""
        self.kill()
        self._world.forget_requests()
        self.look.mounts()
        self._limit = self.look.missing_bytes(self._unwanted)
        self._start()

    def lives(self) -> list[list[str]]:
        """Return the steps of each plugin since `reset`, in order."""
        return [self._trace(life).read_text().splitlines() for life in range(1, self._lives + 1)]

    def steps(self) -> list[str]:
        """Return the steps of all plugins since `reset`, in order."""
        return [step for life in self.lives() for step in life]

    def kill(self) -> None:
        """Kill the plugin if there is one, and wait for its end."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        eventually(lambda: not self._order("poll")["running"], "the end of a plugin")
        self.alive = False

    def call(self, method: str, request: object) -> str:
        """Call the plugin once; return the name of its answer's code."""
        with grpc.insecure_channel(f"unix:{self.kubelet}/csi.sock") as channel:
            try:
                getattr(csi_pb2_grpc.NodeStub(channel), method)(request, timeout=60)
            except grpc.RpcError as error:
                code, said = error.code().name, error.details()
            else:
                code, said = "OK", ""
        assert code in _EXPECTED, f"{method}: {code} {said}"
        return str(code)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        def stepped() -> bool:
            self._survive()
            return done()

        eventually(stepped, lambda: f"{what}\n{self._tail()}")

    def _survive(self) -> None:
        """If the plugin has died, look at what it left and start the next one."""
        while not (found := self._order("poll"))["running"]:
            killed = found["status"] in {signal.SIGKILL, signal.SIGALRM}
            assert killed, f"the plugin ended by itself: {found['status']}\n{self._tail()}"
            self.alive = False
            self.deaths += 1
            if found["status"] == signal.SIGKILL:
                self.died_at.update(self.lives()[-1][-1:])
            self._account()
            self._world.forget_requests()
            if self._power is not None:
                self._order("unmount")
                self._power(self.look.root / self.cache.relative_to("/"), self.journal)
            self.look.mounts()
            lost = self._served - self.look.published()
            assert not lost, f"mounted before this death, and not published after it: {lost}"
            if self._power is not None:
                self._served.clear()  # their mounts are gone, and they may be collected
            self._limit = self.look.missing_bytes(self._unwanted)
            self._start()

    def _start(self) -> None:
        plan = self._plans.pop(0) if self._plans else NOWHERE
        flags = {
            "node-name": NODE,
            "namespace": "gpustack-system",
            "kubelet-dir": self.kubelet,
            "cache-root": self.cache,
            "csi-socket": self.kubelet / "csi.sock",
            "host": "127.0.0.1",
            "secure-port": "0",
            "kubeconfig": self._world.kubeconfig,
        }
        (self.kubelet / "csi.sock").unlink(missing_ok=True)
        self._lives += 1
        answer = self._order(
            "start",
            step=plan.step,
            occurrence=plan.occurrence,
            seconds=plan.seconds,
            arguments=[f"--{name}={value}" for name, value in flags.items()],
            trace=str(self._trace(self._lives)),
            mutant=self._mutant,
            log=str(self.log),
            journal=str(self.journal) if self._power is not None else "",
        )
        self.pid, self.alive = answer["pid"], True
        up = (self.kubelet / "csi.sock").exists
        eventually(lambda: up() or not self._order("poll")["running"], "the plugin's socket")
        if up():
            self.look.recovered()

    def _account(self) -> None:
        asked = self._world.asked_bytes()
        assert asked <= self._limit, f"asked for {asked} bytes where {self._limit} were missing"

    def _order(self, do: str, **more: object) -> dict[str, Any]:
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.write(json.dumps({"do": do} | more) + "\n")
        self._launcher.stdin.flush()
        answer: dict[str, Any] = json.loads(self._launcher.stdout.readline())
        return answer

    def _trace(self, life: int) -> Path:
        return self.traces / str(life)

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def world_models(world: World) -> dict[str, Model]:
    """Return a world's models by the name of their directories."""
    return {model.hex: model for model in world.models}


def publication(model: Model, pod: str, target: Path) -> object:
    """Return kubelet's request for a Pod's volume."""
    return csi_pb2.NodePublishVolumeRequest(
        volume_id=pod,
        target_path=str(target),
        volume_capability=csi_pb2.VolumeCapability(mount=csi_pb2.VolumeCapability.MountVolume()),
        readonly=True,
        volume_context={
            "artifact": model.name,
            "artifactUID": model.uid,
            "manifestDigest": model.digest,
            "csi.storage.k8s.io/pod.namespace": NAMESPACE,
            "csi.storage.k8s.io/pod.name": pod,
            "csi.storage.k8s.io/pod.uid": pod,
            "csi.storage.k8s.io/ephemeral": "true",
        },
    )
