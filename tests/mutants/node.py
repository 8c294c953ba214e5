"""Broken node plugins: each breaks one seam of ours, in the way its name says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpustack_delivery import embedded
from gpustack_delivery.adapters import redirects
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.decisions import authorization, collection, reporting
from gpustack_delivery.node import attempts, collector, csi, markers, mounting, reporter, trees
from gpustack_delivery.node.downloading import engine
from gpustack_delivery.node.metrics import Metrics
from gpustack_delivery.vocabulary.artifact import Status

Patch = pytest.MonkeyPatch


def skips_the_hash(patch: Patch) -> None:
    """Take every file for what its listing says."""
    settle = engine._Crew._settle

    def settled(crew: Any, file: Any, segment: Any = None) -> None:
        file.hasher = _Says(file.target.entry.hex)
        settle(crew, file, segment)

    patch.setattr(engine._Crew, "_settle", settled)


class _Says:
    """A hasher that has made up its mind."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def hexdigest(self) -> str:
        """Return it."""
        return self._answer


def token_follows_redirects(patch: Patch) -> None:
    """Take the credential along to wherever a redirect leads."""
    patch.setattr(redirects, "same_place", lambda before, after: True)


def lists_the_branch(patch: Patch) -> None:
    """List what the branch shows now, and not the commit that was resolved."""
    list_tree = HuggingFace.list_tree
    patch.setattr(
        HuggingFace,
        "list_tree",
        lambda hub, repository, commit, token: list_tree(hub, repository, "main", token),
    )


def never_syncs(patch: Patch) -> None:
    """Trust the page cache."""
    _change_world(patch, disk=lambda disk: _Around(disk, sync_file=_idle, sync_directory=_idle))


def mounts_writable(patch: Patch) -> None:
    """Bind without a thought for read-only."""

    def changed(mounts: Any) -> Any:
        def bind(source: Path, target: Path) -> None:
            mounts.bind(source, target, read_only=False)

        return _Around(mounts, bind_read_only=bind)

    _change_world(patch, mounts=changed)


def stacks_mounts(patch: Patch) -> None:
    """Bind at every publish, whatever is mounted there."""
    mount = mounting.Mounting._mount

    def mounted(self: Any, *args: Any) -> None:
        self._clear = _idle
        try:
            mount(self, *args)
        finally:
            del self._clear

    patch.setattr(mounting.Mounting, "_mount", mounted)
    patch.setattr(mounting.Mounting, "_shows", lambda *_: False)


def ignores_markers(patch: Patch) -> None:
    """Take every directory among the published trees for one."""
    read_marker = markers.read_marker

    def read(directory: Path, digest: str) -> markers.Marker:
        return read_marker(directory, digest) or markers.Marker(digest, 0, 0, 0.0)

    patch.setattr(trees, "read_marker", read)


def evicts_what_is_mounted(patch: Patch) -> None:
    """Collect without asking who uses a tree."""
    remove = trees.Trees.remove
    _choose(patch, referenced=frozenset())
    patch.setattr(
        trees.Trees, "remove", lambda self, digest, in_use: remove(self, digest, in_use=_never)
    )


def evicts_what_is_pinned(patch: Patch) -> None:
    """Collect without looking at the pins."""
    _choose(patch, pinned=frozenset())


def evicts_the_newest(patch: Patch) -> None:
    """Collect what was used last."""
    choose = collection.choose_trees
    patch.setattr(collector, "choose_trees", lambda *a, **k: tuple(reversed(choose(*a, **k))))


def knows_no_grace(patch: Patch) -> None:
    """Collect a tree the moment nobody uses it."""
    patch.setattr(collection, "GRACE_SECONDS", 0.0)


def never_backs_off(patch: Patch) -> None:
    """Try again at every mount."""
    patch.setattr(attempts, "holds_back", lambda *_: False)


