"""Manifests that cannot work: one line that says what to change, before any world is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_tests.targets.manifest import ManifestError, load
from spec_tests.targets.preflight import check
from tests.house.tree import ROOT

HEAD = 'name = "other"\nversion = "1"\n'
PLUGIN = 'model-manager = ["python", "{node}"]\n'
CHART = f'objects = ["{ROOT / "chart"}"]\n'


def written(folder: Path, text: str) -> Path:
    """Write a manifest and return its path."""
    file = folder / "manifest.toml"
    file.write_text(HEAD + text, encoding="utf-8")
    return file


def test_what_can_work_passes(tmp_path: Path) -> None:
    """A program on the search path, and objects that define what worlds are made of."""
    check(load(written(tmp_path, PLUGIN + CHART)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('model-manager = ["no-such-program"]\n' + CHART, "no program 'no-such-program'"),
        ('model-manager = ["./folder"]\n' + CHART, "there is no program"),
        ('model-manager = ["py\\u0000thon"]\n' + CHART, "no NUL"),
        (PLUGIN, "none defines ModelArtifact"),
        (PLUGIN + 'objects = ["none/*.yaml"]\n', "matches nothing"),
        (PLUGIN + 'objects = ["*.toml"]\n', "every document has apiVersion"),
        (PLUGIN + 'objects = ["list.yaml"]\n', "every document has apiVersion"),
        (PLUGIN + 'objects = ["broken.yaml"]\n', "objects: while parsing"),
        (PLUGIN + 'objects = ["folder"]\n', "objects: "),
        (PLUGIN + CHART + "[chart-values.modelManager]\nnope = 1\n", "nope"),
        (PLUGIN + CHART + '[environment]\n"A=B" = "1"\n', "'A=B' cannot be a variable"),
        (PLUGIN + CHART + '[environment]\nA = "\\u0000"\n', "'A' cannot be a variable"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    """It names the key, and leaves no traceback to read."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "list.yaml").write_text("- a\n---\n- b\n", encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("a: [b\n", encoding="utf-8")
    with pytest.raises(ManifestError) as refused:
        check(load(written(tmp_path, text)))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
