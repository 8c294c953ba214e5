"""The objects that a manifest names: read, filled in, and what of them the suite has to know.

Webhooks and aggregated APIs lead to the worker. In worlds in which the suite stands in for the
worker nobody would answer there, so those objects are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

from emulator.chart import render
from spec_tests.targets.manifest import Manifest, ManifestError

Json = dict[str, Any]

_OF_THE_WORKER: Final = frozenset(
    {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"}
)


def read(
    manifest: Manifest,
    *,
    namespace: str,
    kubernetes: str,
    values: Mapping[str, str],
    peer_port: int = 0,
) -> list[Json]:
    """Return every object, in the order of the manifest.

    Args:
        values: what stands for `{ca_bundle}` and the like in the text of the files.
        peer_port: what stands for `{peer_port}` in the values of charts.

    Raises:
        ManifestError: a pattern matches nothing.
    """
    found: list[Json] = []
    for pattern in manifest.objects:
        if (manifest.folder / pattern / "Chart.yaml").is_file():
            found += render(
                manifest.folder / pattern,
                release=manifest.name,
                namespace=namespace,
                values=_numbered(manifest.chart_values, peer_port),
                kubernetes=kubernetes,
            )
            continue
        files = sorted(manifest.folder.glob(pattern))
        if not files:
            raise ManifestError(f"objects: {pattern} matches nothing in {manifest.folder}")
        for file in files:
            found += _documents(file, values)
    return found


def without_worker(objects: list[Json]) -> list[Json]:
    """Return the objects of a world in which no worker runs."""
    return [obj for obj in objects if obj["kind"] not in _OF_THE_WORKER]


def services(objects: list[Json], webhooks: int, apis: int) -> dict[tuple[str, str], int]:
    """Return by namespace and name every Service that leads to the worker, with the port behind."""
    found: dict[tuple[str, str], int] = {}
    for obj in objects:
        of_api = obj["kind"] == "APIService"
        hooks = obj.get("webhooks") or ()
        reached = [obj["spec"]] if of_api else [hook["clientConfig"] for hook in hooks]
        for service in (each["service"] for each in reached if each.get("service")):
            found[service["namespace"], service["name"]] = apis if of_api else webhooks
    return found


def pod_template(objects: list[Json], account: str, ports: Mapping[str, int]) -> Json:
    """Return the Pod that a DaemonSet of an account would make, or the least that there can be.

    It declares the world's own ports by their names, by which the worker and other plugins find
    them; a port 0 is not there.
    """
    container = {"name": "main", "image": "model-manager"}
    least = {"metadata": {}, "spec": {"serviceAccountName": account, "containers": [container]}}
    templates = (obj["spec"]["template"] for obj in objects if obj["kind"] == "DaemonSet")
    of_account = (each for each in templates if each["spec"].get("serviceAccountName") == account)
    template: Json = deepcopy(next(of_account, least))
    for each in template["spec"]["containers"]:
        each["ports"] = [port for port in each.get("ports") or () if port.get("name") not in ports]
    declared = [{"name": name, "containerPort": port} for name, port in ports.items() if port]
    template["spec"]["containers"][0]["ports"] += declared
    return template


def _numbered(value: Any, peer_port: int) -> Any:
    """Return a chart's values with the peer port as the number that it is."""
    if isinstance(value, Mapping):
        return {key: _numbered(each, peer_port) for key, each in value.items()}
    return peer_port if value == "{peer_port}" else value


def _documents(file: Path, values: Mapping[str, str]) -> Iterator[Json]:
    text = file.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    yield from (document for document in yaml.safe_load_all(text) if document is not None)
