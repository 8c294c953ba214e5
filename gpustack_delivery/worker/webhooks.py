"""The webhooks: AdmissionReview in, verdict out.

One handler serves every path below `/validate` and `/mutate`; what is judged, and by which rule,
the review itself says. A review this worker has no rule for is refused with a word on the
configuration that sent it: letting it pass would make a guard look present that is not.

Pods come to `/mutate` only where an administrator chose that the worker completes their volumes. A
volume is completed from the artifact as the API server has it, and not from a copy, which may be
older than the artifact. Without the choice a Pod that comes all the same passes as it is.

What has to be looked up is asked within the time that the caller gave; when that is over, the
review is refused as one that could not be judged, in words that the caller still gets to see.

Rules: AR-RES-01..06, NS-OWN-12..18, MP-RES-05..07, MP-PLC-04, MP-BUD-05..09.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from gpustack_delivery.decisions.admission import (
    BoundPod,
    Denial,
    PodFacts,
    default_revision,
    judge_artifact,
    judge_artifact_status,
    judge_artifact_update,
    judge_bound_pod,
    judge_store_status,
)
from gpustack_delivery.decisions.cluster import mounts_images
from gpustack_delivery.decisions.completing import Gap, complete, gaps, name_fault
from gpustack_delivery.errors import ApiFault, NotFound
from gpustack_delivery.httpd import Request, Response
from gpustack_delivery.ports import Kube
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, PODS, Json
from gpustack_delivery.worker.granting import Granting
from gpustack_delivery.worker.inquiries import Answer, Inquiries, Inquiry
from gpustack_delivery.worker.reviews import REVIEW_VERSION, Review, answer_seconds

# A look-up that meets silence is tried twice, and may still be of use to a caller that waits 10 s.
LOOK_SECONDS: Final = 4.0

_log = logging.getLogger(__name__)


class ReviewObserver(Protocol):
    """Hears of every review, for the metrics."""

    def reviewed(self, resource: str, result: str) -> None:
        """Note one review."""


@dataclass(frozen=True, slots=True)
class Principals:
    """Who may write which status: the usernames, and where the plugin's Pods live."""

    worker: str
    plugin: str
    namespace: str


Rule: TypeAlias = Callable[[Review, Inquiry], tuple[Denial, ...]]
"""Judges a review by what it says and by what an inquiry finds."""


class _Denied(Exception):
    """A review whose object cannot be what it says."""

    def __init__(self, *denials: Denial) -> None:
        super().__init__()
        self.denials = denials


