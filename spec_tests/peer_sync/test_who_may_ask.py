"""peer-sync#who-may-ask: plugins' own tokens for this audience, and nobody else's."""

from __future__ import annotations

import pytest

from spec_tests import oracle
from spec_tests.conftest import Builder
from spec_tests.peers import PeerClient, file_path, free_port, tree_path
from spec_tests.scenario import World
from spec_tests.worlds import TINY

pytestmark = pytest.mark.feature("peer-sync")
LISTING = tree_path(TINY.digest)


@pytest.fixture
def world(worlds: Builder) -> World:
    """Give a world whose one node has published a tree and serves it."""
    world = worlds(peer_port=free_port())
    world.node.mount(world.artifact())
    return world


@pytest.mark.rule("PS-SRV-02")
def test_a_plugins_token_for_this_audience_is_needed(world: World) -> None:
    """No token, another audience, another account or a made-up text is 401 everywhere."""
    client = PeerClient(world, "node-a")
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    metadata = {"name": "stranger", "namespace": oracle.OPERATOR_NAMESPACE}
    world.api.create({**account, "metadata": metadata})
    refused = {
        "none": "",
        "made up": "not.a.token",
        "for the API server": client.token(audience="https://kubernetes.default.svc"),
        "for something else": client.token(audience="vault"),
        "a stranger's": client.token("stranger"),
    }
    for name, token in refused.items():
        for path in (LISTING, file_path(TINY.digest, "config.json"), "/"):
            assert client.status(path, token) == 401, (name, path)
    assert client.status(LISTING) == 200
    assert client.status(file_path(TINY.digest, "config.json")) == 200


@pytest.mark.rule("PS-SRV-02")
def test_only_a_bearer_token_is_one(world: World) -> None:
    """A good token in any other form is none."""
    client = PeerClient(world, "node-a")
    for form in ("", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {} x"):
        shown = {"Authorization": form.format(client.own_token)}
        assert client.get(LISTING, token="", headers=shown)[0] == 401, form


@pytest.mark.rule("PS-SRV-02")
def test_a_yes_is_remembered_for_a_short_time_only(world: World) -> None:
    """A token that has become void is still good for a moment, and refused two minutes later."""
    client = PeerClient(world, "node-a")
    # Bound to a Pod of its own, so that the plugin's own identity stays good when that Pod goes.
    world.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "bound", "namespace": oracle.OPERATOR_NAMESPACE},
            "spec": {
                "nodeName": "node-a",
                "serviceAccountName": world.seat.plugin_user.rpartition(":")[2],
                "containers": [{"name": "main", "image": "plugin"}],
            },
        }
    )
    token = client.token(pod="bound")
    assert client.status(LISTING, token) == 200
    world.remove_pod(oracle.OPERATOR_NAMESPACE, "bound")
    assert client.status(LISTING, token) == 200
    world.advance(121)
    assert client.status(LISTING, token) == 401


@pytest.mark.rule("PS-SRV-02")
def test_a_yes_is_not_remembered_past_the_tokens_own_end(world: World) -> None:
    """A token that expires in a minute is refused after it, though it was asked about just now."""
    client = PeerClient(world, "node-a")
    token = client.token(seconds=600)
    world.advance(550)
    assert client.status(LISTING, token) == 200
    world.advance(49)
    assert client.status(LISTING, token) == 200
    world.advance(2)
    assert client.status(LISTING, token) == 401


@pytest.mark.rule("PS-SRV-02")
def test_what_cannot_be_judged_is_not_answered(world: World) -> None:
    """Without the right to review tokens nothing is served, and nothing is remembered of it."""
    client = PeerClient(world, "node-a")
    with world.rights_withdrawn():
        assert client.status(LISTING) >= 400
    world.until(lambda: client.status(LISTING) == 200, "it is served again", within_seconds=5)
