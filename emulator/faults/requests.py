"""Which requests to the API server go wrong, how often, and what becomes of open watches.

    rule = cluster.faults.add(Conflict(), verb="update", resource="nodemodelstores/status", times=3)
    ...
    assert rule.hits == 3

The first rule that matches decides. Only requests over HTTP are struck: kubelets, the scheduler and
`cluster.client` talk to the API in this process, and stay reliable.
"""

from __future__ import annotations

import fnmatch
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from emulator.contracts import Clock
from emulator.faults.effects import Effect
from emulator.hubs.gate import Gate
from emulator.routes import Route, parse
from gpustack_delivery.httpd import Request, Response

WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))


@dataclass(eq=False)
class RequestRule:
    """A fault and the requests it strikes; `hits` counts those it struck.

    `verb` is an API verb, `write` for any that writes, or `*`; the others are patterns. A resource
    is a plural, with its subresource after a slash.
    """

    effect: Effect
    verb: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"
    user: str = "*"
    times: int | None = None
    skip: int = 0
    hits: int = field(default=0, init=False)

    def fits(self, route: Route, who: Callable[[], str]) -> bool:
        """Say whether the rule is about a request."""
        if self.times == 0 or self.verb not in {"*", route.verb, "write"}:
            return False
        if self.verb == "write" and route.verb not in WRITES:
            return False
        resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
        return (
            fnmatch.fnmatchcase(resource, self.resource)
            and fnmatch.fnmatchcase(route.namespace, self.namespace)
            and fnmatch.fnmatchcase(route.name, self.name)
            and (self.user == "*" or fnmatch.fnmatchcase(who(), self.user))
        )


class RequestFaults:
    """The rules of one API server, and its open watches. Thread-safe."""

    def __init__(self, clock: Clock, who: Callable[[Request], str]) -> None:
        """`who` returns the name of the user that sent a request, "" for one that has no right."""
        self.gate = Gate(clock)
        self._who = who
        self._lock = threading.Lock()
        self._rules: list[RequestRule] = []
        self._watches: weakref.WeakSet[_Watched] = weakref.WeakSet()

    def add(self, rule: RequestRule) -> RequestRule:
        """Add a rule behind the others, and return it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: RequestRule) -> None:
        """Take a rule away."""
        with self._lock:
            self._rules.remove(rule)

    def rules(self) -> list[RequestRule]:
        """Return the rules in order."""
        with self._lock:
            return list(self._rules)

    def clear(self) -> None:
        """Take all rules away, and let go what they hold up; silenced watches end."""
        with self._lock:
            self._rules.clear()
        self.gate.open()
        for watch in self._open("*"):
            if watch.silenced:
                watch.end()

    def drop_watches(self, resource: str = "*", *, reset: bool = False) -> int:
        """End the open watches on a resource; with `reset` the connections break instead."""
        dropped = self._open(resource)
        for watch in dropped:
            watch.end(reset=reset)
        return len(dropped)

    def silence_watches(self, resource: str = "*") -> int:
        """Let the open watches on a resource tell nothing more, though they stay open.

        That is what a client sees of a connection that died without a word.
        """
        silenced = self._open(resource)
        for watch in silenced:
            watch.silenced = True
        return len(silenced)

    def respond(self, request: Request, handle: Callable[[Request], Response]) -> Response:
        """Return the answer to a request: spoiled by the first rule that fits, or as it is."""
        if not self._rules:  # the usual case costs nothing
            response = handle(request)
            return self._kept(response, _route(request)) if response.live else response
        route = _route(request)
        rule = self._pick(request, route)
        if rule is None:
            response = handle(request)
        else:
            response = rule.effect.strike(route, lambda: handle(request), self.gate)
        return self._kept(response, route) if response.live else response

    def _kept(self, response: Response, route: Route) -> Response:
        """Put a watch under control."""
        watched = _Watched(response.body, route.plural, self.gate)
        with self._lock:
            self._watches.add(watched)
        response.body = watched
        return response

    def _pick(self, request: Request, route: Route) -> RequestRule | None:
        with self._lock:
            for rule in self._rules:
                if not rule.fits(route, lambda: self._who(request)):
                    continue
                if rule.skip > 0:
                    rule.skip -= 1
                    continue
                rule.times = None if rule.times is None else rule.times - 1
                rule.hits += 1
                return rule
        return None

    def open_watches(self) -> Counter[str]:
        """Return how many watches are open, by resource."""
        return Counter(watch.resource for watch in self._open("*"))

    def _open(self, resource: str) -> list[_Watched]:
        with self._lock:
            watches = list(self._watches)
        fitting = [one for one in watches if fnmatch.fnmatchcase(one.resource, resource)]
        return [one for one in fitting if not one.closed]


def _route(request: Request) -> Route:
    return parse(request.method, request.path, request.query)


class _Watched:
    """The body of a watch, which can be silenced and ended from outside."""

    def __init__(self, body: Any, resource: str, gate: Gate) -> None:
        self.resource = resource
        self.silenced = False
        self.closed = False
        self._body = body
        self._gate = gate
        self._reset = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            line: bytes = next(self._body)
            while self.silenced:
                line = next(self._body)
        except StopIteration:
            if self.silenced:  # not even its end is heard of
                self._gate.wait(None, lambda: self.closed)
            if self._reset:
                raise ConnectionResetError from None
            raise
        return line

    def end(self, *, reset: bool = False) -> None:
        """End the watch from the server's side."""
        self.silenced, self._reset = False, reset
        self.close()

    def close(self) -> None:
        """End the watch; safe from any thread, and twice."""
        self.closed = True
        self._body.close()
        self._gate.wake()
