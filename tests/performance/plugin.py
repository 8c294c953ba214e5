"""Our side once more, whole: the node plugin on an emulated node, asked over its CSI socket.

    python -m tests.performance.plugin URL COMMIT DESTINATION [CA_FILE]

The clock runs from the first mount call to the one that mounts, so authorization, listing,
reservation, publication and the bind are in it. The API server and kubelet's part live in the same
process, and their time and memory count as ours.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from emulator.cluster import Cluster
from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.embedded import Embedded, host_fault
from gpustack_delivery.vocabulary.manifest import Manifest
from spec_tests.observe import CsiSocket, PublishCall
from spec_tests.oracle import API, EPHEMERAL, POD_NAME, POD_NAMESPACE, POD_UID

_PAUSE_SECONDS: Final = 0.005


def main(url: str, commit: str, ca_pem: str) -> None:
    """Deliver one repository through the plugin and say what it took."""
    clock = SystemClock()
    with Cluster(translate=host_fault) as cluster:
        node = cluster.add_node("n")
        installation = Embedded(cluster, values={"worker": {"enabled": False}})
        installation.install()
        _configure(cluster, url, ca_pem)
        uid, digest = _resolve(cluster, url, commit, ca_pem)
        installation.start_plugin(node)
        context = {"artifact": "model", "artifactUID": uid, "manifestDigest": digest}
        context |= {EPHEMERAL: "true", POD_NAMESPACE: "default", POD_NAME: "p", POD_UID: "u"}
        target = node.kubelet_dir / "pods/u/volumes/kubernetes.io~csi/model/mount"
        target.parent.mkdir(parents=True)
        call = PublishCall("csi-1", target, context, {})
        socket = CsiSocket(node.csi_socket)
        while "starting" in (answer := socket.publish(call)).message:
            _pause(clock)
        began, spent = clock.monotonic(), _cpu()
        while not answer.ok:
            if answer.code != "ABORTED":
                raise SystemExit(f"not delivered: {answer.code} {answer.message}")
            _pause(clock)
            answer = socket.publish(call)
        seconds, cpu = clock.monotonic() - began, _cpu() - spent
        installation.close()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said = {"seconds": seconds, "cpu_seconds": cpu, "peak_mib": peak_mib}
    sys.stdout.write(json.dumps(said) + "\n")


def _configure(cluster: Cluster, url: str, ca_pem: str) -> None:
    hub = {"huggingFaceEndpoint": url}
    if ca_pem:
        hub["caBundleConfigMap"] = "hub"
        metadata = {"name": "hub", "namespace": "gpustack-system"}
        trust = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        cluster.client.create({**trust, "data": {"ca.crt": ca_pem}})
    cluster.client.create(
        {
            "apiVersion": API,
            "kind": "NodeModelStore",
            "metadata": {"name": "n"},
            "spec": {
                "watermarks": {"highPercent": 80, "lowPercent": 70},
                "download": {"concurrency": 8, "bytesPerSecond": 0},
                "hub": hub,
            },
        }
    )


def _resolve(cluster: Cluster, url: str, commit: str, ca_pem: str) -> tuple[str, str]:
    """Make the artifact that the worker would have resolved; return its UID and digest."""
    http = Http(ca_pem=ca_pem, environment={})
    manifest = Manifest.of(HuggingFace(url, http).list_tree("bench/model", commit, None))
    http.close()
    artifact = cluster.client.create(
        {
            "apiVersion": API,
            "kind": "ModelArtifact",
            "metadata": {"name": "model", "namespace": "default"},
            "spec": {"source": {"huggingFace": {"repository": "bench/model", "revision": "main"}}},
        }
    )
    now = "2026-01-01T00:00:00Z"
    condition = {"reason": "Resolved", "message": "", "lastTransitionTime": now}
    artifact["status"] = {
        "resolved": {
            "revision": commit,
            "manifestDigest": manifest.digest,
            "digestSource": "Hub",
            "fileCount": manifest.file_count,
            "sizeBytes": manifest.size_bytes,
            "resolvedTime": now,
        },
        "conditions": [{"type": "Resolved", "status": "True", **condition}],
    }
    cluster.client.update_status(artifact)
    return artifact["metadata"]["uid"], manifest.digest


def _pause(clock: SystemClock) -> None:
    condition = threading.Condition()
    with condition:
        clock.wait(condition, _PAUSE_SECONDS)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    # Sockets lie below the cluster's folder, and their paths may not be long.
    tempfile.tempdir = str(Path(sys.argv[3]).parents[1])
    main(sys.argv[1], sys.argv[2], Path(sys.argv[4]).read_text("ascii") if sys.argv[4:] else "")
