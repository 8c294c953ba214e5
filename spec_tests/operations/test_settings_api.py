"""operations#where-the-configuration-comes-from: Settings as objects, judged when edited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from spec_tests import oracle
from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.warming import Warming

SETTINGS: Final = f"/apis/gpustack.ai/v1/namespaces/{oracle.OPERATOR_NAMESPACE}/settings"
MERGE: Final = "application/merge-patch+json"
SEEDED: Final = {"model-artifact-delivery-mode": "Node"}
DEFAULTS: Final = {
    "model-artifact-modelscope-endpoint": "https://www.modelscope.cn",
    "model-artifact-https-proxy": "",
    "model-artifact-no-proxy": "",
    "model-artifact-ca-bundle": "",
    "model-artifact-revalidate-interval": "24h",
    "model-store-high-watermark": "80",
    "model-store-low-watermark": "70",
    "model-store-download-concurrency": "8",
    "model-store-download-bandwidth": "0",
    "model-store-peer-sync": "true",
    "model-prefetch-warmup-image": "gpustack/mirrored-python:3.12-alpine",
}
Worlds = Callable[..., World]


@pytest.fixture
def world(worlds: Worlds) -> World:
    """Give a worker that serves the Settings, and a node without a plugin."""
    world = worlds(worker=True, plugins=False)
    admin = world.as_user("", {})
    world.until(
        lambda: admin.ask("GET", SETTINGS)[0] == 200, "Settings are served", within_seconds=60
    )
    return world


def patch(world: World, name: str, value: str | None) -> tuple[int, dict[str, Any]]:
    """Patch a Setting's value as the admin; return the status and the body."""
    body = {"spec": {"value": value}}
    return world.as_user("", {}).ask("PATCH", f"{SETTINGS}/{name}", body, content_type=MERGE)


def value_of(world: World, name: str) -> str:
    """Return a Setting's value in force."""
    return str(world.as_user("", {}).read(f"{SETTINGS}/{name}")["status"]["value"])


@pytest.mark.rule("OP-SET-01")
def test_every_setting_has_its_default(world: World) -> None:
    """All of them are listed, with the documented defaults where neither value nor seed is."""
    items = world.as_user("", {}).read(SETTINGS)["items"]
    values = {item["metadata"]["name"]: item["status"]["value"] for item in items}
    endpoint = values.pop("model-artifact-huggingface-endpoint")
    assert endpoint == world.hub.url  # the suite has set this one, to keep off the real hub
    assert values == DEFAULTS | SEEDED


@pytest.mark.rule("OP-SET-01")
@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        ("model-artifact-delivery-mode", "node", "Engine or Node"),
        ("model-artifact-huggingface-endpoint", "ftp://hub.example", "http or https"),
        ("model-artifact-modelscope-endpoint", "hub.example", "http or https"),
        ("model-artifact-https-proxy", "http://user:word@proxy.example", "credentials"),
        ("model-artifact-ca-bundle", "Not A Name", "name"),
        ("model-artifact-revalidate-interval", "59s", "1m"),
        ("model-store-high-watermark", "96", "95"),
        ("model-store-high-watermark", "70", "model-store-low-watermark"),
        ("model-store-low-watermark", "0", "1"),
        ("model-store-low-watermark", "80", "model-store-low-watermark"),
        ("model-store-download-concurrency", "65", "64"),
        ("model-store-download-bandwidth", "-1", "negative"),
        ("model-store-download-bandwidth", "fast", "quantity"),
        ("model-store-peer-sync", "maybe", "true or false"),
        ("model-prefetch-warmup-image", "", "image"),
    ],
)
def test_a_bad_value_is_refused_and_the_check_named(
    world: World, name: str, bad: str, said: str
) -> None:
    """The edit is refused at admission, the message names check and Setting, nothing is stored."""
    before = value_of(world, name)
    code, answer = patch(world, name, bad)
    assert (code, answer.get("reason")) == (422, "Invalid"), answer
    assert said in answer["message"]
    assert name in answer["message"]
    assert "user:word" not in answer["message"]
    assert value_of(world, name) == before


@pytest.mark.rule("OP-SET-01")
def test_an_edit_reaches_the_nodes_and_can_be_taken_back(world: World) -> None:
    """A stored value is in force within a minute; null gives the default back."""
    Warming(world).register("node-a")

    def concurrency() -> int:
        return int(world.node.store()["spec"]["download"]["concurrency"])

    assert concurrency() == 8
    assert patch(world, "model-store-download-concurrency", "6")[0] == 200
    world.until(lambda: concurrency() == 6, "the new value", within_seconds=60)
    assert patch(world, "model-store-download-concurrency", None)[0] == 200
    world.until(lambda: concurrency() == 8, "the default again", within_seconds=60)


@pytest.mark.rule("OP-SET-01")
def test_node_delivery_needs_the_driver(world: World) -> None:
    """Without the CSIDriver, Node is refused and the driver named; Engine is not."""
    name = "model-artifact-delivery-mode"
    assert patch(world, name, "Engine")[0] == 200
    world.api.delete("storage.k8s.io/v1", "CSIDriver", oracle.DRIVER)
    code, answer = patch(world, name, "Node")
    assert code == 422
    assert oracle.DRIVER in answer["message"]
    assert value_of(world, name) == "Engine"


@pytest.mark.rule("OP-SET-01")
def test_verbs_rights_and_versions(world: World) -> None:
    """Nothing is made or deleted, rights are asked for, and an old reading overwrites nothing."""
    admin = world.as_user("", {})
    name = "model-store-download-concurrency"
    path = f"{SETTINGS}/{name}"
    seen = admin.read(path)
    assert admin.ask("DELETE", path)[0] == 405
    assert admin.ask("POST", SETTINGS, seen)[0] == 405
    assert patch(world, "no-such-setting", "1")[0] == 404
    assert world.as_user("reader", {}).ask("GET", path)[0] == 403

    assert patch(world, name, "5")[0] == 200
    stale = {**seen, "spec": {"value": "4"}}
    assert admin.ask("PUT", path, stale)[0] == 409
    fresh = {**admin.read(path), "spec": {"value": "4"}}
    assert admin.ask("PUT", path, fresh)[0] == 200
    assert value_of(world, name) == "4"


@pytest.mark.rule("OP-SET-01")
def test_a_watch_tells_of_an_edit(world: World) -> None:
    """Whoever edits, through the API or in the Secret, the Setting that moved is told."""
    admin = world.as_user("", {})
    version = admin.read(SETTINGS)["metadata"]["resourceVersion"]
    set_setting(world, "model-store-download-concurrency", "7")
    path = f"{SETTINGS}?watch=1&resourceVersion={version}"
    selector = "&fieldSelector=metadata.name%3Dmodel-store-download-concurrency"
    event = admin.watched(path + selector, 1)[0]
    assert event["type"] == "MODIFIED"
    assert event["object"]["status"]["value"] == "7"
