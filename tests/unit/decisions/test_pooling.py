"""Pools: how many nodes, what they hold, who has which override, and who overlaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions.pooling import PoolNode, describe
from gpustack_delivery.vocabulary.conditions import Condition, find
from gpustack_delivery.vocabulary.grants import ModelStore, StoreStatus
from gpustack_delivery.vocabulary.node_store import NodeModelStore

NOW = 1_000_000.0
GPU = {"pool": "gpu"}


def store(name: str, labels: dict[str, str] | None = None, **spec: Any) -> ModelStore:
    """Return a ModelStore over some labels."""
    selector = {"matchLabels": labels or {}}
    body = {"metadata": {"name": name}, "spec": {"nodeSelector": selector, **spec}}
    return ModelStore.from_wire(body)


def node(
    winner: str = "", *, labels: dict[str, str] | None = None, total: int = 0, concurrency: int = 8
) -> PoolNode:
    """Return a node with an object that names the winning store."""
    spec = {
        "watermarks": {"highPercent": 80, "lowPercent": 70},
        "download": {"concurrency": concurrency},
        "hub": {"huggingFaceEndpoint": "https://huggingface.co"},
        "store": winner,
    }
    status = {"capacity": {"totalBytes": total, "storedBytes": total // 2}} if total else {}
    found = NodeModelStore.from_wire({"metadata": {"name": "n"}, "spec": spec, "status": status})
    return PoolNode(labels or GPU, has_plugin=True, store=found)


def reasons(status: StoreStatus) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {each.type: (each.status, each.reason) for each in status.conditions}


def message(status: StoreStatus, kind: str) -> str:
    """Return a condition's message."""
    found = find(status.conditions, kind)
    assert found is not None
    return found.message


def test_a_pool_of_its_own_is_counted_and_added_up() -> None:
    """Matched nodes alone, and only those that reported have a capacity."""
    nodes = {"a": node("p", total=10), "b": node("p"), "c": PoolNode({}, has_plugin=True)}
    status = describe(store("p", GPU), [store("q", {"pool": "cpu"})], nodes, NOW)
    assert (status.nodes, status.total_bytes, status.stored_bytes) == (2, 10, 5)
    assert reasons(status) == {
        "Ready": ("True", "Applied"),
        "SelectorOverlap": ("False", "Exclusive"),
    }


def test_a_pool_without_nodes_is_ready_and_has_no_capacity() -> None:
    """Nothing to apply is applied."""
    status = describe(store("p", GPU), [], {"c": PoolNode({}, has_plugin=True)}, NOW)
    assert (status.nodes, status.total_bytes) == (0, None)
    assert reasons(status)["Ready"] == ("True", "NoNodes")


def test_overrides_are_applied_when_every_node_follows_them() -> None:
    """A node of another store, one with older values, and one whose object is to come wait."""
    pool = store(
        "p", GPU, download={"concurrency": 3}, watermarks={"highPercent": 80, "lowPercent": 70}
    )
    waiting = {
        "a": node("p", concurrency=3),
        "b": node("p"),
        "c": node("", concurrency=3),
        "d": PoolNode(GPU, has_plugin=True),
        "e": PoolNode(GPU, has_plugin=False),
    }
    status = describe(pool, [], waiting, NOW)
    assert reasons(status)["Ready"] == ("False", "Applying")
    assert "3 of 5 nodes do not have the overrides yet: b, c, d" in message(status, "Ready")
    del waiting["b"], waiting["c"], waiting["d"]
    assert reasons(describe(pool, [], waiting, NOW))["Ready"] == ("True", "Applied")


def test_overlap_is_said_by_both_and_the_later_name_is_overridden() -> None:
    """The winner keeps Applied; the message names a few of many."""
    nodes = {"a": node("a"), "b": node("b", labels={"x": "y"})}
    first, second = store("a", GPU), store("b")
    winner = describe(first, [second], nodes, NOW)
    loser = describe(second, [first], nodes, NOW)
    assert reasons(winner) == {
        "Ready": ("True", "Applied"),
        "SelectorOverlap": ("True", "SharedNodes"),
    }
    assert reasons(loser) == {
        "Ready": ("False", "Overridden"),
        "SelectorOverlap": ("True", "SharedNodes"),
    }
    crowd = [store(f"s{number}") for number in range(5)]
    assert "s0, s1, s2 and 2 more" in message(describe(first, crowd, nodes, NOW), "SelectorOverlap")


def test_a_selector_that_is_none_selects_nothing_and_says_so() -> None:
    """It does not even overlap."""
    body = {
        "metadata": {"name": "p"},
        "spec": {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
    }
    status = describe(ModelStore.from_wire(body), [store("q")], {"a": node("q")}, NOW)
    assert status.nodes == 0
    assert reasons(status)["Ready"] == ("False", "SelectorInvalid")


def test_transition_times_stay_while_nothing_changes() -> None:
    """A pass over a pool at rest gives the status it has."""
    pool = store("p", GPU)
    status = describe(pool, [], {"a": node("p")}, NOW)
    again = describe(replace(pool, status=status), [], {"a": node("p")}, NOW + 60)
    assert again == status
    assert isinstance(again.conditions[0], Condition)
