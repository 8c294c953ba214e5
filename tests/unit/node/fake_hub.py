"""A hub in memory for the stage: it lists, and it downloads from itself through a gate."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence

from gpustack_delivery.errors import AttemptFault, ConfigurationFault, HubFault, Reason
from gpustack_delivery.node.downloading import Cancellation, Target
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Entry, Manifest


def manifest_of(files: dict[str, bytes]) -> Manifest:
    """Return the manifest of some files, all as LFS."""
    return Manifest.of(
        Entry(path, len(content), "sha256:" + hashlib.sha256(content).hexdigest())
        for path, content in files.items()
    )


class FakeHub:
    """A hub in memory: satisfies `ports.Hub`, and downloads from itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.listing_fault: HubFault | None = None
        self.fetch_fault: AttemptFault | None = None
        self.fault_of_token: Callable[[Token | None], HubFault | None] = lambda token: None
        self.listed: list[tuple[str, str, Token | None]] = []
        self.fetched: list[str] = []
        self.tokens: list[Token | None] = []
        self.fetching = 0
        self.held_bytes = 0
        self.closed = 0

    def hub(self, kind: HubKind) -> FakeHub:
        """Return ourselves, for Hugging Face."""
        if kind is not HubKind.HUGGING_FACE:
            raise ConfigurationFault("no such hub here")
        return self

    def list_tree(self, repository: str, commit: str, token: Token | None) -> tuple[Entry, ...]:
        """List a repository's files."""
        self.listed.append((repository, commit, token))
        fault = self.listing_fault or self.fault_of_token(token)
        if fault is not None:
            raise fault
        return manifest_of(self.repositories[repository]).entries

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """Return a URL that `fetch` understands."""
        return f"hub://{repository}/{path}"

    def resolve(self, repository: str, revision: str, token: Token | None) -> str:
        """Refuse: the node never resolves."""
        raise NotImplementedError

    def probe(self, repository: str, commit: str, token: Token | None) -> None:
        """Refuse: the node never probes."""
        raise NotImplementedError

    def accepts(self, token: Token) -> bool:
        """Refuse: the node never asks."""
        raise NotImplementedError

    def fetch(
        self,
        targets: Sequence[Target],
        workspace: Workspace,
        *,
        credential: Callable[[], Token | None],
        cancellation: Cancellation,
        received: Callable[[int], None],
    ) -> None:
        """Write every file, once the gate is open; half of the bytes arrive before it."""
        with self.lock:
            self.fetching += 1
        stopped = threading.Event()
        try:
            for target in targets:
                repository, _, path = target.url.removeprefix("hub://").partition("/")
                owner, _, path = path.partition("/")
                content = self.repositories[f"{repository}/{owner}"][path]
                half = len(content) // 2
                target.destination.parent.mkdir(parents=True, exist_ok=True)
                target.destination.write_bytes(content[:half])
                workspace.grew(half)
                if half:
                    received(half)
                with cancellation.attached(stopped.set):
                    while not (self.gate.is_set() or stopped.is_set()):
                        stopped.wait(0.01)
                if cancellation.requested:
                    raise AttemptFault(Reason.CANCELED)
                if self.fetch_fault is not None:
                    raise self.fetch_fault
                self.tokens.append(credential())
                target.destination.write_bytes(content)
                workspace.grew(len(content) - half)
                self.fetched.append(path)
                if len(content) - half:
                    received(len(content) - half)
        finally:
            with self.lock:
                self.fetching -= 1


class FakeRoute:
    """One way to the fake hub; counts its closing there."""

    def __init__(self, hub: FakeHub) -> None:
        self._hub = hub
        self.hub = hub.hub
        self.fetch = hub.fetch

    def close(self) -> None:
        """Count the closing."""
        self._hub.closed += 1
