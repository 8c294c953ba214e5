"""Broken prefetches: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions import availability, pods, prefetching
from gpustack_delivery.decisions.availability import Standing, Survey
from gpustack_delivery.decisions.pods import Rendering, WarmUp, warm_up
from gpustack_delivery.node.mounting import Mounting
from gpustack_delivery.vocabulary.conditions import FALSE, TRUE, Condition
from gpustack_delivery.vocabulary.prefetch import DEGRADED, LAPSED
from gpustack_delivery.vocabulary.selector import IN, Selector
from gpustack_delivery.vocabulary.settings import WARMUP_IMAGE
from gpustack_delivery.worker import node_stores, pins, prefetches, targets
from tests.mutants.seams import Patch, breaks, idle


@breaks("MP-RES-09")
def pins_for_ever(patch: Patch) -> None:
    """Keep what a deleted prefetch wanted."""
    patch.setattr(pins.Pins, "withdraw", lambda *_: None)


@breaks("MP-PLC-01")
def confuses_flavors(patch: Patch) -> None:
    """Take every node for one of every InstanceType."""
    patch.setattr("gpustack_delivery.decisions.placement.covers", lambda *_: True)


@breaks("MP-PLC-02")
def reads_labels_alone(patch: Patch) -> None:
    """Select by what labels are, and by no expression about them."""

    def matches(self: Selector, labels: Any) -> bool:
        plain = [item for item in self.requirements if item.operator == IN]
        return all(item.matches(labels) for item in plain)

    patch.setattr(Selector, "matches", matches)


@breaks("MP-PLC-02")
def expands_once(patch: Patch) -> None:
    """Keep the nodes that a selector matched at first."""
    patch.setattr(targets.Targets, "_node_changed", idle)


@breaks("MP-PLC-03")
def derives_from_anybody(patch: Patch) -> None:
    """Follow every deployment of the namespace, whatever it runs."""

    def derive(deployments: Any, _name: str) -> tuple[str, ...]:
        return tuple(sorted({kind for found in deployments for kind in found.instance_types}))

    patch.setattr(targets, "derive", derive)


@breaks("MP-POD-01")
def makes_pods_without_end(patch: Patch) -> None:
    """Take no Pod for one that works, and follow it with the next at once."""
    patch.setattr(WarmUp, "is_live", property(lambda _: False))
    patch.setattr(prefetching, "pause", lambda _: 0.0)


@breaks("MP-POD-02")
def forgets_the_secret(patch: Patch) -> None:
    """Mount a private artifact without its credential."""
    patch.setattr(pods, "_secret_name", lambda _: "")


@breaks("MP-POD-03")
def runs_as_root(patch: Patch) -> None:
    """Render a Pod that no restricted namespace takes."""

    def rendered(*given: Any) -> Any:
        body = warm_up(*given)
        body["spec"]["securityContext"]["runAsNonRoot"] = False
        return body

    patch.setattr(prefetches, "warm_up", rendered)


@breaks("MP-POD-04")
def reads_the_top_folder_only(patch: Patch) -> None:
    """Leave files in folders unread."""
    patch.setattr(pods, "_SCRIPT", pods._SCRIPT.replace("find .", "find . -maxdepth 1"))


@breaks("MP-POD-05")
def keeps_a_tree_for_its_mounts(patch: Patch) -> None:
    """Throw a tree away with its last mount, the warm-up Pod's too."""
    unpublish = Mounting.unpublish

    def emptied(self: Any, *given: Any) -> None:
        unpublish(self, *given)
        store = self._around.store
        for marker in store.trees.markers():
            store.trees.remove(marker.digest, in_use=store.references.names)

    patch.setattr(Mounting, "unpublish", emptied)


@breaks("MP-POD-06")
def inherits_labels(patch: Patch) -> None:
    """Give a Pod what its prefetch bears."""

    def rendered(prefetch: Any, *given: Any) -> Any:
        body = warm_up(prefetch, *given)
        body["metadata"]["labels"] |= prefetch.metadata.labels
        return body

    patch.setattr(prefetches, "warm_up", rendered)


@breaks("MP-POD-07")
def has_one_image(patch: Patch) -> None:
    """Run the built-in image, whatever the Setting says."""
    patch.setattr(
        prefetches,
        "Rendering",
        lambda artifact, _image, taints: Rendering(artifact, WARMUP_IMAGE.default, taints),
    )


@breaks("MP-PIN-01")
def pins_what_is_there_alone(patch: Patch) -> None:
    """Leave a target unpinned until its copy is ready."""
    chosen = prefetching.pinned_nodes

    def pinned(facts: Any, standings: Any) -> frozenset[str]:
        ready = {name: found for name, found in standings.items() if found is Standing.READY}
        return chosen(facts, ready)

    patch.setattr(prefetching, "pinned_nodes", pinned)


@breaks("MP-PIN-02")
def shares_a_field_manager(patch: Patch) -> None:
    """Write pins under the name that the configuration is written under."""
    patch.setattr(pins, "FIELD_MANAGER", node_stores.FIELD_MANAGER)


@breaks("MP-PIN-03")
def never_lapses(patch: Patch) -> None:
    """Keep every copy for ever."""
    patch.setattr(prefetching, "_lapses_in", lambda *_: None)


@breaks("MP-STA-04")
def forgets_lapses(patch: Patch) -> None:
    """Warm a lapsed copy again as soon as collection has taken it."""
    patch.setattr(prefetching, "_remembered", lambda _: frozenset())


@breaks("MP-STA-05")
def blames_every_shortfall_on_time(patch: Patch) -> None:
    """Say Lapsed whenever a copy lapsed."""
    lapsed = availability._lapsed

    def blamed(*given: Any) -> Condition:
        found = lapsed(*given)
        status = FALSE if found.reason == "NoLapsedCopies" else TRUE
        return Condition(LAPSED, status, "RetentionTTLExpired", found.message)

    patch.setattr(availability, "_lapsed", blamed)


@breaks("MP-STA-01")
def counts_failures_as_downloading(patch: Patch) -> None:
    """Take a node whose download failed for one that still tries."""
    count = Survey.count

    def counted(self: Survey, standing: Standing) -> int:
        failed = count(self, Standing.FAILED) if standing is Standing.WAITING else 0
        return count(self, standing) + failed

    patch.setattr(Survey, "count", counted)


@breaks("MP-STA-02")
def wants_every_node(patch: Patch) -> None:
    """Ignore minReady."""
    patch.setattr(availability, "_required", lambda _prefetch, desired: desired)


@breaks("MP-STA-03")
def hides_failures(patch: Patch) -> None:
    """Never say Degraded."""
    healthy = Condition(DEGRADED, FALSE, "NoFailures", "no target node failed")
    patch.setattr(availability, "_degraded", lambda _: healthy)
