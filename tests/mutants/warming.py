"""Broken keepers of pools, grants and prefetches: each breaks one seam, as its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions import availability, configuration, pods, prefetching
from gpustack_delivery.decisions import granting as verdicts
from gpustack_delivery.decisions.budget import Footprint, measure
from gpustack_delivery.decisions.pods import Rendering, WarmUp, warm_up
from gpustack_delivery.vocabulary.conditions import FALSE, TRUE, Condition
from gpustack_delivery.vocabulary.prefetch import DEGRADED, LAPSED
from gpustack_delivery.vocabulary.settings import WARMUP_IMAGE
from gpustack_delivery.worker import bindings, granting, node_stores, pins, prefetches, targets
from tests.mutants.seams import Patch, breaks


@breaks("MP-RES-02")
def knows_no_pool(patch: Patch) -> None:
    """Configure every node by the Settings alone."""
    patch.setattr(configuration, "winner", lambda *_: None)


@breaks("MP-RES-03")
def lets_the_last_name_win(patch: Patch) -> None:
    """Prefer the store that comes last in the alphabet."""
    patch.setattr(
        configuration,
        "winner",
        lambda stores, labels: max(
            (each for each in stores if each.spec.node_selector.matches(labels)),
            key=lambda each: each.metadata.name,
            default=None,
        ),
    )


@breaks("MP-RES-06")
def lets_grants_shrink(patch: Patch) -> None:
    """Take every change of a grant."""
    patch.setattr(granting, "judge_binding_update", lambda *_: ())


@breaks("MP-RES-09")
def pins_for_ever(patch: Patch) -> None:
    """Keep what a deleted prefetch wanted."""
    patch.setattr(pins.Pins, "withdraw", lambda *_: None)


@breaks("MP-PLC-01")
def confuses_flavors(patch: Patch) -> None:
    """Take every node for one of every InstanceType."""
    patch.setattr("gpustack_delivery.decisions.placement.covers", lambda *_: True)


@breaks("MP-PLC-03")
def derives_from_anybody(patch: Patch) -> None:
    """Follow every deployment of the namespace, whatever it runs."""

    def derive(deployments: Any, _name: str) -> tuple[str, ...]:
        return tuple(sorted({kind for found in deployments for kind in found.instance_types}))

    patch.setattr(targets, "derive", derive)


@breaks("MP-PLC-04")
def admits_both_kinds(patch: Patch) -> None:
    """Find nothing wrong with any placement."""
    patch.setattr(verdicts, "fault_of", lambda _: "")


@breaks("MP-PLC-05")
def admits_by_another_expansion(patch: Patch) -> None:
    """Let admission see more targets than delivery does."""
    patch.setattr(granting, "expand", lambda _means, nodes: tuple(sorted(nodes)))


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


@breaks("MP-BUD-01")
def charges_one_holder(patch: Patch) -> None:
    """Count a digest once, however many nodes hold it."""
    patch.setattr(
        bindings, "measure", lambda named, held: measure(named, lambda digest: held(digest)[:1])
    )


@breaks("MP-BUD-03")
def takes_the_unmeasured_for_nothing(patch: Patch) -> None:
    """Say zero where there is no figure."""
    patch.setattr(bindings, "measure", lambda *given: Footprint(measure(*given).used_bytes or 0))


@breaks("MP-BUD-09")
def admits_any_footprint(patch: Patch) -> None:
    """Hold no projection against the budget."""
    patch.setattr(granting, "judge_budget", lambda *_: ())


@breaks("MP-BUD-07")
def admits_any_node(patch: Patch) -> None:
    """Let a target set leave its grant."""
    patch.setattr(granting, "judge_targets", lambda *_: ())


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


@breaks("MP-STA-02")
def wants_every_node(patch: Patch) -> None:
    """Ignore minReady."""
    patch.setattr(availability, "_required", lambda _prefetch, desired: desired)


@breaks("MP-STA-03")
def hides_failures(patch: Patch) -> None:
    """Never say Degraded."""
    healthy = Condition(DEGRADED, FALSE, "NoFailures", "no target node failed")
    patch.setattr(availability, "_degraded", lambda _: healthy)