def trusts_the_old_status(patch: Patch) -> None:
    """Leave a status alone that says something already."""
    worth_writing = reporting.worth_writing

    def worth(stored: Any, new: Any, **facts: Any) -> bool:
        return not stored.models and worth_writing(stored, new, **facts)

    patch.setattr(reporter, "worth_writing", worth)


def tells_usage_exactly(patch: Patch) -> None:
    """Say the usage to the percent."""
    patch.setattr(
        reporter, "used_percent", lambda usage: 100 * usage.used_bytes // usage.total_bytes
    )


def counts_downloads_twice(patch: Patch) -> None:
    """Count every received byte twice."""
    received = Metrics.received
    patch.setattr(Metrics, "received", lambda self, source, size: received(self, source, 2 * size))


def ignores_revocations(patch: Patch) -> None:
    """Mount whatever was resolved once."""
    patch.setattr(Status, "is_resolved", property(lambda status: status.resolved is not None))


def ignores_the_uid(patch: Patch) -> None:
    """Take an artifact by its name."""
    judge = authorization.judge

    def judged(request: Any, kubelet: Any, artifact: Any) -> Any:
        if artifact is not None:
            request = replace(request, artifact_uid=artifact.metadata.uid)
        return judge(request, kubelet, artifact)

    patch.setattr(mounting, "judge", judged)


def takes_content_for_permission(patch: Patch) -> None:
    """Mount what lies on the disk for whoever knows its digest."""
    judge_and_mount = mounting.Mounting._judge_and_mount

    def mounted(self: Any, request: Any, token: Any) -> None:
        with self._around.store.trees.hold(request.manifest_digest) as tree:
            if tree is not None:
                self._mount(request, request.manifest_digest, tree)
                return
        judge_and_mount(self, request, token)

    patch.setattr(mounting.Mounting, "_judge_and_mount", mounted)


def makes_the_target_first(patch: Patch) -> None:
    """Make the target directory before anybody is judged."""
    judge_and_mount = mounting.Mounting._judge_and_mount

    def mounted(self: Any, request: Any, token: Any) -> None:
        Path(request.resolved_target).mkdir(parents=True, exist_ok=True)
        judge_and_mount(self, request, token)

    patch.setattr(mounting.Mounting, "_judge_and_mount", mounted)


def believes_the_pods_attributes(patch: Patch) -> None:
    """Read the namespace from the attributes that the Pod's author wrote."""
    start_plugin, read = embedded.Embedded.start_plugin, csi._read
    clusters: list[Any] = []

    def started(self: Any, node: Any) -> Any:
        clusters.append(self._cluster)
        return start_plugin(self, node)

    def believed(request: Any) -> Any:
        found = read(request)
        for pod in clusters[-1].client.list("v1", "Pod"):
            if pod["metadata"]["uid"] == found.pod_uid:
                attributes = pod["spec"]["volumes"][0]["csi"]["volumeAttributes"]
                claimed = attributes.get("csi.storage.k8s.io/pod.namespace", found.pod_namespace)
                return replace(found, pod_namespace=claimed)
        return found

    patch.setattr(embedded.Embedded, "start_plugin", started)
    patch.setattr(csi, "_read", believed)


class _Around:
    """A port with some of its calls replaced."""

    def __init__(self, port: Any, **calls: Callable[..., Any]) -> None:
        self._port = port
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def _change_world(patch: Patch, **changes: Callable[[Any], Any]) -> None:
    """Give plugins a world in which some ports were changed."""
    world = embedded._world

    def changed(*args: Any) -> Any:
        found = world(*args)
        return replace(
            found, **{name: change(getattr(found, name)) for name, change in changes.items()}
        )

    patch.setattr(embedded, "_world", changed)


def _choose(patch: Patch, **said: Any) -> None:
    """Let the choice of trees hear something else than the truth."""
    choose = collection.choose_trees
    patch.setattr(
        collector, "choose_trees", lambda trees, **facts: choose(trees, **{**facts, **said})
    )


def _idle(*_: Any) -> None:
    """Do nothing."""


def _never(_: str) -> bool:
    """Say no."""
    return False
