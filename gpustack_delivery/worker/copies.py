"""The local copies a leader works from: one mirror for each kind it looks at, started and stopped
together.

Secrets and claims are mirrored only as far as decisions need them: that they exist, which version
they are, and whether a Secret holds a token. The tokens themselves are read when a hub is asked,
and kept nowhere. Of Pods only those that warm nodes are mirrored. The kinds that use artifacts may
be missing from a cluster.

Rules: NS-OWN-01, NS-OWN-03, AR-REV-01, AR-REV-04, AR-CLM-01.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpustack_delivery.decisions.consuming import CONSUMER_LABEL
from gpustack_delivery.decisions.pods import Taint, WarmUp
from gpustack_delivery.mirror import Mirror
from gpustack_delivery.ports import Clock, Kube, Selection
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import TOKEN_KEY, ModelArtifact
from gpustack_delivery.vocabulary.consumers import (
    INSTANCE_TYPES,
    INSTANCES,
    MODEL_DEPLOYMENTS,
    Instance,
    InstanceType,
    ModelDeployment,
)
from gpustack_delivery.vocabulary.grants import ModelStore, ModelStoreBinding
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.node_store import NodeModelStore
from gpustack_delivery.vocabulary.prefetch import LABEL_PREFETCH, ModelPrefetch
from gpustack_delivery.vocabulary.resources import (
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    DRIVER_NAME,
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODE_MODEL_STORES,
    NODES,
    PODS,
    SECRETS,
    Json,
    Resource,
)
from gpustack_delivery.worker.optional import OptionalKinds

# Helm keeps whole releases in Secrets, and service account tokens are nobody's hub credential.
_CREDENTIAL_TYPES: Final = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A Node as far as its cache is concerned."""

    uid: str
    labels: Mapping[str, str]
    terminating: bool
    taints: tuple[Taint, ...] = ()

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> NodeFacts:
        """Read a Node."""
        metadata = Metadata.from_wire(body)
        taints = (body.get("spec") or {}).get("taints") or ()
        return cls(
            metadata.uid,
            metadata.labels,
            metadata.terminating,
            tuple(Taint.from_wire(taint) for taint in taints),
        )


@dataclass(frozen=True, slots=True)
class ConsumerPod:
    """A Pod that a ModelDeployment or an Instance runs."""

    metadata: Metadata
    ended: bool

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> ConsumerPod:
        """Read a Pod that bears our label."""
        phase = (body.get("status") or {}).get("phase", "")
        return cls(Metadata.from_wire(body), phase in {"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """A Secret without its content."""

    version: str
    has_token: bool

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> SecretFacts:
        """Read a Secret."""
        return cls(Metadata.from_wire(body).resource_version, read_token(body) is not None)


def read_token(secret: Mapping[str, Any]) -> Token | None:
    """Return the hub token of a Secret, trimmed; None if the key is absent, empty or no text."""
    encoded = (secret.get("data") or {}).get(TOKEN_KEY) or ""
    try:
        text = base64.b64decode(encoded, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Token(text) if text else None


def lists_driver(csi_node: Mapping[str, Any]) -> bool:
    """Say whether a CSINode lists our driver."""
    drivers = (csi_node.get("spec") or {}).get("drivers") or ()
    return any(driver.get("name") == DRIVER_NAME for driver in drivers)


def every(kube: Kube, resource: Resource, namespace: str = "") -> Iterator[Json]:
    """Yield every object of a collection, page by page, straight from the API server."""
    selection, token = Selection(resource, namespace), ""
    while True:
        page = kube.list_page(selection, token)
        yield from page.items
        token = page.continue_token
        if not token:
            return


class Copies:
    """The mirrors of one term of leadership."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        def whole(resource: Resource, **selectors: str) -> Selection:
            return Selection(resource, **selectors)

        self.artifacts = Mirror(kube, clock, whole(MODEL_ARTIFACTS), ModelArtifact.from_wire)
        self.node_stores = Mirror(kube, clock, whole(NODE_MODEL_STORES), NodeModelStore.from_wire)
        self.stores = Mirror(kube, clock, whole(MODEL_STORES), ModelStore.from_wire)
        self.nodes = Mirror(kube, clock, whole(NODES), NodeFacts.from_wire)
        self.csi_nodes = Mirror(kube, clock, whole(CSI_NODES), lists_driver)
        self.csi_drivers = Mirror(
            kube,
            clock,
            whole(CSI_DRIVERS, field_selector=f"metadata.name={DRIVER_NAME}"),
            Metadata.from_wire,
        )
        self.secrets = Mirror(
            kube, clock, whole(SECRETS, field_selector=_CREDENTIAL_TYPES), SecretFacts.from_wire
        )
        self.claims = Mirror(kube, clock, whole(CLAIMS), lambda body: Metadata.from_wire(body).uid)
        self.bindings = Mirror(
            kube, clock, whole(MODEL_STORE_BINDINGS), ModelStoreBinding.from_wire
        )
        self.prefetches = Mirror(kube, clock, whole(MODEL_PREFETCHES), ModelPrefetch.from_wire)
        self.warm_ups = Mirror(
            kube, clock, whole(PODS, label_selector=LABEL_PREFETCH), WarmUp.from_wire
        )
        others = OptionalKinds(kube, clock)
        self.deployments = Mirror(
            others, clock, whole(MODEL_DEPLOYMENTS), ModelDeployment.from_wire
        )
        self.instances = Mirror(others, clock, whole(INSTANCES), Instance.from_wire)
        self.consumer_pods = Mirror(
            kube, clock, whole(PODS, label_selector=CONSUMER_LABEL), ConsumerPod.from_wire
        )
        self.instance_types = Mirror(others, clock, whole(INSTANCE_TYPES), InstanceType.from_wire)

    def start(self) -> None:
        """Begin to mirror; subscribe before."""
        for mirror in self._all():
            mirror.start()

    def stop(self) -> None:
        """End every watch."""
        for mirror in self._all():
            mirror.stop()

    def wait_synced(self, seconds: float) -> bool:
        """Wait until every kind was read once; False if one was not in time."""
        return all(mirror.wait_synced(seconds) for mirror in self._all())

    def _all(self) -> tuple[Mirror[Any], ...]:
        return (
            self.artifacts,
            self.node_stores,
            self.stores,
            self.nodes,
            self.csi_nodes,
            self.csi_drivers,
            self.secrets,
            self.claims,
            self.bindings,
            self.prefetches,
            self.warm_ups,
            self.deployments,
            self.instances,
            self.consumer_pods,
            self.instance_types,
        )
