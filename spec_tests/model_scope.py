"""A world's ModelScope hub, and artifacts that come from it.

    scope = ModelScope(world)
    artifact = scope.unresolved("a", scope.repository())

Every file of it is known by its SHA-256, so its trees differ from Hugging Face's in all digests
but those of LFS files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from spec_tests.oracle import Tree
from spec_tests.pods import Artifact
from spec_tests.scenario import World
from spec_tests.worlds import TINY, Repository

Json = dict[str, Any]
_ENDPOINT: Final = "model-artifact-modelscope-endpoint"


def as_listed(tree: Tree) -> Tree:
    """Return a tree as ModelScope lists it: a SHA-256 for every file."""
    return Tree(tuple(replace(file, lfs=True) for file in tree.files))


class ModelScope:
    """The ModelScope hub of one world."""

    def __init__(self, world: World, habits: Any = None) -> None:
        """Add the hub, and have the worker and the nodes use it."""
        self.world = world
        self.hub = world.seat.cluster.add_model_scope(habits=habits)
        if world.shape.worker:
            world.set_setting(_ENDPOINT, self.hub.url)
        else:
            for name in world.nodes:
                world.stand_in.reconfigure(name, self._configure)
        world.advance(0)

    def repository(
        self, name: str = "acme/tiny", tree: Tree = TINY, *, private: bool = False
    ) -> Repository:
        """Put a repository on the hub; a private one has a token that reads it."""
        token = f"ms-{name.replace('/', '-')}-token" if private else ""
        if token:
            self.hub.add_token(token, user=name)
        readers = [name] if token else []
        found = self.hub.add_repository(name, tree.contents(), private=private, readers=readers)
        return Repository(name, found.resolve("master").id, as_listed(tree), found, token)

    def unresolved(
        self,
        name: str,
        repository: Repository,
        *,
        revision: str = "master",
        namespace: str = "team-a",
        spec: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Make an artifact and wait for nothing; an empty revision is left out."""
        source: Json = {"repository": repository.name}
        if revision:
            source["revision"] = revision
        if repository.token:
            source["secretRef"] = {"name": f"{name}-token"}
        whole = {"source": {"modelScope": source}, **(spec or {})}
        return self.world.unresolved(name, repository, namespace=namespace, spec=whole)

    def requests(self, path: str = "*", *, host: str = "*") -> list[Any]:
        """Return the hub's log entries whose path and host match, oldest first."""
        return list(self.hub.requests.entries(path, host=host))

    def _configure(self, spec: Json) -> None:
        spec["hub"]["modelScopeEndpoint"] = self.hub.url
