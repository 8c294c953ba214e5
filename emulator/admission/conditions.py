"""matchConditions: expressions that must hold before a webhook is asked."""

from __future__ import annotations

import threading
from typing import Any

from emulator.admission import review
from emulator.admission.matching import Match
from emulator.cel.functions import EvaluationError
from emulator.cel.parser import CompileError, Expression, compile_expression
from emulator.contracts import Attributes, Json
from emulator.errors import forbidden

_VARIABLES: dict[str, Json | None] = {"object": None, "oldObject": None, "request": None}


def fault(expression: str) -> str:
    """Return why an expression cannot be compiled, or ""."""
    try:
        compile_expression(expression, _VARIABLES)
    except CompileError as caught:
        return str(caught)
    return ""


class Conditions:
    """Evaluates conditions; compiled ones are kept. Thread-safe."""

    def __init__(self) -> None:
        """Start with nothing compiled."""
        self._lock = threading.Lock()
        self._compiled: dict[str, Expression] = {}

    def hold(self, match: Match, attributes: Attributes) -> bool:
        """Say whether every condition of a webhook is true.

        A false one decides, whatever the others do. Otherwise an expression that fails refuses the
        write, or leaves the webhook out when its failures are ignored. Raises ApiError 403.
        """
        conditions = match.webhook.get("matchConditions") or ()
        if not conditions:
            return True
        sent = review.request(attributes, match.resource, "")["request"]
        variables = {"object": sent["object"], "oldObject": sent["oldObject"], "request": sent}
        failure = ""
        for condition in conditions:
            try:
                if self._value(condition["expression"], variables) is not True:
                    return False
            except (CompileError, EvaluationError) as caught:
                failure = failure or f'match condition "{condition["name"]}" failed: {caught}'
        if not failure:
            return True
        if match.webhook.get("failurePolicy", "Fail") == "Ignore":
            return False
        raise forbidden(attributes.target.resource, attributes.target.name, failure)

    def _value(self, text: str, variables: dict[str, Any]) -> Any:
        with self._lock:
            expression = self._compiled.get(text)
            if expression is None:
                expression = self._compiled[text] = compile_expression(text, _VARIABLES)
        return expression.eval(variables)
