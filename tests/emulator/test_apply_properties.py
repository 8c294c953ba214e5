"""What holds of field ownership for any documents: found by search, not by example."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emulator.contracts import Json
from emulator.patches import typed
from emulator.patches.fields import FieldSet
from emulator.patches.shapes import root_shape
from tests.emulator.test_apply import SCHEMA, Applier, widget

SHAPE = root_shape(SCHEMA, "rig.example.io/v1", "Widget")
NAMES = st.sampled_from(["a", "b", "c", "d"])
ITEMS = st.lists(
    st.fixed_dictionaries({"key": NAMES}, optional={"value": NAMES}),
    max_size=4,
    unique_by=lambda item: item["key"],
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(1, 3),
        "mode": NAMES,
        "tags": st.lists(NAMES, max_size=4, unique=True),
        "items": ITEMS,
    },
)
LABELS = st.dictionaries(NAMES, NAMES, max_size=3)
DOCUMENTS = st.builds(
    lambda spec, labels: widget(spec, **({"labels": labels} if labels else {})), SPECS, LABELS
)
WRITES = st.lists(
    st.tuples(st.sampled_from(["apply", "update"]), st.sampled_from(["m1", "m2", "m3"]), DOCUMENTS),
    min_size=1,
    max_size=6,
)


def owned_by_all(applier: Applier) -> FieldSet:
    """Return everything that anybody owns."""
    result = FieldSet()
    for fields in applier.owned().values():
        result = result.union(FieldSet.from_wire(fields))
    return result


def said(document: Json) -> FieldSet:
    """Return the paths of a document that can be owned."""
    content = {"spec": document.get("spec")} if "spec" in document else {}
    labels = document["metadata"].get("labels")
    metadata = {"labels": labels} if labels else {}
    return typed.owned({**content, **({"metadata": metadata} if metadata else {})}, SHAPE)


def written(writes: list[tuple[str, str, Any]]) -> Applier:
    """Do writes one after the other; applies take what they want."""
    applier = Applier()
    for kind, manager, document in writes:
        if kind == "apply":
            applier.apply(manager, document, force=True)
        else:
            applier.update(manager, document)
    return applier


@given(WRITES, DOCUMENTS)
@settings(max_examples=60, deadline=None)
def test_applying_twice_is_applying_once(writes: list[Any], document: Json) -> None:
    """A second apply of the same document changes nothing, not even a time."""
    applier = written(writes)
    first = copy.deepcopy(applier.apply("m1", document, force=True))
    assert applier.apply("m1", document) == first


@given(WRITES, DOCUMENTS)
@settings(max_examples=60, deadline=None)
def test_an_apply_gets_what_it_says(writes: list[Any], document: Json) -> None:
    """After a forced apply the object says all that the document says, and its applier owns it."""
    applier = written(writes)
    result = applier.apply("m1", document, force=True)
    kept = {"apiVersion", "kind", "metadata", "spec"}
    plain = {key: value for key, value in result.items() if key in kept}
    assert typed.merge(plain, document, SHAPE) == plain
    mine = FieldSet.from_wire(applier.owned().get(("m1", "Apply", ""), {}))
    assert not said(document).difference(mine)
    assert not mine.difference(said(document))


@given(WRITES)
@settings(max_examples=60, deadline=None)
def test_everything_that_is_there_has_an_owner(writes: list[Any]) -> None:
    """Every leaf is owned by someone; a container that a write emptied need not be."""
    applier = written(writes)
    assert applier.object is not None
    assume(applier.owned())  # who lost the last owner stays without any, until an apply comes
    spec = {key: value for key, value in applier.object.get("spec", {}).items() if value != []}
    content = {**applier.object, "spec": spec}
    if not spec:
        del content["spec"]
    assert not said(content).difference(owned_by_all(applier))


@given(WRITES)
@settings(max_examples=60, deadline=None)
def test_nobody_owns_what_is_not_there(writes: list[Any]) -> None:
    """Every path that someone owns exists in the object."""
    applier = written(writes)
    assert applier.object is not None
    everything = typed.compare(typed.ABSENT, applier.object, SHAPE).added
    for element in ("f:spec", "f:metadata"):
        owned = owned_by_all(applier).only(element)
        assert not owned.difference(everything), owned.to_wire()


@given(DOCUMENTS, DOCUMENTS)
@settings(max_examples=60, deadline=None)
def test_a_sole_applier_leaves_nothing_behind(first: Json, second: Json) -> None:
    """What one manager applied and no longer says is gone: only the second document is left."""
    applier = Applier()
    applier.apply("m1", first)
    result = applier.apply("m1", second)
    assert said(result) == said(second)
