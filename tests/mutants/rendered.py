"""Broken charts: each renders one object otherwise, in the way its name says."""

from __future__ import annotations

from typing import Any

from tests.mutants.seams import Patch, breaks, change_chart


@breaks("NS-OWN-08")
def lets_plugins_reach_kubelets(patch: Patch) -> None:
    """Give the plugin's account every proxy there is."""

    def changed(body: Any) -> None:
        if body["kind"] == "ClusterRole" and body["metadata"]["name"].endswith("-model-manager"):
            body["rules"].append({"apiGroups": [""], "resources": ["*/proxy"], "verbs": ["get"]})

    change_chart(patch, changed)


@breaks("NS-OWN-12")
def guards_no_status_in_an_outage(patch: Patch) -> None:
    """Let statuses pass while no worker answers."""
    _change_guard(patch, failurePolicy="Ignore")


@breaks("NS-OWN-12")
def guards_labelled_objects_alone(patch: Patch) -> None:
    """Judge the statuses of objects that say so."""
    _change_guard(patch, objectSelector={"matchLabels": {"guarded": "true"}})


@breaks("NS-RES-01")
def is_in_no_category(patch: Patch) -> None:
    """Leave the nodes' objects out of `kubectl get gpustack`."""

    def changed(spec: Any) -> None:
        spec["names"]["categories"] = ["all"]

    _change_kind(patch, "nodemodelstores", changed)


@breaks("NS-RES-12")
def prints_capacity_for_readiness(patch: Patch) -> None:
    """Print another condition under Ready."""
    wanted = '.status.conditions[?(@.type=="CapacityLow")].status'
    _print(patch, "nodemodelstores", "Ready", wanted)


@breaks("MP-STA-06")
def prints_what_is_desired_for_ready(patch: Patch) -> None:
    """Print the count of all targets under Ready."""
    _print(patch, "modelprefetches", "Ready", ".status.desiredNodes")


def _change_guard(patch: Patch, **fields: Any) -> None:
    """Configure the guard of nodes' statuses otherwise."""

    def changed(body: Any) -> None:
        for webhook in body.get("webhooks", ()):
            if webhook["name"].startswith("nodemodelstores-status."):
                webhook.update(fields)

    change_chart(patch, changed)


def _change_kind(patch: Patch, plural: str, change: Any) -> None:
    """Define a kind otherwise."""

    def changed(body: Any) -> None:
        if body["kind"] == "CustomResourceDefinition" and body["spec"]["names"]["plural"] == plural:
            change(body["spec"])

    change_chart(patch, changed)


def _print(patch: Patch, plural: str, column: str, path: str) -> None:
    """Print something else in a kind's column."""

    def changed(spec: Any) -> None:
        for version in spec["versions"]:
            for printed in version["additionalPrinterColumns"]:
                if printed["name"] == column:
                    printed["jsonPath"] = path

    _change_kind(patch, plural, changed)
