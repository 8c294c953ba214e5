"""Keeps the webhook configurations trusting the certificate that the worker serves.

The chart cannot know the certificate, and an upgrade may write its own empty bundle back: every
replica looks before it serves one, and the leader every minute. A configuration that is not there
is none of its business.

Rule: NS-OWN-12.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gpustack_delivery.errors import Conflict, NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.resources import Json, Resource
from gpustack_delivery.worker.certificates import trusting
from gpustack_delivery.worker.controller import Controller, Observer

LOOK_SECONDS: Final = 60.0
_ATTEMPTS: Final = 5
_CONFIGURATIONS: Final = {
    resource.plural: resource
    for resource in (
        Resource(
            "admissionregistration.k8s.io",
            "v1",
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            namespaced=False,
        ),
        Resource(
            "admissionregistration.k8s.io",
            "v1",
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            namespaced=False,
        ),
    )
}

_log = logging.getLogger(__name__)


def establish_all(kube: Kube, name: str, ca_pem: str) -> None:
    """Make both configurations of a name trust a certificate, now.

    Raises:
        ApiFault: one cannot be read or written.
    """
    for resource in _CONFIGURATIONS.values():
        for left in reversed(range(_ATTEMPTS)):
            try:
                establish(kube, resource, name, ca_pem)
                break
            except Conflict:  # another replica was faster, perhaps with another certificate
                if not left:
                    raise


def establish(kube: Kube, resource: Resource, name: str, ca_pem: str) -> None:
    """Make a configuration trust a certificate; one that does, or is not there, is not touched."""
    try:
        configuration = kube.get(resource, name)
    except NotFound:
        return
    webhooks = configuration.get("webhooks") or []
    believing = [
        webhook | {"clientConfig": _believing(webhook["clientConfig"], ca_pem)}
        for webhook in webhooks
    ]
    if believing != webhooks:
        version = configuration["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "webhooks": believing}
        kube.merge_patch(resource, name, patch)
        _log.info("%s %s trusts the worker's certificate", resource.plural, name)


def _believing(client: Json, ca_pem: str) -> Json:
    return client | {"caBundle": trusting(client.get("caBundle") or "", ca_pem)}


class Trust:
    """Writes the CA bundle into both configurations of one name."""

    def __init__(
        self, kube: Kube, clock: Clock, observer: Observer, name: str, ca_pem: Callable[[], str]
    ) -> None:
        self._kube = kube
        self._name = name
        self._ca_pem = ca_pem
        self._controller = Controller("trust", self._reconcile, clock, observer, threads=1)

    def start(self) -> None:
        """Begin to look."""
        self._controller.start()
        for plural in _CONFIGURATIONS:
            self._controller.enqueue(("", plural))

    def stop(self) -> None:
        """Let the look under way end."""
        self._controller.stop()

    def _reconcile(self, key: Key) -> float | None:
        establish(self._kube, _CONFIGURATIONS[key[1]], self._name, self._ca_pem())
        return LOOK_SECONDS
