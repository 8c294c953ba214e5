"""What the worker would have written, written by the suite for worlds without one.

The plugin under test reads objects and cannot tell who wrote them. Only the two objects it depends
on are written, with the documented defaults; how they come to be is tested with a real worker. See
docs/decisions/0006-stand-in-for-the-worker.md.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from spec_tests import oracle
from spec_tests.pods import Artifact

Json = dict[str, Any]


class StandIn:
    """Writes artifacts' statuses and nodes' configurations, as cluster admin."""

    def __init__(self, api: Any, endpoint: str, now: Callable[[], float]) -> None:
        """Write through a client; `endpoint` is the hub's URL, `now` the world's time."""
        self._api = api
        self._endpoint = endpoint
        self._now = now

    def configure(self, node: str) -> None:
        """Create a node's NodeModelStore with the default configuration."""
        owner = self._api.get("v1", "Node", node)
        self._api.create(
            {
                "apiVersion": oracle.API,
                "kind": "NodeModelStore",
                "metadata": {
                    "name": node,
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "Node",
                            "name": node,
                            "uid": owner["metadata"]["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "watermarks": {"highPercent": 80, "lowPercent": 70},
                    "download": {"concurrency": 8, "bytesPerSecond": 0},
                    "hub": {"huggingFaceEndpoint": self._endpoint},
                },
            }
        )

    def reconfigure(self, node: str, change: Callable[[Json], None]) -> None:
        """Change a node's spec in place and store it."""
        store = self._api.get(oracle.API, "NodeModelStore", node)
        change(store["spec"])
        self._api.update(store)

    def resolve(self, artifact: Artifact, commit: str) -> None:
        """Write an artifact's status as a resolution that went well leaves it."""
        stored = self._api.get(
            oracle.API, "ModelArtifact", artifact.name, namespace=artifact.namespace
        )
        now = self._time()
        stored["status"] = {
            "observedGeneration": stored["metadata"]["generation"],
            "resolved": {
                "revision": commit,
                "manifestDigest": artifact.digest,
                "digestSource": "Hub",
                "fileCount": len(artifact.tree.files),
                "sizeBytes": artifact.tree.size_bytes,
                "resolvedTime": now,
                "lastValidatedTime": now,
            },
            "conditions": [
                self._condition("Resolved", "True", "Resolved"),
                self._condition("Degraded", "False", "Healthy"),
            ],
        }
        self._api.update_status(stored)

    def set_resolved(self, artifact: Artifact, status: str | None) -> None:
        """Set the Resolved condition, or take it away; what was resolved stays recorded."""
        stored = self._api.get(
            oracle.API, "ModelArtifact", artifact.name, namespace=artifact.namespace
        )
        conditions = deepcopy(stored["status"]["conditions"])
        kept = [condition for condition in conditions if condition["type"] != "Resolved"]
        if status is not None:
            reason = {"True": "Resolved", "False": "AccessDenied"}.get(status, "Resolving")
            kept.append(self._condition("Resolved", status, reason))
        stored["status"]["conditions"] = kept
        self._api.update_status(stored)

    def _condition(self, kind: str, status: str, reason: str) -> Json:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": self._time(),
        }

    def _time(self) -> str:
        moment = datetime.fromtimestamp(int(self._now()), UTC)
        return moment.isoformat().replace("+00:00", "Z")
