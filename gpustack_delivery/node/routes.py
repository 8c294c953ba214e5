"""The real way to the hubs: one set of connections for one `spec.hub`.

Rules: NS-DL-10, NS-DL-11, NS-REQ-05.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.adapters.modelscope import ModelScope
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.downloading import Cancellation, Downloader, Limits, Target
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.ports import Clock, Disk, Hub
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.node_store import HubAccess


class HubRoute:
    """Hubs and downloads under one `spec.hub`; satisfies `configuration.Route`."""

    def __init__(self, access: HubAccess, http: Http, downloader: Downloader) -> None:
        self._access = access
        self._http = http
        self._downloader = downloader

    def hub(self, kind: HubKind) -> Hub:
        """Return a hub.

        Raises:
            ConfigurationFault: the spec names no usable endpoint of that kind.
        """
        if kind is HubKind.HUGGING_FACE:
            return HuggingFace(self._access.hugging_face_endpoint, self._http)
        if not self._access.model_scope_endpoint:
            raise ConfigurationFault("the node's configuration names no ModelScope endpoint")
        return ModelScope(self._access.model_scope_endpoint, self._http)

    def fetch(
        self,
        targets: Sequence[Target],
        workspace: Workspace,
        *,
        credential: Callable[[], Token | None],
        cancellation: Cancellation,
        received: Callable[[int], None],
    ) -> None:
        """Download files; see `downloading.Downloader.fetch`."""
        self._downloader.fetch(
            targets,
            workspace,
            credential=credential,
            cancellation=cancellation,
            received=received,
        )

    def close(self) -> None:
        """Start nothing new on these connections."""
        self._http.close()


class Router:
    """Makes routes; satisfies `configuration.Connect`.

    Args:
        limits: the node's one set of limits, shared by every route.
        clock: for stalls and retries.
        disk: for syncs.
    """

    def __init__(self, limits: Limits, clock: Clock, disk: Disk) -> None:
        self._limits = limits
        self._clock = clock
        self._disk = disk
        self._hashing = Hashing()

    def __call__(self, access: HubAccess, bundle: str) -> HubRoute:
        """Return the route of a spec.

        Raises:
            ConfigurationFault: its endpoint, proxy or CA bundle cannot be used.
        """
        http = Http(proxy=access.https_proxy, no_proxy=access.no_proxy, ca_pem=bundle)
        downloader = Downloader(http, self._limits, self._clock, self._disk, self._hashing)
        return HubRoute(access, http, downloader)
