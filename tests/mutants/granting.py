"""Broken grants and budgets: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions import budget
from gpustack_delivery.decisions import granting as verdicts
from gpustack_delivery.decisions.budget import Footprint, measure
from gpustack_delivery.decisions.granting import judge_binding_update, judge_budget
from gpustack_delivery.ports import Kube
from gpustack_delivery.vocabulary.grants import ModelStoreBinding
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, MODEL_STORE_BINDINGS, Resource
from gpustack_delivery.worker import bindings, granting
from gpustack_delivery.worker.granting import Granting
from gpustack_delivery.worker.reviews import Review
from tests.mutants.seams import Patch, breaks


@breaks("MP-RES-04")
def borrows_a_grant(patch: Patch) -> None:
    """Take the binding from whichever namespace has one of that name."""

    def bound(name: str, _namespace: str) -> Any:
        def look(kube: Kube) -> Any:
            body = granting._all(MODEL_STORE_BINDINGS)(kube).get(name)
            return ModelStoreBinding.from_wire(body).spec if body is not None else None

        return look

    patch.setattr(granting, "_binding", bound)


@breaks("MP-RES-05")
def lets_grants_gain_stores(patch: Patch) -> None:
    """Take another list of stores as long as none is gone."""

    def judged(old: Any, new: Any) -> Any:
        gone = [ref for ref in old["storeRefs"] if ref not in new["storeRefs"]]
        return [
            denial
            for denial in judge_binding_update(old, new)
            if gone or denial.field != "spec.storeRefs"
        ]

    patch.setattr(granting, "judge_binding_update", judged)


@breaks("MP-RES-06")
def lets_grants_shrink(patch: Patch) -> None:
    """Take every change of a grant."""
    patch.setattr(granting, "judge_binding_update", lambda *_: ())


@breaks("MP-RES-07")
def lets_pinning_be_left_out(patch: Patch) -> None:
    """Hold only a spoken no against a grant that lets pin."""

    def judged(old: Any, new: Any) -> Any:
        said = new.get("allowPinned") is not None
        return [
            denial
            for denial in judge_binding_update(old, new)
            if said or denial.field != "spec.allowPinned"
        ]

    patch.setattr(granting, "judge_binding_update", judged)


@breaks("MP-RES-08")
def warms_what_others_have(patch: Patch) -> None:
    """Take the artifact from whichever namespace has one of that name."""
    read_all = granting._all

    def found(resource: Resource, namespace: str = "") -> Any:
        return read_all(resource, "" if resource is MODEL_ARTIFACTS else namespace)

    patch.setattr(granting, "_all", found)


@breaks("MP-PLC-04")
def admits_both_kinds(patch: Patch) -> None:
    """Find nothing wrong with any placement."""
    patch.setattr(verdicts, "fault_of", lambda _: "")


@breaks("MP-PLC-05")
def admits_by_another_expansion(patch: Patch) -> None:
    """Let admission see more targets than delivery does."""
    patch.setattr(granting, "expand", lambda _means, nodes: tuple(sorted(nodes)))


@breaks("MP-BUD-01")
def charges_one_holder(patch: Patch) -> None:
    """Count a digest once, however many nodes hold it."""
    patch.setattr(
        bindings, "measure", lambda named, held: measure(named, lambda digest: held(digest)[:1])
    )


@breaks("MP-BUD-02")
def charges_whoever_came_first(patch: Patch) -> None:
    """Let other namespaces have for nothing what one has warmed."""
    payers: dict[str, str] = {}

    def measured(named: Any, held: Any) -> Footprint:
        spaces = [found.metadata.namespace for found in named.values() if found]

        def charged(digest: str) -> Any:
            return held(digest) if payers.setdefault(digest, spaces[0]) == spaces[0] else ()

        return measure(named, charged)

    patch.setattr(bindings, "measure", measured)


@breaks("MP-BUD-03")
def takes_the_unmeasured_for_nothing(patch: Patch) -> None:
    """Say zero where there is no figure."""
    patch.setattr(bindings, "measure", lambda *given: Footprint(measure(*given).used_bytes or 0))


@breaks("MP-BUD-04")
def takes_a_full_grant_for_passed(patch: Patch) -> None:
    """Say OverQuota when the last byte of a grant is used."""
    over = budget._over_quota

    def judged(binding: Any, footprint: Footprint) -> Any:
        used = footprint.used_bytes
        return over(binding, footprint if used is None else Footprint(used + 1))

    patch.setattr(budget, "_over_quota", judged)


@breaks("MP-BUD-05")
def lets_an_update_name_no_artifact(patch: Patch) -> None:
    """Look for the artifact when a prefetch is created, and not when it is changed."""
    _forgive_updates(patch, "spec.artifactRef.name")


@breaks("MP-BUD-06")
def lets_an_update_name_no_grant(patch: Patch) -> None:
    """Look for the grant when a prefetch is created, and not when it is changed."""
    _forgive_updates(patch, "spec.bindingRef.name")


@breaks("MP-BUD-07")
def admits_any_node(patch: Patch) -> None:
    """Let a target set leave its grant."""
    patch.setattr(granting, "judge_targets", lambda *_: ())


@breaks("MP-BUD-08")
def lets_an_update_pin(patch: Patch) -> None:
    """Ask for the right to pin when a prefetch is created, and not when it is changed."""
    _forgive_updates(patch, "spec.retention.pinned")


@breaks("MP-BUD-09")
def admits_any_footprint(patch: Patch) -> None:
    """Hold no projection against the budget."""
    patch.setattr(granting, "judge_budget", lambda *_: ())


@breaks("MP-BUD-10")
def projects_nothing_beside_the_unresolved(patch: Patch) -> None:
    """Give the projection up as soon as one artifact has no size yet."""

    def judged(mine: Any, others: Any, *grant: Any) -> Any:
        asks = list(others)
        return judge_budget(mine, asks, *grant) if all(ask.digest for ask in asks) else ()

    patch.setattr(granting, "judge_budget", judged)


def _forgive_updates(patch: Patch, field: str) -> None:
    """Let a prefetch be changed whatever a field of it then says."""
    judge = Granting.judge_prefetch

    def judged(self: Any, review: Review, inquiry: Any) -> Any:
        denials = judge(self, review, inquiry)
        return [one for one in denials if not review.old_spec or one.field != field]

    patch.setattr(Granting, "judge_prefetch", judged)
