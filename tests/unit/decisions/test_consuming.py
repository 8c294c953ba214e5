"""Pods of consumers: volumes of every source, and the preference beside the template's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from gpustack_delivery.decisions.consuming import (
    CONSUMER_LABEL,
    TOPOLOGY_ANNOTATION,
    Owner,
    Use,
    render,
    template_fault,
)
from gpustack_delivery.decisions.preference import MAX_NODES, holders
from gpustack_delivery.vocabulary.artifact import ModelArtifact
from gpustack_delivery.vocabulary.consumers import MODEL_DEPLOYMENTS
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.node_store import NodeModelStore

DIGEST = "sha256:" + "12" * 32
OWNER = Owner(MODEL_DEPLOYMENTS, Metadata("serve", "team-a", uid="u-9"))
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "initContainers": [{"name": "first"}],
        "containers": [{"name": "main", "volumeMounts": [{"name": "own", "mountPath": "/own"}]}],
        "volumes": [{"name": "own", "emptyDir": {}}],
    },
}


def use(source: dict[str, Any], name: str = "model") -> Use:
    """Return the use of a resolved artifact of a source."""
    resolved = {"manifestDigest": DIGEST, "resolvedTime": "2026-01-01T00:00:00Z"}
    body = {
        "metadata": {"name": "tiny", "namespace": "team-a", "uid": "u-1"},
        "spec": {"source": source},
        "status": {"resolved": resolved},
    }
    return Use(name, "/model", ModelArtifact.from_wire(body))


HUB = use({"huggingFace": {"repository": "acme/tiny"}})
CLAIM = use({"persistentVolumeClaim": {"claimName": "c", "path": "a/b"}}, "claimed")
IMAGE = use({"image": {"reference": "r@sha256:" + "0" * 64}}, "imaged")


def preferred(pod: dict[str, Any]) -> Any:
    """Return a Pod's preferred terms."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])


def test_every_source_has_its_own_volume() -> None:
    """The plugin mounts hub artifacts; claims and images are mounted without it."""
    before = copy.deepcopy(TEMPLATE)
    pod = render(OWNER, "serve-0", TEMPLATE, [HUB, CLAIM, IMAGE], {})
    assert before == TEMPLATE
    own, hub, claim, image = pod["spec"]["volumes"]
    assert own == {"name": "own", "emptyDir": {}}
    assert hub["csi"]["volumeAttributes"]["artifactUID"] == "u-1"
    assert claim["persistentVolumeClaim"] == {"claimName": "c", "readOnly": True}
    assert image["image"]["reference"].startswith("r@")
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert mounts["model"]["readOnly"]
        assert mounts["claimed"]["subPath"] == "a/b"
    assert pod["metadata"]["labels"] == {"app": "x", CONSUMER_LABEL: "modeldeployments"}
    assert pod["metadata"]["ownerReferences"][0]["controller"]
    assert not preferred(pod)


def test_one_term_a_digest_unless_a_queue_places_the_pods() -> None:
    """Two volumes of one digest are one term; Kueue's topology leaves no room for it."""
    hosts = {DIGEST: ["a", "b"]}
    twice = [HUB, Use("again", "/again", HUB.artifact)]
    (term,) = preferred(render(OWNER, "p", TEMPLATE, twice, hosts))
    assert term["preference"]["matchExpressions"][0]["values"] == ["a", "b"]
    annotated = {**TEMPLATE, "metadata": {"annotations": {TOPOLOGY_ANNOTATION: "rack"}}}
    assert not preferred(render(OWNER, "p", annotated, twice, hosts))
    assert not preferred(render(OWNER, "p", TEMPLATE, [CLAIM], hosts))


def store(*, ready: bool = True, **entry: Any) -> NodeModelStore:
    """Return a node's object with one entry."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    models = [{"digest": DIGEST, "state": "Ready", "sizeBytes": 1} | entry]
    status = {"models": models, "conditions": [condition]}
    return NodeModelStore.from_wire({"metadata": {"name": "n"}, "spec": {}, "status": status})


def test_holders_are_ranked_and_bounded() -> None:
    """In use, then used last, then by name; unfit nodes and those beyond 16 are left out."""
    stores = {f"n{number:02d}": store() for number in range(20)}
    stores["used"] = store(lastUsedTime="2026-01-02T00:00:00Z")
    stores["live"] = store(referenced=True)
    stores["bad"] = store(ready=False, referenced=True)
    stores["half"] = store(state="Downloading", referenced=True)
    stores["other"] = store(digest="sha256:" + "34" * 32, referenced=True)
    stores["bare"] = store(referenced=True)
    found = holders(DIGEST, stores, stores.keys() - {"bare"})
    assert found[:3] == ("live", "used", "n00")
    assert len(found) == MAX_NODES
    assert not {"bad", "half", "other", "bare"} & set(found)


WRONG: tuple[Any, ...] = (None, "x", 5, True, [], {}, [5], ["x"], {"a": 5}, [None], [[]])


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value below a value."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in (*items, *(enumerate(value) if isinstance(value, list) else ())):
        yield from places(inner, (*place, key))


def test_a_template_has_a_fault_or_becomes_a_pod() -> None:
    """Whatever stands at any place of it; what has a fault names its place."""
    full = copy.deepcopy(TEMPLATE)
    full["metadata"]["annotations"] = {"a": "b"}
    preferred_terms = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    full["spec"]["affinity"] = {"nodeAffinity": preferred_terms}
    faults = 0
    for place in places(full):
        for wrong in WRONG:
            template = copy.deepcopy(full)
            spot: Any = template
            for step in place[:-1]:
                spot = spot[step]
            spot[place[-1]] = copy.deepcopy(wrong)
            if fault := template_fault(template):
                faults += 1
                assert fault.startswith(f"template.{place[0]}")
            else:
                pod = render(OWNER, "p", template, [HUB, CLAIM], {DIGEST: ["host"]})
                assert pod["spec"]["volumes"][-1]["name"] == "claimed"
    assert faults > 40
    assert template_fault(full) == template_fault({}) == ""
