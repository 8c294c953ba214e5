"""How the worker reaches the hubs: one connection an errand, under the Settings as they are then.

Errands are rare, so nothing is kept between them: a changed endpoint, proxy or CA bundle holds for
the next one.

Rules: AR-HF-01, AR-MS-01.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.adapters.modelscope import ModelScope
from gpustack_delivery.decisions.configuration import hub_access
from gpustack_delivery.errors import ConfigurationFault, NotFound
from gpustack_delivery.ports import Hub, Kube
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.node_store import CA_BUNDLE_KEY, HubAccess
from gpustack_delivery.vocabulary.resources import CONFIG_MAPS

OpenHub: TypeAlias = Callable[[HubKind, HubAccess, str], AbstractContextManager[Hub]]
"""Opens a hub of a kind under an access, trusting CA certificates (PEM) beside the system's."""


@contextmanager
def open_hub(kind: HubKind, access: HubAccess, ca_pem: str) -> Iterator[Hub]:
    """Open a hub over HTTP.

    Raises:
        ConfigurationFault: the access cannot be used.
    """
    http = Http(proxy=access.https_proxy, no_proxy=access.no_proxy, ca_pem=ca_pem)
    try:
        if kind is HubKind.HUGGING_FACE:
            yield HuggingFace(access.hugging_face_endpoint, http)
        else:
            yield ModelScope(access.model_scope_endpoint, http)
    finally:
        http.close()


class Hubs:
    """Opens hubs under the current Settings."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        values: Callable[[], Mapping[str, str]],
        opened: OpenHub = open_hub,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._values = values
        self._open = opened

    def open(self, kind: HubKind) -> AbstractContextManager[Hub]:
        """Open a hub for one errand.

        Raises:
            ConfigurationFault: a Setting or the CA bundle cannot be used; the message says which.
        """
        access = hub_access(self._values())
        return self._open(kind, access, self._ca_bundle(access.ca_bundle_config_map))

    def _ca_bundle(self, name: str) -> str:
        if not name:
            return ""
        try:
            config_map = self._kube.get(CONFIG_MAPS, name, self._namespace)
        except NotFound:
            raise ConfigurationFault(f"the CA bundle's ConfigMap {name} does not exist") from None
        bundle = (config_map.get("data") or {}).get(CA_BUNDLE_KEY, "")
        if not bundle:
            raise ConfigurationFault(f"the CA bundle's ConfigMap {name} has no {CA_BUNDLE_KEY}")
        return str(bundle)
