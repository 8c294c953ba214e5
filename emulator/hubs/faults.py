"""Which requests go wrong, and how often.

    hub.faults.add(Status(503), at="resolve", path="*.safetensors", times=2)
    hub.faults.add(Flip(offset=70_000_000), path="model-00001*")
    hub.faults.add(Status(500), at="tree", skip=2, times=1)          # the third page fails

A rule strikes the requests that are about its place and path; the first rule that matches
decides. A fault with an offset strikes only answers that carry that byte of the file, so it does
not matter how a client cuts a file into ranges. The ways of going wrong are in `wrong_answers`
and `broken_bodies`.
"""

from __future__ import annotations

import fnmatch
import threading
from dataclasses import dataclass, field
from typing import Protocol

from emulator.contracts import Clock
from emulator.hubs.gate import Gate
from emulator.hubs.replies import Reply, Subject
from gpustack_delivery.httpd import Request, Response


@dataclass(frozen=True, slots=True)
class Strike:
    """One request that a fault strikes."""

    request: Request
    reply: Reply
    gate: Gate


class Fault(Protocol):
    """A way of going wrong."""

    def strikes(self, request: Request, reply: Reply) -> bool:
        """Say whether this answer can go wrong this way."""

    def spoil(self, strike: Strike) -> Response:
        """Return what is sent instead."""


@dataclass(eq=False)
class Rule:
    """A fault and the requests it strikes; `hits` counts those it struck."""

    fault: Fault
    at: str
    path: str
    method: str
    times: int | None
    skip: int
    hits: int = field(default=0, init=False)


class Faults:
    """The rules of one hub. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self.gate = Gate(clock)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(
        self,
        fault: Fault,
        *,
        at: str = "bytes",
        path: str = "*",
        method: str = "*",
        times: int | None = None,
        skip: int = 0,
    ) -> Rule:
        """Add a rule and return it.

        Args:
            at: a place that `replies.Subject` names, or `any`.
            path: a pattern for the file's path within its repository.
            times: how many requests it strikes; None for all.
            skip: how many matching requests it lets pass first.
        """
        rule = Rule(fault, at, path, method, times, skip)
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Take a rule away."""
        with self._lock:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Take all rules away and let go what they hold up."""
        with self._lock:
            self._rules.clear()
        self.gate.open()

    def release(self) -> None:
        """Let every answer that is stalled or delayed now go on."""
        self.gate.open()

    def respond(self, request: Request, subject: Subject, reply: Reply) -> Response:
        """Return a reply as it is sent: spoiled by the first rule that strikes, or as it is."""
        rule = self._pick(request, subject, reply)
        if rule is None:
            return reply.response()
        return rule.fault.spoil(Strike(request, reply, self.gate))

    def _pick(self, request: Request, subject: Subject, reply: Reply) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if (
                    (rule.at == "any" or rule.at in subject.places)
                    and fnmatch.fnmatchcase(subject.path, rule.path)
                    and fnmatch.fnmatchcase(request.method, rule.method)
                    and rule.times != 0
                    and rule.fault.strikes(request, reply)
                ):
                    if rule.skip > 0:
                        rule.skip -= 1
                        continue
                    rule.times = None if rule.times is None else rule.times - 1
                    rule.hits += 1
                    return rule
        return None
