"""Server-side apply, and who owns which field after which write."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from emulator.contracts import FieldWrite, Json, Patch, Resource, Target
from emulator.errors import ApiError
from emulator.patches import FieldPatcher
from emulator.patches.fields import FieldSet

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "mode": {"type": "string"},
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"],
                    "items": {
                        "type": "object",
                        "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}
WIDGETS = Resource(
    "rig.example.io", "v1", "widgets", "Widget", subresources=frozenset({"status"}), custom=True
)
PODS = Resource("", "v1", "pods", "Pod", subresources=frozenset({"status"}))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def widget(spec: Json, **metadata: Any) -> Json:
    """Return a Widget as a client would send it."""
    return {
        "apiVersion": "rig.example.io/v1",
        "kind": "Widget",
        "metadata": {"name": "s", "namespace": "t1", **metadata},
        "spec": spec,
    }


class Applier:
    """Applies documents to one object, as the API server does between reading and storing it."""

    def __init__(self, resource: Resource = WIDGETS, schema: Json | None = SCHEMA) -> None:
        self.patcher = FieldPatcher()
        self.resource, self.schema = resource, schema
        self.object: Json | None = None
        self.minute = 0

    def _write(self, manager: str, operation: str, subresource: str, *, force: bool) -> FieldWrite:
        self.minute += 1
        time = f"2026-01-01T00:{self.minute:02}:00Z"
        return FieldWrite(manager, operation, time, subresource, force, self.schema)

    def apply(
        self, manager: str, document: Json, *, force: bool = False, subresource: str = ""
    ) -> Json:
        """Apply a document and keep the result."""
        target = Target(self.resource, "t1", "s", subresource)
        patch = Patch("application/apply-patch+yaml", document)
        write = self._write(manager, "Apply", subresource, force=force)
        self.object = self.patcher.apply(target, patch, self.object, write)
        return self.object

    def update(self, manager: str, document: Json, *, subresource: str = "") -> Json:
        """Replace the object as a plain write does."""
        target = Target(self.resource, "t1", "s", subresource)
        updated = copy.deepcopy(document)
        write = self._write(manager, "Update", subresource, force=False)
        self.patcher.track(target, self.object, updated, write)
        self.object = updated
        return updated

    def owned(self) -> dict[tuple[str, str, str], Json]:
        """Return who owns what: (manager, operation, subresource) to FieldsV1."""
        assert self.object is not None
        return {
            (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
            for entry in self.object["metadata"].get("managedFields", ())
        }


FIELDS: Json = {
    "f:spec": {".": {}, "f:items": {'k:{"key":"k1"}': {".": {}, "f:value": {}}}, "f:size": {}},
    "f:metadata": {"f:finalizers": {'v:"a/b"': {}}},
}


def test_field_sets_read_and_write_fields_v1() -> None:
    """FieldsV1 survives reading and writing, and set algebra holds on it."""
    fields = FieldSet.from_wire(FIELDS)
    assert fields.to_wire() == FIELDS
    spec = fields.only("f:spec")
    assert fields.difference(spec).union(spec) == fields
    assert fields.intersection(spec) == spec
    assert not fields.difference(fields)
    assert fields.without(("f:spec",)).to_wire() == {"f:metadata": FIELDS["f:metadata"]}


def test_apply_owns_leaves_and_items() -> None:
    """An applier owns what it says: leaves and list items, not the containers around them."""
    applier = Applier()
    applier.apply("m1", widget({"size": 2, "items": [{"key": "k1", "value": "v"}]}))
    assert applier.owned() == {
        ("m1", "Apply", ""): {
            "f:spec": {
                "f:items": {'k:{"key":"k1"}': {".": {}, "f:key": {}, "f:value": {}}},
                "f:size": {},
            }
        }
    }


def test_two_appliers_share_a_list_and_conflict_on_a_field() -> None:
    """Items of a keyed list belong to whoever applied them; another's field needs force."""
    applier = Applier()
    applier.apply("m1", widget({"size": 2, "items": [{"key": "k1", "value": "v1"}]}))
    applier.apply("m2", widget({"items": [{"key": "k2", "value": "v2"}]}))
    assert applier.object is not None
    assert [item["key"] for item in applier.object["spec"]["items"]] == ["k1", "k2"]
    taking = widget({"size": 9, "items": [{"key": "k1", "value": "other"}]})
    with pytest.raises(ApiError) as caught:
        applier.apply("m2", taking)
    assert caught.value.message == (
        'Apply failed with 2 conflicts: conflicts with "m1":\n- .spec.size\n'
        '- .spec.items[key="k1"].value'
    )
    forced = applier.apply("m2", widget({"size": 9}), force=True)
    assert forced["spec"]["size"] == 9
    assert [item["key"] for item in forced["spec"]["items"]] == ["k1"]
    assert "f:size" not in applier.owned()["m1", "Apply", ""]["f:spec"]


