"""A Hugging Face hub on loopback: any folder as a repository, for real clients, with faults on
demand.

    with HuggingFaceHub() as hub:
        hub.add_repository("org/model", Path("/models/some-snapshot"))
        huggingface_hub.snapshot_download("org/model", endpoint=hub.url)
"""

from __future__ import annotations

from emulator.contracts import Clock
from emulator.hubs.hub import Hub
from emulator.hubs.huggingface_api import HuggingFaceApi, Options
from emulator.hubs.replies import Reply, Subject
from gpustack_delivery.httpd import Request
from gpustack_delivery.httpd.certificates import Authority


class HuggingFaceHub(Hub):
    """The Hugging Face hub; what it is made of is told in `hub.Hub`.

    Args:
        options: pages and redirects.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        authority: Authority | None = None,
        host: str = "127.0.0.1",
        content_host: str = "127.0.0.2",
        options: Options | None = None,
    ) -> None:
        super().__init__(clock=clock, authority=authority, host=host, content_host=content_host)
        self._api = HuggingFaceApi(
            self.find_repository, self.find_user, self.offer, options or Options()
        )

    def answer(self, request: Request) -> tuple[Reply, Subject]:
        """Answer a request, linking to further pages under the name the client used."""
        scheme = self.url.partition("://")[0]
        return self._api.answer(request, f"{scheme}://{request.headers.get('Host', '')}")
