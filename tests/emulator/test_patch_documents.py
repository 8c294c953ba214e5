"""JSON patch, merge patch and strategic merge patch on plain documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from emulator.contracts import Json, Patch, Resource, Target
from emulator.errors import ApiError
from emulator.patches import FieldPatcher
from emulator.patches.documents import json_patch, merge_patch
from emulator.patches.strategic import strategic_merge_patch

WIDGETS = Resource("rig.example.io", "v1", "widgets", "Widget", custom=True)
DOCUMENT: Json = {"a": {"b": [1, 2]}, "c": None, "d/e": {"~": 1}}


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/a/b/1", "value": 9}], {"a": {"b": [1, 9, 2]}}),
        ([{"op": "add", "path": "/a/b/-", "value": 9}], {"a": {"b": [1, 2, 9]}}),
        ([{"op": "remove", "path": "/a/b/0"}], {"a": {"b": [2]}}),
        ([{"op": "replace", "path": "/a/new", "value": 1}], {"a": {"b": [1, 2], "new": 1}}),
        ([{"op": "test", "path": "/missing", "value": None}], {}),
        ([{"op": "test", "path": "/a", "value": {"b": [1.0, 2]}}], {}),
        ([{"op": "replace", "path": "/d~1e/~0", "value": 2}], {"d/e": {"~": 2}}),
        ([{"op": "copy", "from": "/a/b/0", "path": "/a/b/-"}], {"a": {"b": [1, 2, 1]}}),
        ([{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": [1, 2]}),
    ],
)
def test_json_patch_operations(operations: list[Json], result: Json) -> None:
    """Each operation of RFC 6902 does what it says, and leaves its input alone."""
    before = copy.deepcopy(DOCUMENT)
    assert json_patch(DOCUMENT, operations) == DOCUMENT | result
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "remove", "path": "/a/missing"},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/a/b/7", "value": 1},
        {"op": "replace", "path": "/a/b/-", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "", "value": []},
        {"op": "add", "path": "/a"},
        {"op": "move", "from": "/nowhere", "path": "/a"},
        {"op": "explode", "path": "/a"},
        {"path": "/a"},
        "nonsense",
    ],
)
def test_json_patch_that_does_not_fit(operation: Any) -> None:
    """A patch that cannot be applied is the server's wordless 422."""
    with pytest.raises(ApiError) as caught:
        json_patch(DOCUMENT, [operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.status["details"] == {}


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "b"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ],
)
def test_merge_patch(document: Json, patch: Json, result: Json) -> None:
    """Null deletes, maps merge, everything else replaces (the examples of RFC 7386)."""
    assert merge_patch(document, patch) == result


def test_patches_of_the_wrong_form() -> None:
    """A patch that is no list, or no object, is named by its JSON type."""
    with pytest.raises(ApiError, match="cannot unmarshal object into Go value of type"):
        json_patch({}, {"op": "add"})
    with pytest.raises(ApiError, match="cannot unmarshal array into Go value of type map"):
        merge_patch({}, [])


POD: Json = {
    "spec": {
        "containers": [
            {"name": "a", "image": "1", "ports": [{"containerPort": 1}]},
            {"name": "b", "image": "1"},
        ],
        "tolerations": [{"key": "x"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
    },
    "metadata": {"finalizers": ["f/1"]},
}


@pytest.mark.parametrize(
    ("patch", "place", "result"),
    [
        ({"containers": [{"name": "b", "image": "2"}]}, "containers", ["1", "2"]),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, "containers", ["1"]),
        ({"containers": [{"$patch": "replace"}, {"name": "c", "image": "3"}]}, "containers", ["3"]),
        (
            {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
                "containers": [{"name": "c", "image": "3"}],
            },
            "containers",
            ["3", "1", "1"],
        ),
    ],
)
def test_strategic_merge_of_keyed_lists(patch: Json, place: str, result: list[str]) -> None:
    """Containers merge by name, and the directives delete, replace and order them."""
    patched = strategic_merge_patch(POD, {"spec": patch})
    assert [container["image"] for container in patched["spec"][place]] == result


def test_strategic_merge_of_other_values() -> None:
    """Lists without a key are replaced, finalizers add up, retained keys push out the others."""
    patch = {
        "metadata": {"finalizers": ["f/2"], "$deleteFromPrimitiveList/finalizers": ["f/1"]},
        "spec": {
            "tolerations": [{"key": "y"}],
            "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}],
        },
    }
    patched = strategic_merge_patch(POD, patch)
    assert patched["metadata"]["finalizers"] == ["f/2"]
    assert patched["spec"]["tolerations"] == [{"key": "y"}]
    assert patched["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_strategic_merge_refusals() -> None:
    """An item without its key and an unknown directive are 400."""
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        strategic_merge_patch(POD, {"spec": {"containers": [{"image": "2"}]}})
    with pytest.raises(ApiError, match="Unknown patch type found: explode"):
        strategic_merge_patch(POD, {"spec": {"$patch": "explode"}})


def test_a_custom_resource_takes_no_strategic_merge() -> None:
    """The refusal lists the types that the resource does take."""
    patch = Patch("application/strategic-merge-patch+json", {})
    with pytest.raises(ApiError) as caught:
        FieldPatcher().patch(Target(WIDGETS), patch, {}, {})
    assert caught.value.message.endswith(
        "accepted media types include: application/json-patch+json, "
        "application/merge-patch+json, application/apply-patch+yaml"
    )
    assert caught.value.code == 415
