"""What a spec test speaks: a world of namespaces, artifacts, Pods, nodes, a hub and a clock.

    artifact = world.artifact()
    call = world.node.call(artifact)
    assert world.node.publish(call).code == "ABORTED"
    world.advance(1)
    assert world.node.publish(call).ok

A world runs with the implementation's own worker, or the suite stands in for it and writes what it
would have written (docs/decisions/0006-stand-in-for-the-worker.md). Either way a test says
`world.artifact()` and gets one that is resolved.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import yaml

from emulator.contracts import DeleteOptions
from emulator.errors import ApiError
from emulator.hubs.repository import LfsRule
from spec_tests import oracle
from spec_tests.nodes import Node
from spec_tests.observe import ApiAs
from spec_tests.oracle import Tree
from spec_tests.pods import Artifact, Pod, pod_manifest
from spec_tests.standin import StandIn
from spec_tests.waiting import eventually
from spec_tests.worlds import TINY, Repository, Seat, Shape

Json = dict[str, Any]
Found = TypeVar("Found")
_WORDS: Final = str.maketrans("/-.", "___")


class World:
    """One cluster with a hub, its nodes and their plugins, and what a test may do to them."""

    def __init__(self, seat: Seat, shape: Shape) -> None:
        """Stand on a target's seat."""
        self.seat = seat
        self.shape = shape
        self.api = seat.cluster.client
        self.hub = seat.hub
        self.log = seat.log
        self.stand_in = StandIn(self.api, seat.hub.url, seat.clock.now)
        self.nodes: dict[str, Node] = {}
        self._usual: Repository | None = None
        for name in shape.nodes:
            self.nodes[name] = Node(self, seat.add_node(name), seat.start_plugin)
            if not shape.worker:
                self.stand_in.configure(name)
            if shape.plugins:
                self.nodes[name].start_plugin()
        if shape.plugins:
            self.until(self._registered, "the driver is on every CSINode", within_seconds=60)

    @property
    def node(self) -> Node:
        """Return the first node."""
        return self.nodes[self.shape.nodes[0]]

    # time

    def advance(self, seconds: float) -> None:
        """Move the clock, and return when everything that became due has come to rest."""
        self.seat.advance(seconds)

    def now(self) -> float:
        """Return the world's time, in seconds since the epoch."""
        return float(self.seat.clock.now())

    def until(
        self, ask: Callable[[], Found | None], what: str, *, within_seconds: int = 0
    ) -> Found:
        """Ask until the answer is something; move the clock at most so many seconds.

        Raises:
            TooLate: it did not come.
        """
        for _ in range(within_seconds):
            answer = ask()
            if answer:
                return answer
            self.advance(1)
        return eventually(ask, what, instead=lambda: {n: self.nodes[n].store() for n in self.nodes})

    # the hub

    def repository(
        self,
        name: str = "acme/tiny",
        tree: Tree = TINY,
        *,
        private: bool = False,
        gated: bool = False,
    ) -> Repository:
        """Put a repository on the hub; a private or gated one has a token that reads it."""
        for file in tree.files:
            # The oracle and the hub must agree on what LFS is, or every digest would be off.
            assert LfsRule().covers(file.path, len(file.content)) == file.lfs, file.path
        token = f"hf_{name.translate(_WORDS)}_token" if private or gated else ""
        if token:
            self.hub.add_token(token, user=name)
        found = self.hub.add_repository(
            name, tree.contents(), private=private, gated=gated, readers=[name] if token else []
        )
        return Repository(name, found.resolve("main").id, tree, found, token)

    def usual_repository(self) -> Repository:
        """Return the repository that tests share which do not care, putting it there once."""
        if self._usual is None:
            self._usual = self.repository()
        return self._usual

    def hub_requests(self, path: str = "*", *, host: str = "*") -> list[Any]:
        """Return the hub's log entries whose path and host match, oldest first."""
        return list(self.hub.requests.entries(path, host=host))

    # objects

    def namespace(self, name: str) -> str:
        """Make a namespace if it is not there yet, and return its name."""
        self._ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def secret(self, name: str, token: str, *, namespace: str) -> None:
        """Make or replace a Secret that holds a hub token."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"token": base64.b64encode(token.encode()).decode()},
        }
        if not self._ensure(body):
            self.api.update(body)

    def artifact(
        self,
        name: str = "model",
        *,
        namespace: str = "team-a",
        repository: Repository | None = None,
        keep: Sequence[str] = (),
        spec: Json | None = None,
        digest: str = "",
    ) -> Artifact:
        """Make an artifact of a repository, the usual one unless told, and have it resolved.

        Args:
            keep: the paths that the patterns in `spec` leave; all of them when empty.
            spec: laid over the artifact's spec, its source included.
            digest: what the status claims instead of the truth; only without a worker.
        """
        source = repository or self.usual_repository()
        tree = source.tree.only(*keep) if keep else source.tree
        artifact = self.unresolved(name, source, namespace=namespace, spec=spec, tree=tree)
        if digest:
            artifact = artifact.claiming(digest)
        if self.shape.worker:
            self.until(
                lambda: self.resolved(artifact).get("manifestDigest"),
                f"{name} is resolved",
                within_seconds=120,
            )
        else:
            self.stand_in.resolve(artifact, source.commit)
            self.advance(0)
        return artifact

    def unresolved(
        self,
        name: str,
        repository: Repository,
        *,
        namespace: str = "team-a",
        spec: Json | None = None,
        tree: Tree | None = None,
    ) -> Artifact:
        """Make an artifact and wait for nothing."""
        self.namespace(namespace)
        source: Json = {"repository": repository.name, "revision": "main"}
        if repository.token:
            source["secretRef"] = {"name": f"{name}-token"}
            self.secret(f"{name}-token", repository.token, namespace=namespace)
        metadata = {"name": name, "namespace": namespace}
        created = self.api.create(
            {
                "apiVersion": oracle.API,
                "kind": "ModelArtifact",
                "metadata": metadata,
                "spec": {"source": {"huggingFace": source}, **(spec or {})},
            }
        )
        known = tree or repository.tree
        uid = created["metadata"]["uid"]
        return Artifact(name, namespace, uid, known.digest, known, repository.token)

    def set_resolved(self, artifact: Artifact, status: str | None) -> None:
        """Set an artifact's Resolved condition, and wait until the plugins must have seen it."""
        self.stand_in.set_resolved(artifact, status)
        self.advance(0)

    def stored(self, artifact: Artifact) -> Json:
        """Return an artifact as the API server holds it."""
        found: Json = self.api.get(
            oracle.API, "ModelArtifact", artifact.name, namespace=artifact.namespace
        )
        return found

    def resolved(self, artifact: Artifact) -> Json:
        """Return status.resolved of an artifact, or an empty object."""
        found: Json = self.stored(artifact).get("status", {}).get("resolved", {})
        return found

    def resolution(self, artifact: Artifact, kind: str = "Resolved") -> tuple[str, str]:
        """Return status and reason of an artifact's condition, empty when it has none."""
        for condition in self.stored(artifact).get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def delete(self, artifact: Artifact) -> None:
        """Delete an artifact."""
        self.api.delete(oracle.API, "ModelArtifact", artifact.name, namespace=artifact.namespace)
        self.advance(0)

    def pod(
        self,
        artifact: Artifact,
        *,
        name: str = "consumer",
        namespace: str = "",
        node: Node | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Pod:
        """Write a Pod by hand that mounts an artifact, and leave it to kubelet."""
        space = self.namespace(namespace or artifact.namespace)
        place = node or self.node
        manifest = pod_manifest(
            artifact, place.name, name=name, namespace=space, attributes=attributes or {}
        )
        return Pod(self, place, manifest)

    def set_setting(self, name: str, value: str) -> None:
        """Set a Setting, in the Secret that holds them."""
        data = {name: base64.b64encode(value.encode()).decode()}
        space = oracle.OPERATOR_NAMESPACE
        self.api.patch("v1", "Secret", "gpustack-settings", {"data": data}, namespace=space)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Delete a Pod, and wait until it is gone."""
        options = DeleteOptions(grace_period_seconds=0)
        self.api.delete("v1", "Pod", name, namespace=namespace, options=options)
        fields = f"metadata.name={name}"
        self.until(
            lambda: not self.api.list("v1", "Pod", namespace=namespace, fields=fields),
            f"Pod {name} is gone",
            within_seconds=120,
        )

    # rights

    def as_user(self, user: str, extra: Mapping[str, str]) -> ApiAs:
        """Speak to the API server as somebody; an empty name is the cluster's admin."""
        return ApiAs(self.seat.cluster.kubeconfig("admin"), user, extra)

    def allow(self, user: str, resource: str, verb: str) -> None:
        """Give somebody a right on a resource of ours everywhere; the admin has it already."""
        if not user:
            return
        name = f"test-{resource.replace('/', '-')}-{verb}"
        group = "rbac.authorization.k8s.io"
        rule = {"apiGroups": [oracle.GROUP], "resources": [resource], "verbs": [verb]}
        metadata = {"metadata": {"name": name}}
        version = f"{group}/v1"
        self.api.create({"apiVersion": version, "kind": "ClusterRole", "rules": [rule], **metadata})
        self.api.create(
            {
                "apiVersion": version,
                "kind": "ClusterRoleBinding",
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
                **metadata,
            }
        )

    @contextmanager
    def rights_withdrawn(self) -> Iterator[None]:
        """Take every cluster-wide right from the plugin's account, and give it back at the end."""
        bindings = [
            binding
            for binding in self.api.list("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")
            if any(_user(s) == self.seat.plugin_user for s in binding.get("subjects", []))
        ]
        assert bindings, "the plugin's account has no cluster-wide right to take away"
        for binding in bindings:
            self.api.delete(binding["apiVersion"], binding["kind"], binding["metadata"]["name"])
        try:
            yield
        finally:
            for binding in bindings:
                name = {"name": binding["metadata"]["name"]}
                self.api.create({**binding, "metadata": name})

    # when a test is red

    def evidence(self) -> list[tuple[str, str]]:
        """Return what the world looks like now, for a reader who was not there."""
        found = [("hub requests", self.hub.requests.dump())]
        for name, node in self.nodes.items():
            found.append((f"{name}: mounts", "\n".join(map(str, node.mounts.table()))))
            found.append((f"{name}: cache", yaml.safe_dump(node.cache())))
            found.append((f"{name}: NodeModelStore", yaml.safe_dump(node.store())))
        artifacts = self.api.list(oracle.API, "ModelArtifact")
        found.append(("artifacts", yaml.safe_dump_all(artifacts)))
        found.append(("log", "\n".join(self.log.lines[-60:])))
        return found

    def _registered(self) -> bool:
        return all(self._drives(name) for name in self.nodes)

    def _drives(self, name: str) -> bool:
        try:
            found = self.api.get("storage.k8s.io/v1", "CSINode", name)
        except ApiError:
            return False
        drivers = found.get("spec", {}).get("drivers") or []
        return any(driver["name"] == oracle.DRIVER for driver in drivers)

    def _ensure(self, body: Json) -> bool:
        try:
            self.api.create(body)
        except ApiError as error:
            if error.code != 409:
                raise
            return False
        return True


def _user(subject: Mapping[str, str]) -> str:
    return f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
