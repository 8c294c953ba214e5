"""CSIDrivers, CSINodes and Leases."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.contracts import Json
from emulator.errors import Cause, duplicate, invalid_value, not_supported, required
from emulator.kinds.builtin import Builtin

_SEAL = "field is immutable"


class CsiDrivers(Builtin):
    """What a CSI driver can do; only some of it may change."""

    def bumps_generation(self, object_: Json, old: Json) -> bool:
        """Count the changes that kubelets must notice; there is no generation before the first."""
        return bool(object_["spec"] != old["spec"])

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield modes and policies that do not exist, and changes of what is for life."""
        spec = object_["spec"]
        for mode in spec.get("volumeLifecycleModes", []):
            if mode not in ("Persistent", "Ephemeral"):
                yield not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))
        policies = ("File", "None", "ReadWriteOnceWithFSType")
        if spec.get("fsGroupPolicy") not in policies:
            yield not_supported("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), policies)
        audiences: set[str] = set()
        for index, request in enumerate(spec.get("tokenRequests", [])):
            audience = request.get("audience", "")
            if audience in audiences:
                yield duplicate(f"spec.tokenRequests[{index}].audience", audience)
            audiences.add(audience)
        if old is None:
            return
        if spec.get("attachRequired") != old["spec"].get("attachRequired"):
            yield invalid_value("spec.attachedRequired", spec.get("attachRequired"), _SEAL)
        if spec.get("volumeLifecycleModes") != old["spec"].get("volumeLifecycleModes"):
            yield invalid_value(
                "spec.volumeLifecycleModes", spec.get("volumeLifecycleModes"), _SEAL
            )

    def warnings(self, object_: Json) -> list[str]:
        """Warn of tokens that could end up in a log."""
        spec = object_["spec"]
        if not spec.get("tokenRequests") or "serviceAccountTokenInSecrets" in spec:
            return []
        return [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent "
            "possible logging of tokens in volume attributes"
        ]


class CsiNodes(Builtin):
    """Which CSI drivers a node has; an entry can come and go, and not change."""

    def fill(self, object_: Json) -> None:
        """There is always a list of drivers."""
        super().fill(object_)
        spec = object_.setdefault("spec", {})
        spec["drivers"] = spec.get("drivers") or []

    def begin(self, object_: Json) -> None:
        """Write no drivers as null, as the server does."""
        super().begin(object_)
        object_["spec"]["drivers"] = object_["spec"]["drivers"] or None

    def carry(self, object_: Json, old: Json, subresource: str) -> None:
        """Write no drivers as null, as the server does."""
        super().carry(object_, old, subresource)
        object_["spec"]["drivers"] = object_["spec"]["drivers"] or None

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield entries without a name or node id, repeated ones, and changed ones."""
        names: set[str] = set()
        before = (
            {driver["name"]: driver for driver in old["spec"].get("drivers") or ()}
            if old is not None
            else {}
        )
        for index, driver in enumerate(object_["spec"]["drivers"] or ()):
            field = f"spec.drivers[{index}]"
            if not driver.get("name"):
                yield required(f"{field}.name")
            if not driver.get("nodeID"):
                yield required(f"{field}.nodeID")
            if driver.get("name") in names:
                yield duplicate(f"{field}.name", driver["name"])
            names.add(driver.get("name", ""))
            stored = before.get(driver.get("name", ""))
            if stored is not None and _identity(stored) != _identity(driver):
                yield invalid_value("spec.drivers", _go_form(driver), _SEAL)


def _identity(driver: Json) -> tuple[object, ...]:
    return (driver.get("nodeID"), sorted(driver.get("topologyKeys") or ()))


def _go_form(driver: Json) -> Json:
    return {
        "Name": driver["name"],
        "NodeID": driver.get("nodeID", ""),
        "TopologyKeys": driver.get("topologyKeys"),
        "Allocatable": driver.get("allocatable"),
    }


class Leases(Builtin):
    """Leases: locks and heartbeats."""

    def own_faults(self, object_: Json, old: Json | None, subresource: str) -> Iterator[Cause]:
        """Yield a duration or a count that cannot be."""
        spec = object_.get("spec", {})
        if spec.get("leaseDurationSeconds", 1) <= 0:
            yield invalid_value(
                "spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"
            )
        if spec.get("leaseTransitions", 0) < 0:
            yield invalid_value(
                "spec.leaseTransitions",
                spec["leaseTransitions"],
                "must be greater than or equal to 0",
            )
