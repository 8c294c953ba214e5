"""What shows before any world is built that no world can be built for a manifest.

Whatever passes here may still fail, in the test that meets it; what fails here would fail in each.

Called by `spec_tests.plugin`.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import Any, Final

import yaml

from emulator.chart.errors import ChartError
from spec_tests.targets.manifest import PLACEHOLDERS, Manifest, ManifestError
from spec_tests.targets.objects import read
from spec_tests.targets.programs import search_path

_KUBERNETES: Final = "1.30"
_DEFINED: Final = ("ModelArtifact", "NodeModelStore")
"""The kinds that every world has objects of."""


def check(manifest: Manifest) -> None:
    """Look whether the programs are there, and the objects what they must be.

    Raises:
        ManifestError: something is not; the message names the key and what to write.
    """
    for program in manifest.commands:
        anything = defaultdict(str, dict.fromkeys(PLACEHOLDERS[program], "x"))
        word = manifest.command(program, anything)[0]
        if shutil.which(word, path=search_path()) is None:
            raise ManifestError(f"{program}: there is no program {word!r}: build it, or name it")
    objects = _objects(manifest)
    kinds = {
        obj.get("spec", {}).get("names", {}).get("kind")
        for obj in objects
        if obj["kind"] == "CustomResourceDefinition"
    }
    for kind in _DEFINED:
        if kind not in kinds:
            raise ManifestError(f"objects: none defines {kind}: list the files of the CRDs too")


def _objects(manifest: Manifest) -> list[dict[str, Any]]:
    """Read the objects as for a world.

    Raises:
        ManifestError: one cannot be read, or is none.
    """
    values = {"ca_bundle": "QQ==", "worker_url": "https://127.0.0.1:1", "namespace": "n"}
    try:
        objects = read(manifest, namespace="n", kubernetes=_KUBERNETES, values=values)
    except (ChartError, OSError, ValueError, yaml.YAMLError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"objects: {' '.join(str(error).split())}") from error
    for obj in objects:
        named = isinstance(obj, dict) and isinstance(obj.get("metadata"), dict)
        if not (
            named and obj["metadata"].get("name") and obj.get("kind") and obj.get("apiVersion")
        ):
            said = " ".join(str(obj).split())[:60]
            raise ManifestError(
                f"objects: every document has apiVersion, kind and metadata.name; not so {said!r}"
            )
    return objects
