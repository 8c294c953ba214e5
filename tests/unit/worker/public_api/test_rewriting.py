"""The public and the stored version of objects and patches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpustack_delivery.worker.public_api.rewriting import (
    APPLY_PATCH,
    JSON_PATCH,
    PUBLIC,
    STORED,
    delete_options,
    published,
    stored_object,
    stored_patch,
)
from gpustack_delivery.worker.public_api.statuses import Refused

MERGE = "application/merge-patch+json"


def managed(version: str) -> dict[str, Any]:
    """Return metadata with one manager of a version and one of another group."""
    return {"managedFields": [{"apiVersion": version}, {"apiVersion": "apps/v1"}]}


def encoded(body: Any) -> bytes:
    """Return JSON."""
    return json.dumps(body).encode()


def test_publishes_objects_lists_and_rows() -> None:
    """The version changes in the object, its managers, its items and its rows; nowhere else."""
    item = {"apiVersion": STORED, "metadata": managed(STORED), "spec": {"apiVersion": STORED}}
    seen = {"apiVersion": PUBLIC, "metadata": managed(PUBLIC), "spec": {"apiVersion": STORED}}
    assert published(item) == seen
    assert published({"apiVersion": STORED, "items": [item]})["items"] == [seen]
    assert published({"kind": "Table", "rows": [{"object": item}]})["rows"] == [{"object": seen}]
    status = {"apiVersion": "v1", "kind": "Status", "metadata": {}}
    assert published(status) == status


def test_objects_must_say_the_public_version() -> None:
    """Another version, no object and an unknown format are refused; YAML is read."""
    body = {"apiVersion": PUBLIC, "metadata": managed(PUBLIC)}
    stored = {"apiVersion": STORED, "metadata": managed(STORED)}
    assert stored_object(encoded(body), "application/json; charset=utf-8") == stored
    assert stored_object(f"apiVersion: {PUBLIC}".encode(), "application/yaml") == {
        "apiVersion": STORED
    }
    for raw, media, code in (
        (encoded({"apiVersion": STORED}), "application/json", 400),
        (encoded([]), "application/json", 400),
        (b"a: [&x 1, *x]", "application/yaml", 400),
        (b"\xff\x00", "application/json", 400),
        (encoded(body), "application/vnd.kubernetes.protobuf", 415),
    ):
        with pytest.raises(Refused) as refused:
            stored_object(raw, media)
        assert refused.value.code == code, raw


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"path": "/apiVersion", "value": PUBLIC}, {"path": "/apiVersion", "value": STORED}),
        ({"path": "/spec/x", "value": PUBLIC}, {"path": "/spec/x", "value": PUBLIC}),
        (
            {"path": "", "value": {"apiVersion": PUBLIC}},
            {"path": "", "value": {"apiVersion": STORED}},
        ),
        (
            {"path": "/metadata", "value": managed(PUBLIC)},
            {"path": "/metadata", "value": managed(STORED)},
        ),
        (
            {"path": "/metadata/managedFields", "value": managed(PUBLIC)["managedFields"]},
            {"path": "/metadata/managedFields", "value": managed(STORED)["managedFields"]},
        ),
        (
            {"path": "/metadata/managedFields/0/apiVersion", "value": PUBLIC},
            {"path": "/metadata/managedFields/0/apiVersion", "value": STORED},
        ),
        ({"path": "/metadata/managedFields/0"}, {"path": "/metadata/managedFields/0"}),
    ],
)
def test_json_patches_speak_of_the_stored_object(step: Any, expected: Any) -> None:
    """Only what names the version is changed, wherever an operation can name it."""
    op = {"op": "test"}
    assert stored_patch(encoded([op | step]), JSON_PATCH) == [op | expected]


def test_other_patches() -> None:
    """A merge patch need not name the version; an apply must; a strategic one is not taken."""
    assert stored_patch(encoded({"spec": None}), MERGE) == {"spec": None}
    assert stored_patch(encoded({"apiVersion": PUBLIC}), MERGE) == {"apiVersion": STORED}
    assert stored_patch(encoded({"apiVersion": PUBLIC}), APPLY_PATCH) == {"apiVersion": STORED}
    for raw, media, code in (
        (encoded({}), APPLY_PATCH, 400),
        (encoded({}), JSON_PATCH, 400),
        (encoded([]), MERGE, 400),
        (encoded({}), "application/strategic-merge-patch+json", 415),
    ):
        with pytest.raises(Refused) as refused:
            stored_patch(raw, media)
        assert refused.value.code == code, media


def test_delete_options_are_of_any_group() -> None:
    """Options that a client wrote in the public group are those of the core."""
    options = {"apiVersion": PUBLIC, "kind": "DeleteOptions", "preconditions": {"uid": "u"}}
    assert json.loads(delete_options(encoded(options))) == options | {"apiVersion": "v1"}
    assert delete_options(b"") == b""
    with pytest.raises(Refused):
        delete_options(b"[]")