def test_a_field_no_longer_applied_goes_unless_someone_owns_it() -> None:
    """Dropping a field removes it; one that a plain write changed meanwhile stays."""
    applier = Applier()
    applied = applier.apply("m1", widget({"size": 2, "mode": "x"}, labels={"a": "1"}))
    changed = copy.deepcopy(applied)
    changed["spec"]["mode"] = "y"
    applier.update("editor", changed)
    nothing = widget({})
    del nothing["spec"]
    result = applier.apply("m1", nothing)
    assert result["spec"] == {"mode": "y"}
    assert "labels" not in result["metadata"]
    assert applier.owned() == {("editor", "Update", ""): {"f:spec": {"f:mode": {}}}}


def test_an_item_goes_with_its_applier() -> None:
    """An item that is no longer applied goes, though someone else wrote a field of it."""
    applier = Applier()
    applied = applier.apply("m1", widget({"size": 1, "items": [{"key": "a"}, {"key": "b"}]}))
    changed = copy.deepcopy(applied)
    changed["spec"]["items"][0]["value"] = "v"
    applier.update("editor", changed)
    result = applier.apply("m1", widget({"size": 1, "items": [{"key": "b"}]}))
    assert result["spec"]["items"] == [{"key": "b"}]
    assert ("editor", "Update", "") not in applier.owned()


def test_an_apply_that_changes_nothing_keeps_its_time() -> None:
    """Applying the same document again leaves managedFields as they were."""
    applier = Applier()
    first = applier.apply("m1", widget({"size": 2}))
    assert applier.apply("m1", widget({"size": 2})) == first


def test_an_object_from_before_apply_gets_an_owner() -> None:
    """What an object without managedFields holds belongs to before-first-apply."""
    applier = Applier()
    applier.object = widget({"size": 2})
    with pytest.raises(ApiError, match='conflict with "before-first-apply" using rig'):
        applier.apply("m1", widget({"size": 3}))


@pytest.mark.parametrize(
    ("document", "code", "message"),
    [
        (widget({"bogus": 1}), 500, ".spec.bogus: field not declared in schema"),
        (
            widget({"size": "2"}),
            500,
            r"\.spec\.size: expected numeric \(int or float\), got string",
        ),
        (
            widget({"items": [{"key": "a"}, {"key": "a"}]}),
            500,
            r'\.spec\.items: duplicate entries for key \[key="a"\]',
        ),
        (widget({}, managedFields=[{"manager": "m"}]), 400, "metadata.managedFields must be nil"),
        (widget({}) | {"apiVersion": "rig.example.io/v9"}, 400, "Specified patch version"),
    ],
)
def test_documents_that_cannot_be_applied(document: Json, code: int, message: str) -> None:
    """An apply is refused for undeclared fields, wrong types, repeated keys, a wrong version."""
    with pytest.raises(ApiError, match=message) as caught:
        Applier().apply("m1", document)
    assert caught.value.code == code


def test_plain_writes_own_what_they_changed() -> None:
    """A create owns everything it brought, containers too; an update owns only the difference."""
    applier = Applier()
    applier.update("creator", widget({"size": 1, "tags": ["a"]}, labels={"x": "1"}))
    assert applier.owned() == {
        ("creator", "Update", ""): {
            "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
            "f:spec": {".": {}, "f:size": {}, "f:tags": {".": {}, 'v:"a"': {}}},
        }
    }
    changed = widget({"size": 2, "tags": ["b"]}, labels={"x": "1"})
    applier.update("editor", changed)
    assert applier.owned() == {
        ("creator", "Update", ""): {
            "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
            "f:spec": {".": {}, "f:tags": {}},
        },
        ("editor", "Update", ""): {"f:spec": {"f:size": {}, "f:tags": {'v:"b"': {}}}},
    }


