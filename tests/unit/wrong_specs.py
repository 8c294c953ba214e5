"""Every wrong spec of every kind, made from the schemas under chart/crds and from one good spec."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from gpustack_delivery.vocabulary.resources import Json

Step: TypeAlias = str | int
Place: TypeAlias = tuple[Step, ...]
CRDS: Final = Path(__file__).parents[2] / "chart" / "crds"
CONSUMERS: Final = CRDS.parent / "templates"
DIGEST: Final = "sha256:" + "0" * 64
ODD: Final = "模\n\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\0"
SELECTOR: Final = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
}
TEMPLATE: Final = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {
        "nodeSelector": {"no-node": "is-like-this"},
        "containers": [{"name": "c", "image": "i", "volumeMounts": []}],
        "initContainers": [],
        "volumes": [],
        "affinity": {"nodeAffinity": {}},
    },
}
WRONG: Final[dict[str, tuple[object, ...]]] = {
    "string": (5, True, [], {}, "", " ", ODD, "x" * 70_000, "../..", "-", "9" * 400 + "h"),
    "integer": ("5", 1.5, True, [], {}, -1, 0, 1, 2**31, 2**63 - 1, 2**63, -(2**63)),
    "boolean": ("true", 1, [], {}),
    "array": ("x", 5, {}, [], [None], ["x"] * 1000),
    "object": ("x", 5, True, [], {}),
    "quantity": ("", "x", True, [], {}, 1.5, -1, "-1Gi", "1e999", "9" * 400, "0"),
}
GOOD: Final[dict[str, tuple[Json, ...]]] = {
    "ModelArtifact": (
        {
            "source": {
                "huggingFace": {
                    "repository": "org/model",
                    "revision": "main",
                    "secretRef": {"name": "token"},
                }
            },
            "allowPatterns": ["*"],
            "ignorePatterns": ["*.md"],
            "expectedDigest": DIGEST,
        },
        {
            "source": {
                "modelScope": {
                    "repository": "org/model",
                    "revision": "master",
                    "secretRef": {"name": "token"},
                }
            }
        },
        {"source": {"persistentVolumeClaim": {"claimName": "claim", "path": "a/b"}}},
        {"source": {"image": {"reference": f"image@{DIGEST}"}}},
    ),
    "ModelStore": (
        {
            "nodeSelector": SELECTOR,
            "watermarks": {"highPercent": 80, "lowPercent": 70},
            "download": {"concurrency": 4, "bytesPerSecond": 1000},
        },
    ),
    "ModelStoreBinding": (
        {"storeRefs": [{"name": "store"}], "quota": {"bytes": "1Gi"}, "allowPinned": True},
    ),
    "ModelPrefetch": (
        {
            "artifactRef": {"name": "artifact"},
            "bindingRef": {"name": "binding"},
            "placement": {"instanceTypes": ["type"]},
            "minReady": 0,
            "retention": {"pinned": False, "ttlAfterLastUse": "72h"},
        },
        {
            "artifactRef": {"name": "artifact"},
            "bindingRef": {"name": "binding"},
            "placement": {"nodeSelector": SELECTOR},
        },
    ),
    "ModelDeployment": (
        {
            "model": {"artifactRef": {"name": "artifact"}, "mountPath": "/model"},
            "roles": [{"name": "r", "instanceType": "type", "replicas": 1, "template": {}}],
        },
        {"roles": [{"name": "r", "template": TEMPLATE}]},
    ),
    "Instance": (
        {
            "additionalVolumes": [
                {
                    "name": "v",
                    "mountPath": "/model",
                    "model": {"artifactRef": {"name": "artifact"}},
                }
            ],
            "template": {},
        },
        {"template": TEMPLATE},
    ),
    "InstanceType": (
        {
            "acceleratable": True,
            "acceleratorGroup": "nvidia",
            "generalGroup": "generic",
            "os": "linux",
            "arch": "amd64",
        },
    ),
    "NodeModelStore": (
        {
            "watermarks": {"highPercent": 80, "lowPercent": 70},
            "download": {"concurrency": 4, "bytesPerSecond": 1000},
            "hub": {
                "huggingFaceEndpoint": "http://hub",
                "modelScopeEndpoint": "http://hub",
                "httpsProxy": "http://proxy",
                "noProxy": "host",
                "caBundleConfigMap": "bundle",
            },
            "kubelet": {
                "nodefsAvailable": "10%",
                "imagefsAvailable": "10%",
                "imageGCHighThresholdPercent": 85,
            },
            "store": "store",
            "peerSyncEnabled": True,
            "pinned": [DIGEST],
        },
    ),
}


def schemas() -> dict[str, Json]:
    """Return each kind's schema of its spec: ours, and those that the chart brings beside them."""
    found = {}
    for path in (*sorted(CRDS.glob("*.yaml")), *sorted(CONSUMERS.glob("crd-*.yaml"))):
        lines = path.read_text().splitlines()
        crd = yaml.safe_load("\n".join(line for line in lines if "{{" not in line))
        (version,) = crd["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        found[crd["spec"]["names"]["kind"]] = properties["spec"]
    return found


SCHEMAS: Final = schemas()


def walk(schema: Json, value: Any, place: Place = ()) -> Iterator[tuple[Place, Json]]:
    """Yield every place of a value that its schema knows, with its part of the schema."""
    yield place, schema
    for name, child in schema.get("properties", {}).items():
        if isinstance(value, dict) and name in value:
            yield from walk(child, value[name], (*place, name))
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        for name in value:
            yield from walk(extra, value[name], (*place, name))
    if "items" in schema and value:
        yield from walk(schema["items"], value[0], (*place, 0))
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield from walk_freely(value, place)


def walk_freely(value: Any, place: Place) -> Iterator[tuple[Place, Json]]:
    """Yield every place below a value that no schema describes, with a schema of its own form."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in items:
        kinds = {"object": dict, "array": list, "string": str}
        form = next(name for name, kind in kinds.items() if isinstance(inner, kind))
        yield (*place, step), {"type": form}
        if form != "string":
            yield from walk_freely(inner, (*place, step))


def names(schema: Json, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every property that a schema knows, by its names from the top."""
    for name, child in schema.get("properties", {}).items():
        yield (*place, name)
        yield from names(child, (*place, name))
    if "items" in schema:
        yield from names(schema["items"], place)


def wrong_values(schema: Json) -> Iterator[object]:
    """Yield what is wrong, or at an edge, for a schema; null for all of them."""
    kind = "quantity" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    yield from (None, *WRONG[kind])
    for bound in ("minimum", "maximum"):
        if bound in schema:
            yield from (schema[bound] - 1, schema[bound], schema[bound] + 1)
    if "maxLength" in schema:
        yield from ("模" * schema["maxLength"], "a" * (schema["maxLength"] + 1))
    if "maxItems" in schema:
        yield [copy.deepcopy(WRONG["string"][9])] * (schema["maxItems"] + 1)


def with_value(good: Json, place: Place, value: object) -> object:
    """Return a copy of a spec with one value replaced."""
    if not place:
        return value
    made = copy.deepcopy(good)
    spot: Any = made
    for step in place[:-1]:
        spot = spot[step]
    spot[place[-1]] = value
    return made


def wrong_specs(kind: str) -> Iterator[tuple[Place, object, object]]:
    """Yield every wrong spec of a kind: the place, what stands there, and the whole spec."""
    seen = set()
    for good in GOOD[kind]:
        for place, schema in walk(SCHEMAS[kind], good):
            for value in wrong_values(schema):
                spec = with_value(good, place, value)
                if (text := json.dumps(spec)) not in seen:
                    seen.add(text)
                    yield place, value, spec
