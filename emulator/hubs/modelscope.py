"""A ModelScope hub on loopback: any folder as a repository, with faults on demand."""

from __future__ import annotations

from emulator.contracts import Clock
from emulator.hubs.hub import Hub
from emulator.hubs.modelscope_api import Habits, ModelScopeApi
from emulator.hubs.replies import Reply, Subject
from gpustack_delivery.httpd import Request
from gpustack_delivery.httpd.certificates import Authority


class ModelScopeHub(Hub):
    """The ModelScope hub; what it is made of is told in `hub.Hub`.

    Faults aim at `info` for the commits, `tree` for the listing, `resolve` for a file, `whoami`,
    and `git` for the refs.

    Args:
        habits: where it cuts a listing, and how it answers unknown refs.
    """

    default_branch = "master"

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        authority: Authority | None = None,
        host: str = "127.0.0.1",
        content_host: str = "127.0.0.2",
        habits: Habits | None = None,
    ) -> None:
        super().__init__(clock=clock, authority=authority, host=host, content_host=content_host)
        self._api = ModelScopeApi(
            self.find_repository,
            self.find_user,
            self.offer,
            self.default_branch,
            habits or Habits(),
        )

    def answer(self, request: Request) -> tuple[Reply, Subject]:
        """Answer a request."""
        return self._api.answer(request)
