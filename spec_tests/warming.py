"""What a spec test speaks when it warms nodes: pools, grants, prefetches and what becomes of them.

warming = Warming(world)
warming.store()
warming.binding()
warming.prefetch(artifact)
warming.wait("warm", "Available")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from emulator.errors import ApiError
from spec_tests import oracle
from spec_tests.pods import Artifact
from spec_tests.scenario import World

Json = dict[str, Any]
NAMESPACE: Final = "team-a"
_TOKEN: Final = "authentication.kubernetes.io"
EVERY_NODE: Final[Json] = {"nodeSelector": {}}


class Warming:
    """The objects of the prefetch pages in one world."""

    def __init__(self, world: World) -> None:
        """Warm this world's nodes."""
        self.world = world
        self.api = world.api

    # what is asked for

    def store(
        self, name: str = "pool", labels: Mapping[str, str] | None = None, **spec: Any
    ) -> Json:
        """Create a ModelStore over the nodes with these labels, all of them without any."""
        selector = {"matchLabels": dict(labels)} if labels else {}
        return self._create("ModelStore", name, "", {"nodeSelector": selector, **spec})

    def binding(
        self,
        name: str = "grant",
        *,
        stores: Sequence[str] = ("pool",),
        quota: str | int = "1Gi",
        namespace: str = NAMESPACE,
        **spec: Any,
    ) -> Json:
        """Create a ModelStoreBinding."""
        body = {"storeRefs": [{"name": store} for store in stores], "quota": {"bytes": quota}}
        self.world.namespace(namespace)
        return self._create("ModelStoreBinding", name, namespace, {**body, **spec})

    def prefetch(
        self,
        artifact: Artifact | str,
        name: str = "warm",
        *,
        namespace: str = NAMESPACE,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """Create a ModelPrefetch of every node under the binding `grant`, unless told otherwise."""
        named = artifact if isinstance(artifact, str) else artifact.name
        body: Json = {
            "artifactRef": {"name": named},
            "bindingRef": {"name": "grant"},
            "placement": EVERY_NODE,
        }
        return self._create("ModelPrefetch", name, namespace, {**body, **spec}, labels or {})

    def instance_type(self, name: str, **spec: Any) -> Json:
        """Create an InstanceType."""
        self._ensure_kind("InstanceType", "instancetypes", "Cluster")
        return self._create("InstanceType", name, "", {"os": "linux", "arch": "amd64", **spec})

    def deployment(self, name: str, artifact: Artifact, *instance_types: str) -> Json:
        """Create a ModelDeployment that runs an artifact on InstanceTypes."""
        self._ensure_kind("ModelDeployment", "modeldeployments", "Namespaced")
        spec = {
            "model": {"artifactRef": {"name": artifact.name}},
            "roles": [{"name": kind, "instanceType": kind} for kind in instance_types],
        }
        return self._create("ModelDeployment", name, artifact.namespace, spec)

    def instance(self, name: str, artifact: Artifact) -> Json:
        """Create an Instance that has an artifact among its volumes."""
        self._ensure_kind("Instance", "instances", "Namespaced")
        volumes = [{"name": "model", "model": {"artifactRef": {"name": artifact.name}}}]
        return self._create("Instance", name, artifact.namespace, {"additionalVolumes": volumes})

    def change(self, kind: str, name: str, namespace: str = NAMESPACE, **spec: Any) -> None:
        """Change fields of an object's spec; None takes one away."""
        space = "" if kind == "ModelStore" else namespace
        self.api.patch(oracle.API, kind, name, {"spec": spec}, namespace=space)

    def delete(self, kind: str, name: str, namespace: str = NAMESPACE) -> None:
        """Delete an object."""
        self.api.delete(oracle.API, kind, name, namespace="" if kind == "ModelStore" else namespace)

    def refused(self, act: Callable[..., object], *given: Any, **named: Any) -> str:
        """Do what must be refused at admission, and return the message."""
        with pytest.raises(ApiError) as refusal:
            act(*given, **named)
        return str(refusal.value.message)

    def register(self, node: str) -> None:
        """List the driver on a node's CSINode, as its plugin's registration would."""
        found = self.api.get("storage.k8s.io/v1", "CSINode", node)
        found["spec"] = {"drivers": [{"name": oracle.DRIVER, "nodeID": node}]}
        self.api.update(found)
        self.world.until(
            lambda: self.world.nodes[node].store() or None, f"{node}'s object", within_seconds=60
        )

    def report(self, node: str, *models: Json) -> None:
        """Write a node's status as the plugin that runs there would."""
        found = self.world.nodes[node].store()
        found["status"] = {
            "observedGeneration": found["metadata"]["generation"],
            "capacity": {"totalBytes": 10**9, "storedBytes": 0, "usedPercent": 0},
            "models": list(models),
        }
        token = {
            f"{_TOKEN}/pod-name": "plugin",
            f"{_TOKEN}/pod-uid": "00000000-0000-0000-0000-000000000000",
            f"{_TOKEN}/node-name": node,
        }
        path = f"/apis/{oracle.API}/nodemodelstores/{node}/status"
        code, message = self.world.as_user(self.world.seat.plugin_user, token).put(path, found)
        assert code == 200, message
        self.world.advance(0)

    def label(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Label a node; None takes a label away."""
        self.api.patch("v1", "Node", node, {"metadata": {"labels": dict(labels)}})
        self.world.advance(0)

    # what became of it

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> Json:
        """Return an object."""
        space = "" if kind == "ModelStore" else namespace
        found: Json = self.api.get(oracle.API, kind, name, namespace=space)
        return found

    def status(self, name: str = "warm", kind: str = "ModelPrefetch", **where: str) -> Json:
        """Return an object's status, a prefetch's unless told otherwise."""
        found: Json = self.get(kind, name, **where).get("status", {})
        return found

    def condition(
        self, condition: str, name: str = "warm", kind: str = "ModelPrefetch", **where: str
    ) -> Json:
        """Return one of its conditions, or an empty one."""
        conditions = self.status(name, kind, **where).get("conditions", [])
        return next((found for found in conditions if found["type"] == condition), {})

    def wait(
        self,
        condition: str,
        reason: str,
        name: str = "warm",
        kind: str = "ModelPrefetch",
        *,
        within_seconds: int = 120,
    ) -> Json:
        """Let time pass until a condition has a reason, and return it."""

        def asked() -> Json | None:
            found = self.condition(condition, name, kind)
            return found if found.get("reason") == reason else None

        return self.world.until(
            asked, f"{condition} of {name} is {reason}", within_seconds=within_seconds
        )

    def pods(self, prefetch: str = "warm", namespace: str = NAMESPACE) -> list[Json]:
        """Return a prefetch's warm-up Pods, in order of their nodes."""
        owned = [
            pod
            for pod in self.api.list("v1", "Pod", namespace=namespace)
            for owner in pod["metadata"].get("ownerReferences", [])
            if (owner["kind"], owner["name"]) == ("ModelPrefetch", prefetch)
        ]
        return sorted(owned, key=node_of)

    def rendered(self, count: int, prefetch: str = "warm") -> list[Json]:
        """Wait for so many warm-up Pods, and return them."""

        def asked() -> list[Json] | None:
            found = self.pods(prefetch)
            return found if len(found) >= count else None

        return self.world.until(asked, f"{count} warm-up Pods", within_seconds=60)

    def held(
        self, artifact: Artifact, state: str = "Ready", *, unused_hours: int = 0, **more: Any
    ) -> Json:
        """Return what a node's status lists of an artifact, last used some hours ago."""
        entry: Json = {"digest": artifact.digest, "state": state, **more}
        if state == "Ready":
            used = self.world.now() // 3600 * 3600 - unused_hours * 3600
            moment = datetime.fromtimestamp(used, UTC).isoformat().replace("+00:00", "Z")
            entry |= {"sizeBytes": artifact.tree.size_bytes, "lastUsedTime": moment}
        return entry

    def pinned(self, node: str) -> list[str]:
        """Return the digests that a node keeps."""
        found: list[str] = self.world.nodes[node].store().get("spec", {}).get("pinned", [])
        return found

    def used(self, name: str = "grant", namespace: str = NAMESPACE) -> int | None:
        """Return the bytes that a binding's status measures, None while there is no figure."""
        amount = self.status(name, "ModelStoreBinding", namespace=namespace).get("usedBytes")
        return None if amount is None else bytes_of(amount)

    def _create(
        self,
        kind: str,
        name: str,
        namespace: str,
        spec: Json,
        labels: Mapping[str, str] | None = None,
    ) -> Json:
        metadata: Json = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        if labels:
            metadata["labels"] = dict(labels)
        body = {"apiVersion": oracle.API, "kind": kind, "metadata": metadata, "spec": spec}
        created: Json = self.api.create(body)
        self.world.advance(0)
        return created

    def _ensure_kind(self, kind: str, plural: str, scope: str) -> None:
        """Define a kind that belongs to the full operator, if this cluster lacks it."""
        name = f"{plural}.{oracle.GROUP}"
        version = {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                }
            },
        }
        names = {
            "kind": kind,
            "plural": plural,
            "singular": kind.lower(),
            "listKind": f"{kind}List",
        }
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": oracle.GROUP,
                "scope": scope,
                "names": names,
                "versions": [version],
            },
        }
        try:
            self.api.create(definition)
        except ApiError as error:
            if error.code != 409:
                raise


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a Pod is for: by name, or by required affinity on metadata.name."""
    spec = pod["spec"]
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    named = [
        value
        for term in required.get("nodeSelectorTerms", [])
        for field in term.get("matchFields", [])
        if (field["key"], field["operator"]) == ("metadata.name", "In")
        for value in field["values"]
    ]
    return str(spec.get("nodeName") or (named[0] if len(named) == 1 else ""))


def bytes_of(quantity: str | int) -> int:
    """Return a quantity in bytes, as far as statuses write them: whole, with a binary suffix."""
    text = str(quantity)
    for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti"), 1):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) << (10 * power)
    return int(text)
