"""Broken judges of what an artifact may say: each breaks one seam, in the way its name says."""

from __future__ import annotations

from typing import Any

from gpustack_delivery.decisions import admission
from gpustack_delivery.decisions.addresses import is_repository
from gpustack_delivery.decisions.admission import Denial, judge_artifact
from gpustack_delivery.errors import NotFound
from gpustack_delivery.vocabulary.resources import SECRETS
from gpustack_delivery.worker import webhooks
from gpustack_delivery.worker.webhooks import Webhooks
from tests.mutants.seams import Patch, breaks


@breaks("AR-RES-01")
def takes_the_first_source(patch: Patch) -> None:
    """Overlook every member of a source but one."""

    def judged(spec: Any, **facts: Any) -> Any:
        source = spec.get("source") or {}
        first = [name for name in admission._SOURCES if name in source][:1]
        return judge_artifact({**spec, "source": {name: source[name] for name in first}}, **facts)

    patch.setattr(webhooks, "judge_artifact", judged)


@breaks("AR-RES-02")
def lets_specs_change(patch: Patch) -> None:
    """Judge no update."""
    patch.setattr(webhooks, "judge_artifact_update", lambda *_: ())


@breaks("AR-RES-03")
def defaults_what_is_new_alone(patch: Patch) -> None:
    """Give a revision to what is created, and not to what is applied again."""
    mutate = Webhooks._mutate

    def mutated(self: Any, review: Any, inquiry: Any) -> Any:
        if review.operation != "CREATE":
            return {"allowed": True}
        return mutate(self, review, inquiry)

    patch.setattr(Webhooks, "_mutate", mutated)


@breaks("AR-RES-04")
def overlooks_a_final_newline(patch: Patch) -> None:
    """Let `$` end a repository's name."""
    patch.setattr(admission, "is_repository", lambda name: is_repository(name.removesuffix("\n")))


@breaks("AR-RES-04")
def looks_for_the_secret(patch: Patch) -> None:
    """Refuse an artifact whose Secret is not there yet."""
    judge = Webhooks._judge_artifact

    def judged(self: Any, review: Any, inquiry: Any) -> Any:
        source = review.new["spec"]["source"].get("huggingFace", {})
        try:
            if named := source.get("secretRef", {}).get("name"):
                inquiry.ask(lambda kube: kube.get(SECRETS, named, review.namespace))()
        except NotFound:
            return (Denial("spec.source.huggingFace.secretRef.name", "there is no such Secret"),)
        return judge(self, review, inquiry)

    patch.setattr(Webhooks, "_judge_artifact", judged)


@breaks("AR-RES-06")
def expects_digests_of_claims(patch: Patch) -> None:
    """Take an expected digest whatever the source is."""
    judge = admission._judge_hub_only

    def judged(spec: Any) -> Any:
        return [denial for denial in judge(spec) if denial.field != "spec.expectedDigest"]

    patch.setattr(admission, "_judge_hub_only", judged)
