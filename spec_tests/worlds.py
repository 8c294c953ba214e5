"""How a world is built, and what a target gives it to stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.targets import RunningPlugin

TINY: Final = Tree(
    (
        File("config.json", b'{"hidden_size": 8}\n', lfs=False),
        File("README.md", b"# tiny\n", lfs=False),
        File("model.safetensors", pseudo_random(300_000, seed=1), lfs=True),
        File("tokenizer/vocab.txt", pseudo_random(5_000, seed=2), lfs=False),
    )
)
"""The repository that a test gets when it does not care which."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a world is built.

    `worker` starts the implementation's worker; without it the suite stands in. `plugins` starts a
    plugin on every node. `peer_port` is where plugins serve each other, 0 for no node-to-node sync.
    `seeds` stand in the worker's environment. `unserved` names reviews of the group
    authentication.k8s.io that the API server does not know.
    """

    nodes: tuple[str, ...] = ("node-a",)
    worker: bool = False
    plugins: bool = True
    kubernetes: str = "1.30"
    kernel_mounts: bool = False
    peer_port: int = 0
    peer_streams: int = 8
    seeds: Mapping[str, str] = field(default_factory=dict)
    unserved: tuple[str, ...] = ()


class Log(Protocol):
    """What the implementation wrote while the world stood."""

    @property
    def lines(self) -> list[str]:
        """Return all lines."""

    @property
    def text(self) -> str:
        """Return all of it."""


class Seat(Protocol):
    """What a target gives a world to stand on."""

    cluster: Any
    hub: Any
    log: Log
    clock: Any
    plugin_user: str
    worker_user: str

    def advance(self, seconds: float) -> None:
        """Move the clock and let everything come to rest."""

    def add_node(self, name: str) -> Any:
        """Add an emulated node."""

    def start_plugin(self, node: Any) -> RunningPlugin:
        """Start the plugin of an emulated node."""

    def kill_plugin(self, node: Any, plugin: Any) -> None:
        """End a plugin as SIGKILL does."""

    def second_hub(self) -> Any:
        """Add another hub, for what must not reach it."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on the emulated hub, its commit, and the tree the oracle knows it to hold."""

    name: str
    commit: str
    tree: Tree
    hub: Any
    token: str = field(default="", repr=False)
