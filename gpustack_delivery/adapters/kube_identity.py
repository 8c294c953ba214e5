"""Who we are to the Kubernetes API and how it is reached; the only importer of `kubernetes`.

The library finds and reads the configuration: a kubeconfig with everything that can stand in one,
or the service account of the Pod we run in. A Pod's bearer token is read again for every request,
so a rotation is never noticed by a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client import rest
from kubernetes.config.incluster_config import InClusterConfigLoader

from gpustack_delivery.adapters.boarding import take_over
from gpustack_delivery.adapters.kubeconfig import kubeconfig_fault
from gpustack_delivery.decisions.addresses import endpoint_fault
from gpustack_delivery.errors import ConfigurationFault, Unreachable
from gpustack_delivery.redaction import Token

_CONNECTIONS: Final = 32
_log = logging.getLogger(__name__)


class Kubeconfig:
    """A kubeconfig file; credential plugins and expiry are the library's."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._load()

    def reload(self) -> bool:
        """Read the file again, for a token that was replaced in it or behind it."""
        try:
            self._load()
        except ConfigurationFault as fault:  # somebody is at it: what was read before still counts
            _log.error("%s", fault)
            return False
        return True

    def _load(self) -> None:
        settings = client.Configuration()
        settings.host = ""  # the library's own default would hide that none is named
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]  # the library's gap
                self._path, client_configuration=settings, persist_config=False
            )
            self.pool = _pool(settings)
            usable = not endpoint_fault(settings.host)
        except Exception:  # noqa: BLE001 - the library lets its parsers' errors through
            usable = False
        if not usable:
            raise ConfigurationFault(f"the kubeconfig {kubeconfig_fault(self._path)}")
        self.settings = settings

    def authorization(self) -> Token:
        """Return the Authorization header's value; empty for client certificates."""
        return Token(self.settings.get_api_key_with_prefix("BearerToken", "authorization") or "")


class ServiceAccount:
    """The Pod's own identity: address from the environment, CA and token from mounted files."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._token = directory / "token"
        self.settings = client.Configuration()
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]  # the library's gap
            token_filename=str(self._token),
            cert_filename=str(directory / "ca.crt"),
            try_refresh_token=False,
            environ=environment,
        )
        try:
            loader.load_and_set(self.settings)  # type: ignore[no-untyped-call]  # likewise
        except (config.ConfigException, OSError) as error:
            raise ConfigurationFault(
                "there is no way to the Kubernetes API: run in a Pod with a service account, "
                "or name a kubeconfig",
                detail=str(error),
            ) from None
        # What the environment names is the way to the hubs; the cluster is reached directly.
        self.settings.proxy = None
        self.pool = _pool(self.settings)

    def reload(self) -> bool:
        """Do nothing: the token is read for every request anyway."""
        return False

    def authorization(self) -> Token:
        """Return the Authorization header's value."""
        try:
            return Token("Bearer " + self._token.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            message = "the service account token cannot be read"
            raise Unreachable(message, detail=str(error)) from None


def _pool(settings: client.Configuration) -> Any:
    settings.connection_pool_maxsize = _CONNECTIONS
    return take_over(rest.RESTClientObject(settings).pool_manager)