class Webhooks:
    """Judges reviews; safe on any number of threads."""

    def __init__(
        self,
        inquiries: Inquiries,
        principals: Principals,
        observer: ReviewObserver,
        granting: Granting,
        *,
        completes_volumes: bool = False,
    ) -> None:
        self._inquiries = inquiries
        self._completes_volumes = completes_volumes
        self._principals = principals
        self._observer = observer
        self._rules: dict[tuple[str, str], Rule] = {
            ("modelartifacts", "CREATE"): self._judge_artifact,
            ("modelartifacts", "UPDATE"): lambda review, _: judge_artifact_update(
                review.old_spec, review.new_spec
            ),
            ("modelartifacts/status", "UPDATE"): lambda review, _: judge_artifact_status(
                review.requester, self._principals.worker
            ),
            ("nodemodelstores/status", "UPDATE"): self._judge_store_status,
            ("modelstorebindings", "CREATE"): granting.judge_new_binding,
            ("modelstorebindings", "UPDATE"): lambda review, _: granting.judge_binding_update(
                review.old_spec, review.new_spec
            ),
            ("modelprefetches", "CREATE"): granting.judge_prefetch,
            ("modelprefetches", "UPDATE"): granting.judge_prefetch,
        }

    def handle(self, request: Request) -> Response:
        """Answer one request to a path below `/validate` or `/mutate`."""
        if request.method != "POST":
            return _plain(405, "webhooks are called with POST", [("Allow", "POST")])
        try:
            review = Review.from_wire(json.loads(request.body))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            message = str(error) if type(error) is ValueError else "the body is no AdmissionReview"
            return _plain(400, message)
        inquiry = self._inquiries.open(answer_seconds(request.query))
        if request.path.startswith("/mutate"):
            return _answer(review, self._mutate(review, inquiry))
        return _answer(review, self._validate(review, inquiry))

    def _mutate(self, review: Review, inquiry: Inquiry) -> Json:
        target = review.target or "other"
        patch: list[Json] = []
        try:
            if target == "modelartifacts":
                patch = default_revision(review.new.get("spec"))
            elif target == "pods" and self._completes_volumes:
                patch = self._complete_volumes(review, inquiry)
        except _Denied as denied:
            self._observer.reviewed(target, "denied")
            return _denied(review, denied.denials)
        except ApiFault as fault:
            return self._unjudged(target, fault)
        self._observer.reviewed(target, "allowed")
        if not patch:
            return {"allowed": True}
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}

    def _validate(self, review: Review, inquiry: Inquiry) -> Json:
        target = review.target or "other"
        rule = self._rules.get((target, review.operation))
        if rule is None:
            self._observer.reviewed(target, "failed")
            message = (
                f"this worker has no rule for {review.operation} of {target}: remove it from the "
                "webhook configuration, or run a worker that has"
            )
            return _refused(400, "BadRequest", message)
        try:
            denials = rule(review, inquiry)
        except ApiFault as fault:
            return self._unjudged(target, fault)
        self._observer.reviewed(target, "denied" if denials else "allowed")
        return _denied(review, denials) if denials else {"allowed": True}

    def _unjudged(self, target: str, fault: ApiFault) -> Json:
        _log.warning("a review of %s failed: %s %s", target, fault, fault.detail)
        self._observer.reviewed(target, "failed")
        return _refused(500, "InternalError", f"the worker cannot judge this now: {fault}")

    def _complete_volumes(self, review: Review, inquiry: Inquiry) -> list[Json]:
        """Return the patch that completes a Pod's volumes.

        Raises:
            _Denied: one names an artifact that cannot be mounted; all such are said at once.
            ApiFault: the API server does not say.
        """
        completing = [_completing(gap, review.namespace, inquiry) for gap in gaps(review.new)]
        found = [complete_one() for complete_one in completing]
        if denials := [one for one in found if isinstance(one, Denial)]:
            raise _Denied(*denials)
        return [step for steps in found if isinstance(steps, list) for step in steps]

    def _judge_artifact(self, review: Review, inquiry: Inquiry) -> tuple[Denial, ...]:
        spec = review.new.get("spec") or {}
        of_image = bool((spec.get("source") or {}).get("image"))
        return judge_artifact(spec, image_volumes=of_image and inquiry.ask(_mounts_images)())

    def _judge_store_status(self, review: Review, inquiry: Inquiry) -> tuple[Denial, ...]:
        verdict = judge_store_status(review.requester, review.name, self._principals.plugin)
        if not isinstance(verdict, BoundPod):
            return verdict
        namespace = self._principals.namespace
        pod = inquiry.ask(lambda kube: _find_pod(kube, verdict.name, namespace))()
        return judge_bound_pod(verdict, pod, review.name)


def _completing(gap: Gap, namespace: str, inquiry: Inquiry) -> Answer[list[Json] | Denial]:
    """Begin to look for what completes a volume."""
    if fault := name_fault(gap):
        return lambda: fault

    def look(kube: Kube) -> list[Json] | Denial:
        try:
            body = kube.get(MODEL_ARTIFACTS, gap.artifact, namespace)
        except NotFound:
            return complete(gap, None, namespace)
        return complete(gap, ModelArtifact.from_wire(body), namespace)

    return inquiry.ask(look)


def _mounts_images(kube: Kube) -> bool:
    """Ask the cluster for its version; one that does not answer counts as too old."""
    try:
        version = json.loads(kube.get_raw("/version", timeout_seconds=LOOK_SECONDS))
    except (ApiFault, ValueError):
        return False
    return mounts_images(version)


def _find_pod(kube: Kube, name: str, namespace: str) -> PodFacts | None:
    """Look a Pod up, not in a copy: the plugin's Pod may be younger than any copy."""
    try:
        pod = kube.get(PODS, name, namespace)
    except NotFound:
        return None
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    return PodFacts(metadata.get("uid", ""), spec.get("nodeName", ""))


def _denied(review: Review, denials: Sequence[Denial]) -> Json:
    message = "; ".join(f"{denial.message} ({denial.field})" for denial in denials)
    causes = [
        {"reason": "FieldValueInvalid", "message": denial.message, "field": denial.field}
        for denial in denials
    ]
    details = {
        "name": review.name,
        "group": review.group,
        "kind": review.resource,
        "causes": causes,
    }
    answer = _refused(422, "Invalid", message)
    answer["status"]["details"] = details
    return answer


def _refused(code: int, reason: str, message: str) -> Json:
    status = {"code": code, "reason": reason, "status": "Failure", "message": message}
    return {"allowed": False, "status": status}


def _answer(review: Review, verdict: Json) -> Response:
    body = {
        "apiVersion": REVIEW_VERSION,
        "kind": "AdmissionReview",
        "response": {"uid": review.uid} | verdict,
    }
    return Response(200, [("Content-Type", "application/json")], json.dumps(body).encode())


def _plain(code: int, message: str, headers: list[tuple[str, str]] | None = None) -> Response:
    content = [("Content-Type", "text/plain; charset=utf-8"), *(headers or [])]
    return Response(code, content, f"{message}\n".encode())
