"""The schemas under chart/crds and the records name the same fields, with the same bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustack_delivery.vocabulary import artifact, grants, node_store, prefetch
from gpustack_delivery.vocabulary.manifest import is_digest
from gpustack_delivery.vocabulary.resources import (
    MODEL_ARTIFACTS,
    MODEL_PREFETCHES,
    MODEL_STORE_BINDINGS,
    MODEL_STORES,
    NODE_MODEL_STORES,
    Json,
    Resource,
)

CRDS = Path(__file__).parents[3] / "chart" / "crds"
KINDS = {
    resource.plural: resource
    for resource in (
        MODEL_ARTIFACTS,
        NODE_MODEL_STORES,
        MODEL_STORES,
        MODEL_STORE_BINDINGS,
        MODEL_PREFETCHES,
    )
}
COLUMNS = {
    "modelartifacts": "Revision:string Size:integer Resolved:string Age:date",
    "nodemodelstores": "Ready:string Used:integer Age:date",
    "modelstores": "Nodes:integer High:integer Low:integer Age:date",
    "modelstorebindings": "Quota:string AllowPinned:boolean Used:string Phase:string Age:date",
    "modelprefetches": (
        "Artifact:string Binding:string Ready:integer Desired:integer Pinned:boolean Age:date"
    ),
}
SHORT_NAMES = {
    "modelartifacts": "mart",
    "nodemodelstores": "nms",
    "modelstores": "ms",
    "modelstorebindings": "msb",
    "modelprefetches": "mpf",
}
# Values a schema's type alone does not tell; a selector is written back in expressions only.
SAMPLES: dict[str, Any] = {
    "ttlAfterLastUse": "72h",
    "expectedDigest": "sha256:" + "0" * 64,
    "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
}


def load(plural: str) -> Json:
    """Return a CRD."""
    crd: Json = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return crd


def schema(plural: str) -> Json:
    """Return a CRD's only schema."""
    (version,) = load(plural)["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found


def sample(name: str, node: Json) -> Any:
    """Return a value of a schema with every property set."""
    kind = "quantity" if node.get("x-kubernetes-int-or-string") else node["type"]
    if name in SAMPLES or kind == "string":
        values = node.get("enum") or [SAMPLES.get(name, f"a {name}")]
        return "2026-09-25T06:00:00Z" if node.get("format") == "date-time" else values[0]
    if kind == "object":
        return {key: sample(key, child) for key, child in node.get("properties", {}).items()}
    if kind == "array":
        return [sample(name, node["items"])]
    return {"integer": node.get("maximum", 7), "boolean": True, "quantity": "1Gi"}[kind]


RECORDS: list[tuple[str, str, Callable[[Json], Json]]] = [
    ("modelartifacts", "status", lambda wire: artifact.Status.from_wire(wire).to_wire()),
    ("nodemodelstores", "spec", lambda wire: node_store.Spec.from_wire(wire).to_wire()),
    ("nodemodelstores", "status", lambda wire: node_store.Status.from_wire(wire).to_wire()),
    ("modelstores", "spec", lambda wire: grants.StoreSpec.from_wire(wire).to_wire()),
    ("modelstores", "status", lambda wire: grants.StoreStatus.from_wire(wire).to_wire()),
    ("modelstorebindings", "spec", lambda wire: grants.BindingSpec.from_wire(wire).to_wire()),
    ("modelstorebindings", "status", lambda wire: grants.BindingStatus.from_wire(wire).to_wire()),
    ("modelprefetches", "spec", lambda wire: prefetch.Spec.from_wire(wire).to_wire()),
    ("modelprefetches", "status", lambda wire: prefetch.Status.from_wire(wire).to_wire()),
]


@pytest.mark.parametrize(("plural", "part", "round_trip"), RECORDS)
def test_records_carry_every_field(
    plural: str, part: str, round_trip: Callable[[Json], Json]
) -> None:
    """A full object survives its record: each field is read, and written as it was."""
    wire = sample(part, schema(plural)["properties"][part])
    assert round_trip(wire) == wire


@pytest.mark.parametrize("member", ["huggingFace", "modelScope", "persistentVolumeClaim", "image"])
def test_artifact_specs_carry_every_field(member: str) -> None:
    """An artifact of each kind of source survives its record."""
    wire = sample("spec", schema("modelartifacts")["properties"]["spec"])
    wire["source"] = {member: wire["source"][member]}
    assert artifact.Spec.from_wire(wire).to_wire() == wire


@pytest.mark.parametrize(("plural", "part", "round_trip"), RECORDS)
def test_records_live_with_the_least(
    plural: str, part: str, round_trip: Callable[[Json], Json]
) -> None:
    """An object with required fields only reads, and nothing optional is written back."""
    node = schema(plural)["properties"][part]
    wire = _required(part, node)
    back = round_trip(wire)
    always = {"capacity"} if (plural, part) == ("nodemodelstores", "status") else set()
    assert set(back) - always == set(wire)


def _required(name: str, node: Json) -> Any:
    if node.get("type") != "object" or name in SAMPLES:
        return sample(name, node)
    wanted = node.get("required", [])
    return {key: _required(key, node["properties"][key]) for key in wanted}


@pytest.mark.parametrize("plural", KINDS)
def test_names(plural: str) -> None:
    """Group, version, scope, names, columns and the status subresource are as agreed."""
    crd = load(plural)
    resource: Resource = KINDS[plural]
    spec, names = crd["spec"], crd["spec"]["names"]
    (version,) = spec["versions"]
    assert crd["metadata"]["name"] == f"{plural}.{resource.group}"
    assert (spec["group"], version["name"]) == (resource.group, resource.version)
    assert (names["kind"], names["plural"]) == (resource.kind, plural)
    assert spec["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
    assert names["shortNames"] == [SHORT_NAMES[plural]]
    assert names["categories"] == ["gpustack"]
    assert version["subresources"] == {"status": {}}
    columns = [f"{item['name']}:{item['type']}" for item in version["additionalPrinterColumns"]]
    assert " ".join(columns) == COLUMNS[plural]


def nodes(path: str, node: Json) -> Iterator[tuple[str, Json]]:
    """Walk a schema."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(f"{path}.{name}", child)
    if "items" in node:
        yield from nodes(f"{path}[]", node["items"])


@pytest.mark.parametrize("plural", KINDS)
def test_every_field_is_explained(plural: str) -> None:
    """`kubectl explain` has a sentence for every field but the metadata it knows itself."""
    for path, node in nodes(plural, schema(plural)):
        if path.endswith("[]") or path == f"{plural}.metadata":
            continue
        assert node.get("description", "").endswith("."), path


@pytest.mark.parametrize("plural", KINDS)
def test_lists_say_how_they_merge(plural: str) -> None:
    """Conditions and models merge by their key; every other list is replaced whole."""
    for path, node in nodes(plural, schema(plural)):
        if node.get("type") != "array":
            continue
        keys = {"conditions": ["type"], "models": ["digest"]}.get(path.rpartition(".")[2])
        assert node["x-kubernetes-list-type"] == ("map" if keys else "atomic"), path
        assert node.get("x-kubernetes-list-map-keys") == keys, path


def field(plural: str, path: str) -> Json:
    """Return the schema of a field."""
    return dict(nodes("", schema(plural)))[path]


@pytest.mark.parametrize(
    ("plural", "path", "bounds"),
    [
        ("nodemodelstores", ".spec.watermarks.highPercent", {"minimum": 2, "maximum": 95}),
        ("nodemodelstores", ".spec.watermarks.lowPercent", {"minimum": 1, "maximum": 94}),
        ("nodemodelstores", ".spec.download.concurrency", {"minimum": 1, "maximum": 64}),
        ("nodemodelstores", ".spec.download.bytesPerSecond", {"minimum": 0}),
        ("nodemodelstores", ".status.models", {"maxItems": node_store.MAX_MODELS}),
        ("modelstores", ".spec.watermarks.highPercent", {"minimum": 2, "maximum": 95}),
        ("modelstores", ".spec.download.concurrency", {"minimum": 1, "maximum": 64}),
        ("modelstorebindings", ".spec.storeRefs", {"minItems": 1, "maxItems": 8}),
        ("modelprefetches", ".spec.placement.instanceTypes", {"minItems": 1, "maxItems": 8}),
        ("modelprefetches", ".spec.minReady", {"minimum": 0, "default": 0}),
        ("modelartifacts", ".spec.allowPatterns", {"maxItems": 32}),
        ("modelartifacts", ".spec.ignorePatterns[]", {"minLength": 1, "maxLength": 256}),
        (
            "modelartifacts",
            ".spec.source.huggingFace.repository",
            {"minLength": 1, "maxLength": 256},
        ),
        ("modelartifacts", ".spec.source.modelScope.revision", {"maxLength": 255}),
        ("modelartifacts", ".spec.source.persistentVolumeClaim.path", {"maxLength": 1024}),
    ],
)
def test_bounds(plural: str, path: str, bounds: Json) -> None:
    """The published bounds stand in the schema."""
    node = field(plural, path)
    assert {key: node.get(key) for key in bounds} == bounds


def test_expected_digest_pattern_agrees_with_is_digest() -> None:
    """The schema's pattern takes what the code takes."""
    assert field("modelartifacts", ".spec.expectedDigest")["pattern"] == "^sha256:[0-9a-f]{64}$"
    assert is_digest(SAMPLES["expectedDigest"])
