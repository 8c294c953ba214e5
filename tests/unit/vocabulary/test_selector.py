"""Label selectors: every operator, and what is malformed."""

from __future__ import annotations

from typing import Any

import pytest

from gpustack_delivery.vocabulary.selector import Requirement, Selector

LABELS = {"zone": "a", "gpu": ""}


@pytest.mark.parametrize(
    ("wire", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"zone": "a", "gpu": ""}}, True),
        ({"matchLabels": {"zone": "a", "missing": ""}}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "none", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_operators(wire: dict[str, Any], *, matches: bool) -> None:
    """Requirements hold together, with Kubernetes' meaning of each operator."""
    assert Selector.from_wire(wire).matches(LABELS) is matches


@pytest.mark.parametrize(
    "requirement",
    [
        Requirement("zone", "Equals", ("a",)),
        Requirement("zone", "In"),
        Requirement("none", "NotIn"),
        Requirement("zone", "Exists", ("a",)),
        Requirement("none", "DoesNotExist", ("a",)),
    ],
)
def test_malformed_selectors_select_nothing(requirement: Requirement) -> None:
    """An expression that is not well formed is invalid and matches no labels."""
    selector = Selector((requirement,))
    assert not selector.is_valid
    assert not selector.matches(LABELS)


def test_wire_form_means_the_same() -> None:
    """Labels are written as the expressions they stand for."""
    selector = Selector.from_wire({"matchLabels": {"zone": "a"}})
    assert selector.to_wire() == {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]
    }
    assert Selector.from_wire(selector.to_wire()) == selector
