"""A hub in memory, for what the worker asks of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpustack_delivery.errors import HubFault, Verdict
from gpustack_delivery.ports import Hub
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Entry
from gpustack_delivery.vocabulary.node_store import HubAccess

COMMIT = "c" * 40


class FakeHub:
    """A hub in memory whose answers a test plans, and whose calls it reads."""

    def __init__(self, files: Mapping[str, bytes | int] | None = None) -> None:
        self.entries = [
            Entry(path, size if isinstance(size, int) else len(size), "gitsha1:" + "0" * 40)
            for path, size in (files or {"config.json": 2, "weights.bin": 98}).items()
        ]
        self.fault: HubFault | None = None
        self.probe_fault: HubFault | None = None
        self.accepted = True
        self.calls: list[str] = []
        self.tokens: list[Token | None] = []
        self.opened: list[tuple[HubKind, HubAccess, str]] = []

    @contextmanager
    def open(self, kind: HubKind, access: HubAccess, ca_pem: str) -> Iterator[Hub]:
        """Open it, as `hubs.OpenHub`."""
        self.opened.append((kind, access, ca_pem))
        yield self

    def down(self) -> None:
        """Answer nothing from now on."""
        self.fault = HubFault(Verdict.SOURCE_UNAVAILABLE, "HTTP 503")

    def resolve(self, repository: str, revision: str, token: Token | None) -> str:
        """Resolve a revision."""
        self._called(f"resolve {repository}@{revision}", token)
        return COMMIT

    def list_tree(self, repository: str, commit: str, token: Token | None) -> tuple[Entry, ...]:
        """List a commit."""
        self._called(f"list {repository}@{commit[:4]}", token)
        return tuple(self.entries)

    def probe(self, repository: str, commit: str, token: Token | None) -> None:
        """Check access."""
        self._called(f"probe {repository}@{commit[:4]}", token)
        if self.probe_fault is not None:
            raise self.probe_fault

    def accepts(self, token: Token) -> bool:
        """Check a token."""
        self._called("accepts", token)
        return self.accepted

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """Refuse: the worker downloads nothing."""
        raise NotImplementedError

    def _called(self, call: str, token: Token | None) -> None:
        self.calls.append(call)
        self.tokens.append(token)
        if self.fault is not None:
            raise self.fault
