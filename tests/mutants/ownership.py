"""Broken keepers of nodes' objects, and of who may write what: each breaks one seam."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions import admission
from gpustack_delivery.decisions.admission import judge_bound_pod, judge_store_status
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary.metadata import OwnerReference
from gpustack_delivery.vocabulary.resources import CSI_DRIVERS, CSI_NODES, DRIVER_NAME
from gpustack_delivery.worker import copies, node_stores, operator, webhooks
from gpustack_delivery.worker.identity import learn_identity
from gpustack_delivery.worker.node_stores import NodeStores
from tests.mutants.seams import Patch, breaks, idle


@breaks("NS-OWN-01")
def takes_any_driver(patch: Patch) -> None:
    """Make objects for nodes with somebody else's CSI driver."""
    patch.setattr(copies, "lists_driver", lambda node: bool(node.get("spec", {}).get("drivers")))


@breaks("NS-OWN-02")
def is_owned_by_the_driver_object(patch: Patch) -> None:
    """Have objects go with the CSIDriver alone."""
    write = NodeStores._write

    def written(self: Any, name: str, node: Any, *given: Any) -> None:
        driver = self._copies.csi_drivers.get(DRIVER_NAME)
        write(self, name, replace(node, uid=driver.uid), *given)

    def owner(_version: str, _kind: str, _name: str, uid: str, **more: Any) -> OwnerReference:
        return OwnerReference(CSI_DRIVERS.api_version, CSI_DRIVERS.kind, DRIVER_NAME, uid, **more)

    patch.setattr(NodeStores, "_write", written)
    patch.setattr(node_stores, "OwnerReference", owner)


@breaks("NS-RES-02")
def is_owned_by_the_csi_node(patch: Patch) -> None:
    """Name the object as owner that lists the driver."""
    patch.setattr(node_stores, "NODES", CSI_NODES)


@breaks("NS-OWN-03")
def keeps_objects_without_the_driver_object(patch: Patch) -> None:
    """Make nothing new without the CSIDriver, and leave what is there."""
    patch.setattr(NodeStores, "_remove", idle)


@breaks("OP-UNI-01")
def spares_what_lists_models(patch: Patch) -> None:
    """Remove only the objects of nodes whose cache is empty."""
    remove = NodeStores._remove

    def removed(self: Any, stored: Any, why: str) -> None:
        if stored is not None and not stored.status.models:
            remove(self, stored, why)

    patch.setattr(NodeStores, "_remove", removed)


@breaks("NS-OWN-10")
def makes_an_object_once(patch: Patch) -> None:
    """Take a deletion for somebody's wish."""
    settle = NodeStores._settle

    def settled(self: Any, name: str, node: Any, stored: Any) -> Any:
        made = self.__dict__.setdefault("made", set())
        if stored is not None:
            made.add(name)
        return None if stored is None and name in made else settle(self, name, node, stored)

    patch.setattr(NodeStores, "_settle", settled)


@breaks("NS-OWN-11")
def clears_up_after_the_driver(patch: Patch) -> None:
    """Remove the object of a node whose driver stays away for five minutes."""
    reconcile = NodeStores._reconcile

    def reconciled(self: Any, key: Any) -> float | None:
        stored, away = self._copies.node_stores.get(key[1]), self.__dict__.setdefault("away", set())
        if stored is None or self._copies.csi_nodes.get(key[1]):
            away.discard(key)
            return reconcile(self, key)
        if key not in away:
            away.add(key)
            return 300.0
        self._remove(stored, "its driver has left")
        return None

    patch.setattr(NodeStores, "_reconcile", reconciled)


@breaks("NS-OWN-13")
def lets_anybody_write_a_status(patch: Patch) -> None:
    """Guard a node's status against nobody."""
    patch.setattr(webhooks, "judge_store_status", lambda *_: ())


@breaks("NS-OWN-14")
def wants_the_pods_name_alone(patch: Patch) -> None:
    """Take a token for bound that says which Pod, and not which of that name."""
    _know(patch, lambda extra: {admission.POD_UID: ("unknown",), **extra})


@breaks("NS-OWN-15")
def looks_up_no_pod(patch: Patch) -> None:
    """Believe what a token says of its Pod."""
    patch.setattr(webhooks, "judge_bound_pod", lambda *_: ())


@breaks("NS-OWN-16")
def compares_no_node_of_a_pod(patch: Patch) -> None:
    """Be content with a Pod that is there."""

    def judged(bound: Any, found: Any, name: str) -> Any:
        return judge_bound_pod(bound, found and replace(found, node_name=name), name)

    patch.setattr(webhooks, "judge_bound_pod", judged)


@breaks("NS-OWN-17")
def looks_every_pod_up(patch: Patch) -> None:
    """Overlook the node's name in a token."""
    _know(patch, lambda extra: {key: extra[key] for key in extra if key != admission.NODE_NAME})


@breaks("NS-OWN-18")
def lets_anybody_resolve(patch: Patch) -> None:
    """Guard an artifact's status against nobody."""

    def open_door(*_: Any) -> tuple[()]:
        return ()

    patch.setattr(webhooks, "judge_artifact_status", open_door)


@breaks("NS-OWN-19")
def starts_without_a_name(patch: Patch) -> None:
    """Go on as nobody when the API server does not say who it is."""

    def learned(*given: Any) -> str:
        try:
            return learn_identity(*given)
        except ConfigurationFault:
            return "system:anonymous"

    patch.setattr(operator, "learn_identity", learned)


def _know(patch: Patch, change: Any) -> None:
    """Let the guard of a node's status know something else of the requester."""

    def judged(requester: Any, *given: Any) -> Any:
        return judge_store_status(replace(requester, extra=change(requester.extra)), *given)

    patch.setattr(webhooks, "judge_store_status", judged)
