"""One eventful hour of a cluster on the manual clock, written down as a log that runs can compare.

What different threads do at one and the same moment has no order on a manual clock either. So the
log says what each moment left behind: every object that was written then, in its last state, or
gone. Resource versions, which count writes, are left out.

    python -m tests.emulator.determinism [RUNS]

runs the scenario so many times (300 unless told otherwise) and ends with status 1 at the first log
that differs from the first one. The digest of the log tells whether runs of other processes, or on
other machines, wrote the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emulator import Cluster
from emulator.clock import ManualClock
from emulator.contracts import DeleteOptions
from emulator.objects import Change
from tests.emulator.csi_plugin import NAME, Plugin, Script, refuse_in_turn

Json = dict[str, Any]
_PASSING = frozenset(("ca.crt", "resourceVersion", "managedFields"))
_NOW = DeleteOptions(grace_period_seconds=0)


def event_log(seed: int) -> list[str]:
    """Play the hour; return a line for each object that a moment changed, with a digest of it."""
    clock = ManualClock()
    log: dict[str, str] = {}
    with Cluster(kubernetes="1.36", clock=clock, seed=seed) as cluster:
        folder = str(cluster.folder)

        def note(change: Change) -> None:
            # What another process or another start of the server makes anew is not of the seed.
            text = json.dumps(_stable(change.object), sort_keys=True).replace(folder, "")
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            place = "/".join((*change.collection, _named(change)))
            gone = change.type == "DELETED"
            log[f"{clock.monotonic():09.3f} {place}"] = "gone" if gone else digest

        cluster.api.store.taps.append(note)
        with _played(cluster, clock):
            return sorted(f"{place} {state}" for place, state in log.items())


def _named(change: Change) -> str:
    """Return what names an object; an event's own name tells which of several was faster."""
    if change.collection != ("", "events"):
        return change.key
    about, event = change.object["involvedObject"], change.object
    return "/".join((change.namespace, about["name"], event["reason"], event["message"]))


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: held for name, held in value.items() if name not in _PASSING}
        if value.get("kind") == "Event":
            kept.pop("metadata")
        return {name: _stable(held) for name, held in kept.items()}
    return [_stable(held) for held in value] if isinstance(value, list) else value


@contextmanager
def _played(cluster: Cluster, clock: ManualClock) -> Iterator[None]:
    """Publish with retries, lose and regain a node, restart kubelet, flicker, empty a namespace."""
    nodes = [cluster.add_node(name) for name in ("node-a", "node-b")]
    scripts = [
        Script(publish=refuse_in_turn("UNAVAILABLE", "INTERNAL")),
        Script(publish=refuse_in_turn("ABORTED"), node_id="node-b"),
    ]
    plugins = [Plugin(node, clock, script) for node, script in zip(nodes, scripts, strict=True)]
    try:
        for plugin in plugins:
            plugin.start()
            clock.rest()
        cluster.apply(_objects())
        clock.rest()
        for number in range(4):
            cluster.client.create(_pod(f"p-{number}", "node-a" if number % 2 else "node-b"))
            clock.rest()
        clock.advance(30)
        nodes[0].flicker_drivers()
        clock.advance(30)
        cluster.client.delete("v1", "Pod", "p-0", namespace="n1", options=_NOW)
        clock.rest()
        nodes[1].restart_kubelet()
        clock.rest()
        clock.advance(60)
        nodes[1].stop_kubelet()
        clock.advance(400)
        nodes[1].start_kubelet()
        clock.rest()
        clock.advance(120)
        cluster.client.delete("v1", "Namespace", "n1")
        clock.advance(3600 - clock.monotonic())
        yield
    finally:
        for plugin in plugins:
            plugin.stop()


def _objects() -> list[Json]:
    driver = {
        "attachRequired": False,
        "podInfoOnMount": True,
        "volumeLifecycleModes": ["Ephemeral"],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n1"}},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": NAME},
            "spec": driver,
        },
    ]


def _pod(name: str, node: str) -> Json:
    container = {
        "name": "c",
        "image": "i",
        "volumeMounts": [{"name": "vol", "mountPath": "/vol"}],
    }
    spec = {
        "nodeName": node,
        "containers": [container],
        "volumes": [{"name": "vol", "csi": {"driver": NAME, "readOnly": True}}],
    }
    metadata = {"generateName": f"{name}-", "namespace": "n1"}
    if name == "p-0":
        metadata = {"name": name, "namespace": "n1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def difference(first: list[str], other: list[str]) -> str:
    """Return where two logs part, "" when they are the same."""
    for number, (left, right) in enumerate(zip(first, other, strict=False)):
        if left != right:
            return f"line {number}:\n  {left}\n  {right}"
    return "" if len(first) == len(other) else f"{len(first)} lines and {len(other)} lines"


def main(runs: int) -> int:
    """Compare so many runs; say how it went."""
    first = event_log(7)
    for number in range(2, runs + 1):
        parted = difference(first, event_log(7))
        if parted:
            sys.stdout.write(f"run {number} differs from the first at {parted}\n")
            return 1
        if number % 50 == 0:
            sys.stdout.write(f"{number} runs so far\n")
            sys.stdout.flush()
    digest = hashlib.sha256("\n".join(first).encode()).hexdigest()[:12]
    sys.stdout.write(f"{runs} runs wrote the same {len(first)} lines, digest {digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
