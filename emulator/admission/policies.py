"""ValidatingAdmissionPolicies: expressions that the API server itself holds writes against.

Policies and bindings are read from the store at each write. What a policy can name and this server
does not evaluate (parameters, the authorizer) is refused when the policy is written. An audit
action has no effect, because there is no audit log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from emulator.admission import review
from emulator.admission.conditions import Conditions
from emulator.admission.matching import GROUP, Catalogue, Match, Reader, matching
from emulator.cel.functions import EvaluationError
from emulator.cel.parser import CompileError, Expression, compile_expression
from emulator.contracts import Attributes, Json
from emulator.errors import Cause, forbidden, invalid, not_emulated

_POLICIES = (GROUP, "validatingadmissionpolicies")
_BINDINGS = (GROUP, "validatingadmissionpolicybindings")
_VARIABLES: dict[str, Json | None] = dict.fromkeys(
    ("object", "oldObject", "request", "namespaceObject", "variables")
)
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


class Policies:
    """The `contracts.Admission` that evaluates policies. Knows none before `bind`."""

    def __init__(self) -> None:
        """Start unbound, with nothing compiled."""
        self._reader: Reader | None = None
        self._catalogue: Catalogue | None = None
        self._conditions = Conditions()
        self._lock = threading.Lock()
        self._compiled: dict[str, Expression] = {}

    def bind(self, reader: Reader, catalogue: Catalogue) -> None:
        """Say where policies, bindings and namespaces are read, and what is served."""
        self._reader, self._catalogue = reader, catalogue

    def mutate(self, attributes: Attributes, warn: Callable[[str], None]) -> Json | None:
        """Change nothing."""
        return None

    def validate(self, attributes: Attributes, warn: Callable[[str], None]) -> None:
        """Refuse a write that a bound policy denies, and a policy that cannot be evaluated.

        Raises:
            ApiError: 401, 403, 413 or 422 as the validation says; 422 or 501 for the policy.
        """
        self._check_policy(attributes)
        if self._reader is None or self._catalogue is None:
            return
        for binding in self._reader.all(_BINDINGS):
            policy = self._reader.get(_POLICIES, "", binding["spec"].get("policyName", ""))
            match = self._match(policy, binding, attributes) if policy is not None else None
            if policy is not None and match is not None:
                self._judge(policy, binding, (match, attributes), warn)

    def _match(self, policy: Json, binding: Json, attributes: Attributes) -> Match | None:
        """Return how a policy and its binding want to see a write; None when they do not."""
        assert self._reader is not None  # noqa: S101 - `validate` has looked
        assert self._catalogue is not None  # noqa: S101 - the same
        spec = policy["spec"]
        constraints = spec.get("matchConstraints") or {}
        narrowed = {"matchPolicy": "Equivalent", **(binding["spec"].get("matchResources") or {})}
        narrowed.setdefault("resourceRules", constraints.get("resourceRules"))
        found: list[Match] = []
        for part in (narrowed, constraints):
            wanted = {
                **{key: value for key, value in part.items() if key != "resourceRules"},
                "name": policy["metadata"]["name"],
                "rules": part.get("resourceRules"),
                "matchConditions": spec.get("matchConditions"),
                "failurePolicy": spec.get("failurePolicy", "Fail"),
            }
            configuration = {"metadata": binding["metadata"], "webhooks": [wanted]}
            found = matching([configuration], attributes, self._reader, self._catalogue)
            if not found:
                return None
        return found[0] if self._conditions.hold(found[0], attributes) else None

    def _judge(
        self,
        policy: Json,
        binding: Json,
        seen: tuple[Match, Attributes],
        warn: Callable[[str], None],
    ) -> None:
        match, attributes = seen
        scope = self._scope(policy, match, attributes)
        actions = binding["spec"].get("validationActions") or ()
        names = (
            f"ValidatingAdmissionPolicy '{policy['metadata']['name']}' with binding "
            f"'{binding['metadata']['name']}'"
        )
        for validation in policy["spec"].get("validations") or ():
            text = self._fault(policy, validation, scope)
            if text is not None and "Warn" in actions:
                warn(f"Validation failed for {names}: {text}")
            if text is not None and "Deny" in actions:
                message = f"{names} denied request: {text}"
                error = forbidden(attributes.target.resource, attributes.target.name, message)
                reason = validation.get("reason") or "Invalid"
                error.status |= {"reason": reason, "code": _CODES[reason]}
                error.status["details"]["causes"] = [{"message": message}]
                raise error

    def _scope(self, policy: Json, match: Match, attributes: Attributes) -> dict[str, Any]:
        """Return the variables of a policy's expressions."""
        sent = review.request(attributes, match.resource, "")["request"]
        target = attributes.target
        holder = None
        if target.resource.namespaced and self._reader is not None:
            holder = self._reader.get(("", "namespaces"), "", target.namespace)
        variables: dict[str, Any] = {}
        scope = {
            "object": sent["object"],
            "oldObject": sent["oldObject"],
            "request": sent,
            "namespaceObject": holder,
            "variables": variables,
        }
        for variable in policy["spec"].get("variables") or ():
            try:
                variables[variable["name"]] = self._value(variable["expression"], scope)
            except EvaluationError:
                continue  # whoever uses it finds that it is not there
        return scope

    def _fault(self, policy: Json, validation: Json, scope: dict[str, Any]) -> str | None:
        """Return what a validation says against a write, None when it holds."""
        expression = validation["expression"]
        try:
            if self._value(expression, scope) is True:
                return None
        except EvaluationError as error:
            if policy["spec"].get("failurePolicy") == "Ignore":
                return None
            return f"expression '{expression.strip()}' resulted in error: {error}"
        try:
            if validation.get("messageExpression"):
                text = self._value(validation["messageExpression"], scope)
                if isinstance(text, str) and text.strip():
                    return text.strip()
        except EvaluationError:
            pass  # the plain message counts then
        message = str(validation.get("message") or "").strip()
        return message or f"failed expression: {expression.strip()}"

    def _value(self, text: str, scope: dict[str, Any]) -> Any:
        with self._lock:
            compiled = self._compiled.get(text)
            if compiled is None:
                compiled = self._compiled[text] = compile_expression(text, _VARIABLES)
        return compiled.eval(scope)

    def _check_policy(self, attributes: Attributes) -> None:
        """Refuse a policy that names what is not evaluated here, or does not compile."""
        policy, resource = attributes.object, attributes.target.resource
        if resource.collection != _POLICIES or policy is None or attributes.target.subresource:
            return
        spec = policy.get("spec") or {}
        for part in ("paramKind", "auditAnnotations"):
            if spec.get(part):
                raise not_emulated(f"validatingadmissionpolicies spec.{part}")
        if (spec.get("matchConstraints") or {}).get("excludeResourceRules"):
            raise not_emulated(
                "validatingadmissionpolicies spec.matchConstraints.excludeResourceRules"
            )
        faults = [Cause(f, "FieldValueInvalid", text) for f, text in _uncompiled(spec)]
        if faults:
            raise invalid(resource.group, resource.kind, attributes.target.name, faults)


def _uncompiled(spec: Json) -> Iterator[tuple[str, str]]:
    """Yield each expression that does not compile: its field, and what is wrong with it."""
    parts = (
        ("variables", "expression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
        ("matchConditions", "expression"),
    )
    for part, key in parts:
        for index, one in enumerate(spec.get(part) or ()):
            if not one.get(key):
                continue
            try:
                compile_expression(one[key], _VARIABLES)
            except CompileError as error:
                shown = f'Invalid value: "{one[key]}": compilation failed: {error}'
                yield f"spec.{part}[{index}].{key}", shown
