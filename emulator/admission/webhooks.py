"""Mutating and validating webhooks, called as the API server calls them.

Configurations are read from the store at each write. Webhooks are asked one after the other; a real
server asks validating ones at the same time, which shows only in how long several slow ones take.
Time-outs run in real time, on the sockets: a webhook is another program, whatever clock the cluster
has.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import replace

from emulator.admission import configuration, review
from emulator.admission.calling import DEFAULT_TIMEOUT_SECONDS, Caller
from emulator.admission.conditions import Conditions
from emulator.admission.matching import GROUP, Catalogue, Match, Reader, matching
from emulator.admission.review import ReviewFault, Verdict
from emulator.contracts import Attributes, Json
from emulator.errors import ApiError, bad_request, failure
from emulator.patches.documents import json_patch
from emulator.services import Routes

_MUTATING = (GROUP, "mutatingwebhookconfigurations")
_VALIDATING = (GROUP, "validatingwebhookconfigurations")


class Webhooks:
    """The `contracts.Admission` that asks webhooks. Knows none before `bind`."""

    def __init__(self) -> None:
        """Start unbound; `routes` stand in for Services: (namespace, name) to (host, port)."""
        self.routes = Routes()
        self._reader: Reader | None = None
        self._catalogue: Catalogue | None = None
        self._caller: Caller | None = None
        self._conditions = Conditions()

    def bind(self, reader: Reader, catalogue: Catalogue) -> None:
        """Say where configurations, namespaces and Services are read, and what is served."""
        self._reader, self._catalogue = reader, catalogue
        self._caller = Caller(reader, self.routes)

    def mutate(self, attributes: Attributes, warn: Callable[[str], None]) -> Json | None:
        """Return the object as the webhooks patched it, None when none did. Raises ApiError."""
        before = attributes.object
        changed_after: list[Match] = []
        for match in self._matching(_MUTATING, attributes):
            patched = self._mutated(match, attributes, warn)
            if patched is not None:
                attributes = replace(attributes, object=patched)
                again, changed_after = changed_after, []
                for earlier in again:
                    repeated = self._mutated(earlier, attributes, warn)
                    if repeated is not None:
                        attributes = replace(attributes, object=repeated)
            if match.webhook.get("reinvocationPolicy") == "IfNeeded":
                changed_after.append(match)
        return None if attributes.object is before else attributes.object

    def validate(self, attributes: Attributes, warn: Callable[[str], None]) -> None:
        """Ask every validating webhook; raise the first refusal as an ApiError.

        A webhook configuration itself is never shown to webhooks; it is checked here instead.
        """
        unsound = configuration.refusal(attributes)
        if unsound is not None:
            raise unsound
        refusals: list[ApiError] = []
        for match in self._matching(_VALIDATING, attributes):
            try:
                self._ask(match, attributes, warn, mutating=False)
            except ApiError as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    def _matching(self, key: tuple[str, str], attributes: Attributes) -> list[Match]:
        if self._reader is None or self._catalogue is None:
            return []
        configurations = self._reader.all(key)
        if not configurations:
            return []
        return matching(configurations, attributes, self._reader, self._catalogue)

    def _mutated(
        self, match: Match, attributes: Attributes, warn: Callable[[str], None]
    ) -> Json | None:
        verdict = self._ask(match, attributes, warn, mutating=True)
        if verdict is None or not verdict.patch or attributes.object is None:
            return None
        try:
            patched = json_patch(attributes.object, verdict.patch)
        except ApiError as fault:
            raise _internal(fault.message) from None
        return None if patched == attributes.object else patched

    def _ask(
        self, match: Match, attributes: Attributes, warn: Callable[[str], None], *, mutating: bool
    ) -> Verdict | None:
        """Return a webhook's verdict, None when it is not asked or its failure is ignored."""
        name = str(match.webhook["name"])
        try:
            if not self._conditions.hold(match, attributes):
                return None
            if attributes.dry_run and match.webhook.get("sideEffects") not in {
                "None",
                "NoneOnDryRun",
            }:
                raise bad_request(f'admission webhook "{name}" does not support dry run')
            verdict = self._call(match, attributes, mutating=mutating)
        except ReviewFault as fault:
            if match.webhook.get("failurePolicy", "Fail") == "Ignore":
                return None
            raise _internal(f"failed calling webhook {json.dumps(name)}: {fault}") from None
        for warning in verdict.warnings:
            warn(warning)
        if not verdict.allowed:
            raise review.denial(name, verdict.status)
        return verdict

    def _call(self, match: Match, attributes: Attributes, *, mutating: bool) -> Verdict:
        assert self._caller is not None  # noqa: S101 - nothing matches before `bind`
        uid = str(uuid.uuid4())
        sent = review.request(attributes, match.resource, uid)
        timeout = int(match.webhook.get("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS)
        answer = self._caller.post(match.webhook["clientConfig"], copy.copy(sent), timeout)
        return review.verdict(answer, uid, mutating=mutating)


def _internal(message: str) -> ApiError:
    details = {"causes": [{"message": message}]}
    return failure(500, "InternalError", f"Internal error occurred: {message}", details)
