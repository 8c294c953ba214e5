"""Downloads: all files of one attempt, in parallel, verified and made durable while they arrive.

    Limits          one a node: concurrency, bandwidth and memory that all downloads share
    Downloader      one a configuration of `spec.hub`; `fetch` does an attempt's downloading
    Target          a file to fetch: manifest entry, URL, destination
    Cancellation    ends one attempt from any thread
    resumable_bytes what a `fetch` would not ask for again
    disk_fault      what a refusal of the filesystem means for an attempt

Modules, lowest first: `answers` judges responses, `limits` and `cancellation` stand alone, `ledger`
keeps checkpoints, `writing` puts bytes on their place, `fetching` gets one segment, `files` and
`work` know what is left, `keeping` makes it durable, `engine` runs the threads. The node's attempts
call it.
"""

from __future__ import annotations

from gpustack_delivery.node.downloading.cancellation import Cancellation
from gpustack_delivery.node.downloading.engine import Downloader, resumable_bytes
from gpustack_delivery.node.downloading.files import Shape, disk_fault
from gpustack_delivery.node.downloading.ledger import Target
from gpustack_delivery.node.downloading.limits import Limits

__all__ = [
    "Cancellation",
    "Downloader",
    "Limits",
    "Shape",
    "Target",
    "disk_fault",
    "resumable_bytes",
]
