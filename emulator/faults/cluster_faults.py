"""What can be done to a cluster as a whole: its API server, its history, tokens and Services."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.api import Api
from emulator.faults.effects import Effect
from emulator.faults.requests import RequestFaults, RequestRule
from emulator.services import Routes


@dataclass(frozen=True, slots=True)
class Levers:
    """What of a cluster its faults move."""

    api: Api
    routes: Routes
    requests: RequestFaults
    stop_server: Callable[[], None]
    start_server: Callable[[], object]
    revoke: Callable[[str], None]  # a token
    renew: Callable[[Path], None]  # a kubeconfig


class ClusterFaults:
    """Faults of one cluster; `clear` takes all of them away. Thread-safe."""

    def __init__(self, levers: Levers) -> None:
        self._levers = levers
        self._cut: dict[tuple[str, str], tuple[tuple[str, int], socket.socket]] = {}

    # requests to the API server

    def add(self, effect: Effect, **selection: Any) -> RequestRule:
        """Let requests go wrong; see `RequestRule` for what selects them. Returns the rule."""
        return self._levers.requests.add(RequestRule(effect, **selection))

    def remove(self, rule: RequestRule) -> None:
        """Take a rule away."""
        self._levers.requests.remove(rule)

    def rules(self) -> list[RequestRule]:
        """Return the rules for requests, in order."""
        return self._levers.requests.rules()

    @property
    def waiting(self) -> int:
        """How many requests are held up now."""
        return self._levers.requests.gate.waiting

    def release(self) -> None:
        """Let every request that is held up now go on."""
        self._levers.requests.gate.open()

    # the API server

    def stop_api_server(self) -> None:
        """Refuse connections and break those that are open; what is stored stays."""
        self._levers.stop_server()

    def start_api_server(self) -> None:
        """Serve again, at the same address."""
        self._levers.start_server()

    def restart_api_server(self) -> None:
        """Stop and start: every watch breaks, and clients have to connect again."""
        self.stop_api_server()
        self.start_api_server()

    def drop_watches(self, resource: str = "*", *, reset: bool = False) -> int:
        """End open watches, with `reset` by breaking their connections; return how many."""
        return self._levers.requests.drop_watches(resource, reset=reset)

    def silence_watches(self, resource: str = "*") -> int:
        """Let open watches tell nothing more, though they stay open; return how many."""
        return self._levers.requests.silence_watches(resource)

    def open_watches(self) -> Counter[str]:
        """Return how many watches clients have open over HTTP, by resource."""
        return self._levers.requests.open_watches()

    def forget_history(self) -> None:
        """Keep no past version: whoever is not up to date gets 410 Expired."""
        self._levers.api.compact()

    # tokens

    def expire_token(self, kubeconfig: Path) -> None:
        """Let the token in a kubeconfig stop working: 401 from now on."""
        self._levers.revoke(_token_in(kubeconfig))

    def rotate_token(self, kubeconfig: Path) -> None:
        """Put a new token into a kubeconfig; the one before works on until it expires."""
        self._levers.renew(kubeconfig)

    # Services

    def cut_service(self, namespace: str, name: str) -> None:
        """Let nothing listen behind a Service: webhooks and APIServices behind it are down.

        Raises:
            LookupError: no route stands for the Service.
        """
        service = (namespace, name)
        route = self._levers.routes.get(service)
        if route is None:
            raise LookupError(f"no route stands for service {name} in {namespace}: set one first")
        if service in self._cut:
            return
        deaf = socket.socket()  # bound, so that nobody else takes the port, and never listening
        deaf.bind(("127.0.0.1", 0))
        self._cut[service] = (route, deaf)
        self._levers.routes[service] = deaf.getsockname()

    def mend_service(self, namespace: str, name: str) -> None:
        """Let the program behind a Service be reached again. Raises LookupError: it is not cut."""
        if (namespace, name) not in self._cut:
            raise LookupError(f"service {name} in {namespace} is not cut")
        route, deaf = self._cut.pop((namespace, name))
        deaf.close()
        self._levers.routes[namespace, name] = route

    def clear(self) -> None:
        """Take every fault of requests, watches and Services away."""
        self._levers.requests.clear()
        for service in list(self._cut):
            self.mend_service(*service)

    def close(self) -> None:
        """Let go of everything; the cluster ends."""
        self._levers.requests.gate.shut = False
        self._levers.requests.clear()
        for _, deaf in self._cut.values():
            deaf.close()
        self._cut.clear()


def _token_in(kubeconfig: Path) -> str:
    content = json.loads(kubeconfig.read_text(encoding="utf-8"))
    return str(content["users"][0]["user"]["token"])
