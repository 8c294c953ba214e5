"""What the tests of rendered Pods speak: deployments, instances, and what their Pods look like.

A Pod counts as rendered for an object that is its controller, whatever it is called.
"""

from __future__ import annotations

from typing import Any, Final

from spec_tests import oracle
from spec_tests.pods import Artifact
from spec_tests.scenario import World

Json = dict[str, Any]
NAMESPACE: Final = "team-a"
TEMPLATE: Final[Json] = {"spec": {"containers": [{"name": "main", "image": "engine:1"}]}}
_TOKEN: Final = "authentication.kubernetes.io"


def deploy(world: World, artifact: str, template: Json = TEMPLATE, replicas: int = 1) -> Json:
    """Make a ModelDeployment of one role that serves an artifact."""
    role = {"name": "serve", "replicas": replicas, "template": template}
    spec = {"model": {"artifactRef": {"name": artifact}}, "roles": [role]}
    return _create(world, "ModelDeployment", "deployed", spec)


def instance(world: World, artifact: str) -> Json:
    """Make an Instance that has an artifact among its volumes."""
    volume = {
        "name": "weights",
        "mountPath": "/weights",
        "model": {"artifactRef": {"name": artifact}},
    }
    return _create(
        world, "Instance", "single", {"additionalVolumes": [volume], "template": TEMPLATE}
    )


def pods_of(world: World, owner: Json) -> list[Json]:
    """Return the Pods that an object controls."""
    return [
        pod
        for pod in world.api.list("v1", "Pod", namespace=owner["metadata"]["namespace"])
        if any(
            reference.get("controller") and reference["uid"] == owner["metadata"]["uid"]
            for reference in pod["metadata"].get("ownerReferences", [])
        )
    ]


def rendered(world: World, owner: Json) -> Json:
    """Wait for the one Pod of an object."""
    found: list[Json] = world.until(
        lambda: pods_of(world, owner) or None, "its Pod is rendered", within_seconds=60
    )
    assert len(found) == 1
    return found[0]


def volumes(pod: Json, kind: str) -> list[Json]:
    """Return the sources of a Pod's volumes of a kind."""
    return [volume[kind] for volume in pod["spec"].get("volumes", []) if kind in volume]


def mount(pod: Json, kind: str) -> Json:
    """Return how a Pod's first container mounts its one volume of a kind."""
    (name,) = (volume["name"] for volume in pod["spec"]["volumes"] if kind in volume)
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    (found,) = (each for each in mounts if each["name"] == name)
    return dict(found)


def preferred(pod: Json) -> list[list[str]]:
    """Return the hosts of every preferred term, and make sure that none is required."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity
    assert not pod["spec"].get("nodeSelector")
    found = []
    for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", []):
        (expression,) = term["preference"]["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("kubernetes.io/hostname", "In")
        found.append(list(expression["values"]))
    return found


def hold(world: World, node: str, artifact: Artifact, *, ready: bool = True, **entry: Any) -> None:
    """Have a node report that it holds an artifact's digest, as its plugin would."""
    found = world.nodes[node].store()
    entry = {"digest": artifact.digest, "state": "Ready", "sizeBytes": 1} | entry
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "Serving" if ready else "InvalidConfiguration",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    found["status"] = {
        "observedGeneration": found["metadata"]["generation"],
        "capacity": {"totalBytes": 10**9, "storedBytes": 1, "usedPercent": 0},
        "models": [entry],
        "conditions": [condition],
    }
    token = {
        f"{_TOKEN}/pod-name": "plugin",
        f"{_TOKEN}/pod-uid": "00000000-0000-0000-0000-000000000000",
        f"{_TOKEN}/node-name": node,
    }
    path = f"/apis/{oracle.API}/nodemodelstores/{node}/status"
    code, message = world.as_user(world.seat.plugin_user, token).put(path, found)
    assert code == 200, message
    world.advance(0)


def _create(world: World, kind: str, name: str, spec: Json) -> Json:
    world.namespace(NAMESPACE)
    metadata = {"name": name, "namespace": NAMESPACE}
    body = {"apiVersion": oracle.API, "kind": kind, "metadata": metadata, "spec": spec}
    created: Json = world.api.create(body)
    world.advance(0)
    return created
