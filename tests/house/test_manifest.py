"""The manifest of an implementation: what is read, what is filled in, and what is refused."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from spec_tests.registry import load as load_rules
from spec_tests.targets.manifest import (
    FEATURES,
    MODEL_MANAGER,
    WORKER,
    ManifestError,
    features_of,
    load,
)
from spec_tests.targets.objects import read, services, without_worker
from tests.house.tree import ROOT

OURS = ROOT / "conformance" / "gpustack-delivery.toml"
LEAST = 'name = "other"\nversion = "1.2"\nmodel-manager = ["plugin", "--node={node}"]\n'


def written(folder: Path, text: str) -> Path:
    """Write a manifest and return its path."""
    file = folder / "manifest.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_ours_is_what_we_are() -> None:
    """Our manifest bears our version, brings both programs and leads to objects for both."""
    manifest = load(OURS)
    assert manifest.version == version("gpustack-delivery")
    assert manifest.title == "gpustack-delivery"
    assert set(manifest.commands) == {WORKER, MODEL_MANAGER}
    objects = read(manifest, namespace="gpustack-system", kubernetes="1.30", values={})
    accounts = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ServiceAccount"}
    assert set(manifest.accounts.values()) <= accounts
    assert set(services(objects, 1, 2).values()) == {1, 2}
    assert not services(without_worker(objects), 1, 2)


def test_half_an_implementation_says_so(tmp_path: Path) -> None:
    """With one of the two commands the title says which."""
    assert load(written(tmp_path, LEAST)).title == "other (partial: model-manager only)"


def test_a_command_is_filled_in(tmp_path: Path) -> None:
    """Placeholders are filled, and a program with a slash is found beside the manifest."""
    text = LEAST.replace('"plugin"', '"./bin/plugin"')
    words = load(written(tmp_path, text)).command(MODEL_MANAGER, {"node": "node-a"})
    assert words == [f"{tmp_path.resolve()}/bin/plugin", "--node=node-a"]


def test_objects_are_filled_in(tmp_path: Path) -> None:
    """The authority and the worker's address stand where a file asks for them."""
    (tmp_path / "hooks.yaml").write_text(
        "kind: ValidatingWebhookConfiguration\n"
        "webhooks: [{clientConfig: {caBundle: {ca_bundle}, url: '{worker_url}/check'}}]\n"
    )
    manifest = load(written(tmp_path, LEAST + 'objects = ["*.yaml"]\n'))
    values = {"ca_bundle": "QQ==", "worker_url": "https://127.0.0.1:1"}
    (hook,) = read(manifest, namespace="n", kubernetes="1.30", values=values)
    assert hook["webhooks"][0]["clientConfig"] == {
        "caBundle": "QQ==",
        "url": "https://127.0.0.1:1/check",
    }


def test_objects_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """A pattern that matches nothing is named."""
    manifest = load(written(tmp_path, LEAST + 'objects = ["crds/*.yaml"]\n'))
    with pytest.raises(ManifestError, match=r"crds/\*\.yaml matches nothing"):
        read(manifest, namespace="n", kubernetes="1.30", values={})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LEAST + "worker = 1\n", "worker must be a list"),
        (LEAST + 'wroker = ["x"]\n', "unknown key 'wroker'"),
        (LEAST + 'worker = ["x", "{node}"]\n', r"worker: nothing fills \{node\}"),
        (LEAST + 'features = ["magic"]\n', "unknown feature 'magic'"),
        (LEAST + 'features = ["clock"]\n', r"'clock' needs \{clock_socket\}"),
        (LEAST.replace("{node}", "{clock_socket}"), r"\{clock_socket\} needs the feature 'clock'"),
        (LEAST + "environment = {A = 1}\n", "environment must be a table of texts"),
        (LEAST.replace('"other"', '""'), "name must be a text"),
        ('name = "x"\nversion = "1"\n', "give the command 'worker'"),
        ("name = ", "manifest.toml"),
    ],
)
def test_what_nobody_would_heed_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """Each mistake is refused by name, and never ignored."""
    with pytest.raises(ManifestError, match=complaint):
        load(written(tmp_path, text))


def test_every_feature_is_about_rules_that_exist() -> None:
    """No feature names a rule that is in no catalogue, and a rule of none needs none."""
    rules = load_rules(ROOT / "spec_tests").rules
    for beginnings in FEATURES.values():
        for beginning in beginnings:
            assert [rule for rule in rules if rule.startswith(beginning)], beginning
    assert features_of("PS-SRV-01") == {"peer-sync"}
    assert features_of("NS-AUT-05") == set()
