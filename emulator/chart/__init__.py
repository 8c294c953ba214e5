"""A Helm chart rendered without Helm: the declared subset that our own chart needs, and a clear no
to the rest.

`render` reads Chart.yaml, values.yaml, crds/ and templates/ of a chart folder and returns the
objects in the order in which Helm installs them. It has no lookups into a cluster, no sub-charts,
no hooks and no generated secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from emulator.chart.errors import ChartError
from emulator.chart.evaluation import Renderer
from emulator.chart.functions import Value
from emulator.chart.syntax import Node, parse
from emulator.chart.values import check, given, laid_over, mapping

__all__ = ["ChartError", "given", "render"]

Json = dict[str, Any]
# libyaml's where the wheel has it: the CRDs are long, and every installation reads them.
_Loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader

_INSTALL_ORDER = (
    "Namespace", "ResourceQuota", "LimitRange", "Secret", "ConfigMap", "StorageClass",
    "PersistentVolume", "PersistentVolumeClaim", "ServiceAccount", "CustomResourceDefinition",
    "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service", "DaemonSet", "Pod",
    "Deployment", "StatefulSet", "Job", "CronJob", "Ingress", "APIService",
    "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
)  # fmt: skip


def render(
    chart: Path,
    *,
    release: str,
    namespace: str,
    values: Mapping[str, Value] | None = None,
    kubernetes: str = "1.30",
) -> list[Json]:
    """Return a chart's objects: its CRDs first, then what its templates say, in install order.

    Args:
        chart: the chart's folder.
        values: laid over the chart's own values.yaml, map by map; None takes a key away.
        kubernetes: the server version that `.Capabilities` tells.

    Raises:
        ChartError: what is missing, unreadable, not supported or outside the chart's schema, and
            where.
    """
    if not (chart / "Chart.yaml").is_file():
        raise ChartError(f"chart {chart} has no Chart.yaml: point at a chart's folder")
    if (chart / "charts").exists():
        raise ChartError(f"chart {chart} has sub-charts, which this renderer does not support")
    root = _root(chart, release, namespace, values or {}, kubernetes)
    crds = [
        obj
        for path in _files(chart / "crds")
        for obj in _documents(path.name, path.read_text("utf-8"))
    ]
    objects = [obj for name, text in _texts(chart, root) for obj in _documents(name, text)]
    for obj in objects:
        if "helm.sh/hook" in (obj.get("metadata", {}).get("annotations") or {}):
            raise ChartError(
                f"{obj['kind']} {obj['metadata'].get('name')} is a hook; hooks are not supported"
            )
    return crds + sorted(objects, key=_install_rank)


def _root(
    chart: Path, release: str, namespace: str, values: Mapping[str, Value], kubernetes: str
) -> Json:
    """Return what `.` and `$` are in a template."""
    meta = mapping(chart / "Chart.yaml")
    own = mapping(chart / "values.yaml") if (chart / "values.yaml").exists() else {}
    merged = laid_over(own, values)
    check(chart, merged)
    version = kubernetes if kubernetes.startswith("v") else f"v{kubernetes}"
    return {
        "Values": merged,
        "Chart": {key[:1].upper() + key[1:]: value for key, value in meta.items()},
        "Release": {
            "Name": release,
            "Namespace": namespace,
            "Service": "Helm",
            "Revision": 1,
            "IsInstall": True,
            "IsUpgrade": False,
        },
        "Capabilities": {"KubeVersion": {"Version": version, "GitVersion": version}},
        "Files": {"Get": lambda name: _content(chart, name)},
    }


def _texts(chart: Path, root: Json) -> Iterator[tuple[str, str]]:
    """Render every template file that is not a partial one."""
    files: dict[str, list[Node]] = {}
    defines: dict[str, list[Node]] = {}
    for path in _files(chart / "templates"):
        if path.name == "NOTES.txt":
            continue
        name = path.relative_to(chart).as_posix()
        nodes, own = parse(name, path.read_text("utf-8"))
        defines |= own
        if not path.name.startswith("_"):
            files[name] = nodes
    renderer = Renderer(defines)
    for name, nodes in files.items():
        template = {"Template": {"Name": f"{root['Chart'].get('Name')}/{name}"}}
        yield name, renderer.render(name, nodes, root | template)


def _documents(name: str, text: str) -> Iterator[Json]:
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        raise ChartError(f"{name} is not YAML after rendering: {error}") from error
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document or "apiVersion" not in document:
            raise ChartError(
                f"{name} holds something that is no object: apiVersion or kind is missing"
            )
        yield document


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def _content(chart: Path, name: str) -> str:
    path = (chart / name).resolve()
    if not path.is_relative_to(chart.resolve()) or not path.is_file():
        return ""
    return path.read_text("utf-8")


def _install_rank(obj: Json) -> tuple[int, str]:
    kind = str(obj["kind"])
    return (_INSTALL_ORDER.index(kind) if kind in _INSTALL_ORDER else len(_INSTALL_ORDER), kind)
