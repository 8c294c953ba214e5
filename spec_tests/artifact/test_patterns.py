"""artifact#the-resource: which files an artifact keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from spec_tests.deciding import decided
from spec_tests.oracle import File, Tree
from spec_tests.scenario import World

Worlds = Callable[..., World]
PATHS: Final = (
    ".gitattributes",
    "README.md",
    "config.json",
    "onnx/decoder/model.onnx",
    "onnx/model.onnx",
    "model-00001.safetensors",
    "model-00002.safetensors",
    "readme.md",
    "[x].txt",
)
TREE: Final = Tree(
    tuple(File(path, path.encode(), lfs=path.endswith((".safetensors", ".onnx"))) for path in PATHS)
)

FILTERS: Final[dict[str, tuple[list[str], list[str], set[str]]]] = {
    "nothing": ([], [], set(PATHS)),
    "case counts": (["README.md"], [], {"README.md"}),
    "a star crosses slashes": (["onnx*"], [], {"onnx/decoder/model.onnx", "onnx/model.onnx"}),
    "a question mark crosses slashes": (["onnx?model.onnx"], [], {"onnx/model.onnx"}),
    "a slash at the end": (["onnx/"], [], {"onnx/decoder/model.onnx", "onnx/model.onnx"}),
    "a slash at the end ignores": ([], ["onnx/"], {p for p in PATHS if not p.startswith("onnx/")}),
    "a set": (["model-0000[1]*"], [], {"model-00001.safetensors"}),
    "a negated set": (["model-0000[!1]*"], [], {"model-00002.safetensors"}),
    "a bracket itself": (["[[]x].txt"], [], {"[x].txt"}),
    "a dot is nothing special": (["*attributes"], [], {".gitattributes"}),
    "ignore wins": (["*.md"], ["README.md"], {"readme.md"}),
    "several": (["*.json", "*.safetensors"], ["*2*"], {"config.json", "model-00001.safetensors"}),
}


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a world of a worker and a hub."""
    return worlds(nodes=(), worker=True)


@pytest.mark.rule("AR-RES-05")
def test_patterns_select_files(world: World) -> None:
    """Each filter leaves exactly its files, and the digest is the one of just these."""
    repository = world.repository("acme/filtered", TREE)
    for number, (name, (allow, ignore, kept)) in enumerate(FILTERS.items()):
        spec = {"allowPatterns": allow, "ignorePatterns": ignore}
        artifact = world.unresolved(f"a-{number}", repository, spec=spec)
        assert decided(world, artifact) == ("True", "Resolved"), name
        assert world.resolved(artifact)["manifestDigest"] == TREE.only(*kept).digest, name


@pytest.mark.rule("AR-RES-05")
@pytest.mark.parametrize(
    ("allow", "ignore"), [(["*.gguf"], []), ([], ["*"]), (["*.json"], ["config*"])]
)
def test_a_filter_that_keeps_nothing_is_no_artifact(
    world: World, allow: list[str], ignore: list[str]
) -> None:
    """It is EmptyManifest, and there is no digest of nothing."""
    spec = {"allowPatterns": allow, "ignorePatterns": ignore}
    artifact = world.unresolved("a", world.repository("acme/filtered", TREE), spec=spec)
    assert decided(world, artifact) == ("False", "EmptyManifest")
    assert world.resolved(artifact) == {}
