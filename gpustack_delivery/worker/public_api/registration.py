"""Keeps the APIServices trusting the certificate that the public API serves.

The chart cannot know the certificate. Every replica looks before it serves one and every minute
after. An APIService that is not there, or that somebody pointed elsewhere, is
none of its business.

Rule: VW-RES-01.
"""

from __future__ import annotations

import logging
from typing import Final

from gpustack_delivery.errors import NotFound
from gpustack_delivery.ports import Kube
from gpustack_delivery.vocabulary.resources import Resource
from gpustack_delivery.worker.certificates import trusting
from gpustack_delivery.worker.public_api.targets import SERVED, VERSION

API_SERVICES: Final = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False
)

_log = logging.getLogger(__name__)


def establish(kube: Kube, service: str, namespace: str, ca_pem: str) -> None:
    """Make the APIServices of one Service trust a certificate; those that do are not touched.

    Raises:
        ApiFault: one cannot be read or written now.
    """
    for group in SERVED:
        name = f"{VERSION}.{group}"
        try:
            found = kube.get(API_SERVICES, name)
        except NotFound:
            continue
        spec = found.get("spec") or {}
        target = spec.get("service") or {}
        ours = (target.get("name"), target.get("namespace")) == (service, namespace)
        held = spec.get("caBundle") or ""
        if not ours or (bundle := trusting(held, ca_pem)) == held:
            continue
        # Without a precondition: its status moves often, and the patch says the bundle alone.
        kube.merge_patch(API_SERVICES, name, {"spec": {"caBundle": bundle}})
        _log.info("the APIService %s trusts the worker's certificate", name)