def test_the_status_subresource_has_owners_of_its_own() -> None:
    """A status write owns status alone, under its own entry, and the main resource never does."""
    applier = Applier()
    created = applier.update("m", widget({"size": 1}) | {"status": {"phase": "x"}})
    assert "f:status" not in applier.owned()["m", "Update", ""]
    changed = copy.deepcopy(created)
    changed["status"], changed["spec"]["size"] = {"phase": "Ready"}, 7
    applier.update("m", changed, subresource="status")
    assert applier.owned()["m", "Update", "status"] == {"f:status": {"f:phase": {}}}


def test_writers_may_clear_managed_fields_but_not_lose_them() -> None:
    """One empty entry clears the list for good; leaving the list out changes nothing."""
    applier = Applier()
    created = applier.update("m", widget({"size": 1}))
    kept = applier.update("m", widget({"size": 1}))
    assert kept["metadata"]["managedFields"] == created["metadata"]["managedFields"]
    applier.update("m", widget({"size": 1}, managedFields=[{}]))
    assert applier.owned() == {}
    applier.update("m", widget({"size": 2}))
    assert applier.owned() == {}


def test_built_in_kinds_own_from_their_empty_form() -> None:
    """What a kind's empty object already has is not owned as a whole; keyed lists have items."""
    applier = Applier(PODS, None)
    spec = {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}
    applier.update("m", {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec})
    port = 'k:{"containerPort":80,"protocol":"TCP"}'
    assert applier.owned() == {
        ("m", "Update", ""): {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"c"}': {
                        ".": {},
                        "f:image": {},
                        "f:name": {},
                        "f:ports": {".": {}, port: {".": {}, "f:containerPort": {}}},
                    }
                }
            }
        }
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"bogus": 1}, r"\(/p; /v1, Kind=Pod\): \.spec\.bogus: field not declared in schema"),
        ({"containers": {}}, r"\.spec\.containers: expected list"),
        ({"hostNetwork": "yes"}, r"\.spec\.hostNetwork: expected boolean"),
    ],
)
def test_built_in_kinds_have_a_schema(spec: Json, message: str) -> None:
    """An apply of a built-in kind is refused for fields it does not have, and for wrong types."""
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    with pytest.raises(ApiError, match=message):
        Applier(PODS, None).apply("m1", document)


def test_owner_references_are_owned_whole() -> None:
    """An item that is a reference is one value: its members have no owners."""
    applier = Applier()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    applier.update("m", widget({}, ownerReferences=[owner]))
    fields = applier.owned()["m", "Update", ""]["f:metadata"]
    assert fields == {"f:ownerReferences": {".": {}, 'k:{"uid":"u"}': {}}}


def test_more_than_ten_updaters_are_folded() -> None:
    """The oldest plain updates end up together under ancient-changes."""
    applier = Applier(CONFIG_MAPS, None)
    base: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {}}
    for number in range(13):
        base["data"] |= {f"k{number}": "v"}
        applier.update(f"m{number}", base)
    managers = {manager for manager, _, _ in applier.owned()}
    assert "ancient-changes" in managers
    assert len(managers) == 10


def test_kubectl_takes_over_what_its_client_side_apply_wrote() -> None:
    """Going over to server-side apply needs no force for fields that are still as applied."""
    applier = Applier()
    last = '{"apiVersion":"rig.example.io/v1","kind":"Widget","spec":{"size":1,"mode":"x"}}'
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": last}
    written = widget({"size": 1, "mode": "y"}, annotations=annotation)
    applier.update("kubectl-client-side-apply", written)
    assert applier.apply("kubectl", widget({"size": 2}))["spec"] == {"size": 2, "mode": "y"}
    with pytest.raises(ApiError, match=r"Apply failed with 1 conflict: .*: \.spec\.mode$"):
        applier.apply("kubectl", widget({"size": 3, "mode": "z"}))


def test_kubectl_keeps_its_annotation_true() -> None:
    """Server-side apply by kubectl refreshes the annotation that client-side apply left."""
    applier = Applier()
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    applier.update("kubectl-client-side-apply", widget({"size": 1}, annotations={annotation: "{}"}))
    result = applier.apply("kubectl", widget({"size": 1}))
    assert '"spec":{"size":1}' in result["metadata"]["annotations"][annotation]
