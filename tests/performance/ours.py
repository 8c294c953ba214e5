"""Our side of a comparison: list, check, download, verify and sync, as the node plugin does it.

    python -m tests.performance.ours URL COMMIT DESTINATION [CA_FILE]

prints one JSON line: seconds, CPU seconds and peak memory of the work, without the imports.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from pathlib import Path

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.adapters.host import KernelDisk, SystemClock
from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.node.downloading import Cancellation, Downloader, Limits, Target
from gpustack_delivery.vocabulary.manifest import Manifest


def main(url: str, commit: str, destination: Path, ca_pem: str) -> None:
    """Deliver one repository and say what it took."""
    clock, disk = SystemClock(), KernelDisk()
    sys.setswitchinterval(0.0005)  # as the plugin sets it for the sake of its gRPC server
    began, spent = clock.monotonic(), _cpu()
    http = Http(ca_pem=ca_pem, environment={})
    hub = HuggingFace(url, http)
    manifest = Manifest.of(hub.list_tree("bench/model", commit, None))
    targets = [
        Target(
            entry,
            hub.file_url("bench/model", commit, entry.path),
            destination / "tree" / entry.path,
        )
        for entry in manifest.entries
    ]
    got: list[int] = []
    Downloader(http, Limits(clock), clock, disk, Hashing()).fetch(
        targets,
        destination / "state",
        credential=lambda: None,
        cancellation=Cancellation(),
        received=got.append,
    )
    seconds, cpu = clock.monotonic() - began, _cpu() - spent
    http.close()
    assert sum(got) == manifest.size_bytes
    assert threading.active_count() == 1
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    said = {"seconds": seconds, "cpu_seconds": cpu, "peak_mib": peak_mib}
    sys.stdout.write(json.dumps(said) + "\n")


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    _, place, revision, where, *ca = sys.argv
    main(place, revision, Path(where), Path(ca[0]).read_text() if ca else "")
