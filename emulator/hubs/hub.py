"""What every emulated hub is made of: repositories, users, and two servers.

The hub answers questions and hands out small files, and sends clients to a content host for large
ones, as real hubs do. The two have different addresses, so a client that carries its token along
is seen. `huggingface` and `modelscope` say which questions there are.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from emulator.clock import SystemClock
from emulator.contracts import Clock
from emulator.hubs.content_host import ContentHost
from emulator.hubs.errors import HubError
from emulator.hubs.faults import Faults
from emulator.hubs.replies import Reply, Subject
from emulator.hubs.repository import File, Files, LfsRule, Repository
from emulator.hubs.request_log import RequestLog
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context

NAME = "hub.test"
"""A name that stands in a hub's certificate and in no DNS: only a proxy can know where it leads."""

_URL_LIFETIME_SECONDS = 3600.0
_RANGE_FROM_BYTES = 50_000_000_000


class Hub(ABC):
    """A hub and its content host, from `start` to `stop`.

    `faults` decides which requests go wrong, `requests` tells what was asked, `content` is the
    second host.

    Args:
        clock: times signed URLs, faults and the log; the system's when not given.
        authority: serves HTTPS with certificates of this authority; plain HTTP without.
        host: the address of the hub.
        content_host: the address of the content host; another one, so that clients notice.
    """

    default_branch = "main"

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        authority: Authority | None = None,
        host: str = "127.0.0.1",
        content_host: str = "127.0.0.2",
    ) -> None:
        clock = clock or SystemClock()
        self.faults = Faults(clock)
        self.requests = RequestLog(clock)
        self.content = ContentHost(
            clock, lifetime_seconds=_URL_LIFETIME_SECONDS, range_from_bytes=_RANGE_FROM_BYTES
        )
        self._lock = threading.Lock()
        self._turning = threading.Lock()  # a start waits for the stop before it
        self._repositories: dict[str, Repository] = {}
        self._users: dict[str, str] = {}
        self._authority = authority
        hosts = [host, content_host, "localhost", NAME]
        tls = server_context(authority.issue("hub", hosts)) if authority else None
        self._hub = Server(self._serve("hub", self.answer), name="hub", host=host, tls=tls)
        self._cdn = Server(
            self._serve("cdn", self.content.answer), name="cdn", host=content_host, tls=tls
        )

    @property
    def url(self) -> str:
        """Return the hub's endpoint, without a final slash."""
        return self._hub.url

    @property
    def content_url(self) -> str:
        """Return the content host's address."""
        return self._cdn.url

    @property
    def ca_pem(self) -> str:
        """Return what a client has to trust; "" for plain HTTP."""
        return self._authority.certificate_pem if self._authority else ""

    def add_repository(
        self,
        name: str,
        source: Files,
        *,
        private: bool = False,
        gated: bool = False,
        readers: Iterable[str] = (),
        lfs: LfsRule | None = None,
    ) -> Repository:
        """Serve a folder, or contents by path, as the default branch of a new repository.

        Args:
            private: only `readers` know that it exists.
            gated: everybody sees it, only `readers` may have its files.
            readers: users, as `add_token` names them.
            lfs: which files are kept outside git.

        Raises:
            HubError: the folder cannot be served, or the name is taken.
        """
        repository = Repository(name, private=private, gated=gated, readers=readers, lfs=lfs)
        repository.commit(source, branch=self.default_branch)
        with self._lock:
            if name in self._repositories:
                raise HubError(f"there is a repository {name!r} already")
            self._repositories[name] = repository
        return repository

    def remove_repository(self, name: str) -> None:
        """Take a repository away; signed URLs of its files still work, as they do."""
        with self._lock:
            self._repositories.pop(name, None)

    def add_token(self, token: str, user: str) -> None:
        """Let a token stand for a user."""
        with self._lock:
            self._users[token] = user

    def remove_token(self, token: str) -> None:
        """Make a token one that nobody knows."""
        with self._lock:
            self._users.pop(token, None)

    def start(self) -> Self:
        """Listen, on the ports of the last time if there was one."""
        with self._turning:
            self.faults.gate.shut = True
            self._cdn.start()
            try:
                self._hub.start()
            except OSError:
                self._cdn.stop()
                raise
        return self

    def stop(self) -> None:
        """Cut what is under way and refuse connections; `start` takes up again."""
        with self._turning:
            self.faults.gate.shut = False
            self.faults.release()
            self._hub.stop(drain_seconds=0.0)
            self._cdn.stop(drain_seconds=0.0)

    def stop_content_host(self) -> None:
        """Refuse connections to the content host alone; `start_content_host` takes up again."""
        self._cdn.stop(drain_seconds=0.0)

    def start_content_host(self) -> None:
        """Let the content host listen again, on its port."""
        self._cdn.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @abstractmethod
    def answer(self, request: Request) -> tuple[Reply, Subject]:
        """Answer a request to the hub itself."""

    def find_repository(self, name: str) -> Repository | None:
        """Return a repository by its name."""
        return self._repositories.get(name)

    def find_user(self, token: str) -> str | None:
        """Return the user that a token stands for."""
        return self._users.get(token)

    def offer(self, file: File) -> str:
        """Return a signed URL of a file on the content host."""
        return self._cdn.url + self.content.offer(file)

    def _serve(
        self, host: str, answer: Callable[[Request], tuple[Reply, Subject]]
    ) -> Callable[[Request], Response]:
        def handle(request: Request) -> Response:
            entry = self.requests.begin(host, request)
            try:
                reply, subject = answer(request)
                response = self.faults.respond(request, subject, reply)
            except BaseException:
                self.requests.end(entry, 0)
                raise
            entry.status = response.status
            response.done = lambda sent_bytes: self.requests.end(entry, sent_bytes)
            return response

        return handle
