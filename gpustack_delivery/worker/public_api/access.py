"""Whether somebody may: one SubjectAccessReview a request, asked before anything is done.

Answers are not remembered, so that a right that is taken away is gone with the next request.

Rule: VW-AUT-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from gpustack_delivery.errors import ApiFault
from gpustack_delivery.ports import Errand, Passage
from gpustack_delivery.vocabulary.resources import SUBJECT_ACCESS_REVIEWS
from gpustack_delivery.vocabulary.wire import present
from gpustack_delivery.worker.public_api.front_proxy import Caller
from gpustack_delivery.worker.public_api.statuses import Refused

REVIEW_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody wants to do, as RBAC writes it; `name` and `namespace` may be empty."""

    verb: str
    group: str
    plural: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def resource(self) -> str:
        """Return resource and subresource as RBAC writes them."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


class Access:
    """Asks the API server about other people's rights."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def allows(self, caller: Caller, action: Action) -> bool:
        """Say whether the caller may.

        Raises:
            Refused: nobody can say so now.
        """
        review = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "spec": present(
                {
                    "user": caller.username,
                    "groups": list(caller.groups),
                    "uid": caller.uid,
                    "extra": {key: list(values) for key, values in caller.extra.items()},
                    "resourceAttributes": present(
                        {
                            "verb": action.verb,
                            "group": action.group,
                            "version": "v1",
                            "resource": action.plural,
                            "subresource": action.subresource,
                            "namespace": action.namespace,
                            "name": action.name,
                        }
                    ),
                }
            ),
        }
        errand = Errand(
            "POST",
            SUBJECT_ACCESS_REVIEWS.path(),
            {"Content-Type": "application/json", "Accept": "application/json"},
            msgspec.json.encode(review),
        )
        try:
            reply = self._passage.pass_on(errand, timeout_seconds=REVIEW_SECONDS)
            raw = reply.read()
        except ApiFault as fault:
            raise _cannot_say() from fault
        if reply.status >= 300:
            raise _cannot_say()
        status = msgspec.json.decode(raw).get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")

    def demand(self, caller: Caller, action: Action) -> None:
        """Let an action pass that its caller may do.

        Raises:
            Refused: they may not, or nobody can say so now.
        """
        if self.allows(caller, action):
            return
        message = (
            f'{action.plural}.{action.group} "{action.name}" is forbidden: '
            f'User "{caller.username}" cannot {action.verb} resource "{action.resource}" in API '
            f'group "{action.group}" '
        )
        message += (
            f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
        )
        details = present({"name": action.name, "group": action.group, "kind": action.plural})
        raise Refused(403, "Forbidden", message, details=details)


def _cannot_say() -> Refused:
    message = "the worker cannot ask the API server about this right now; try again"
    return Refused(500, "InternalError", message)
