"""Keeps the webhook configurations trusting the certificate that the worker serves.

The chart cannot know the certificate, and an upgrade may write its own empty bundle back: every
replica looks when it starts, and the leader every minute. A configuration that is not there is none
of its business.

Rule: NS-OWN-12.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gpustack_delivery.errors import Conflict, NotFound
from gpustack_delivery.mirror import Key
from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.vocabulary.resources import Resource
from gpustack_delivery.worker.controller import Controller, Observer

LOOK_SECONDS: Final = 60.0
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
    """Make both configurations of a name trust a certificate, now."""
    for resource in _CONFIGURATIONS.values():
        # Whoever changed it meanwhile was another replica, which trusts the same certificate.
        with suppress(Conflict):
            establish(kube, resource, name, ca_pem)


def establish(kube: Kube, resource: Resource, name: str, ca_pem: str) -> None:
    """Make a configuration trust a certificate; one that does, or is not there, is not touched."""
    try:
        configuration = kube.get(resource, name)
    except NotFound:
        return
    bundle = base64.b64encode(ca_pem.encode()).decode()
    webhooks = configuration.get("webhooks") or []
    trusting = [
        webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": bundle}}
        for webhook in webhooks
    ]
    if trusting != webhooks:
        version = configuration["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "webhooks": trusting}
        kube.merge_patch(resource, name, patch)
        _log.info("%s %s trusts the worker's certificate", resource.plural, name)


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
