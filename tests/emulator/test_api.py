"""The model: many callers at once, the steps it is built from, and what it forgets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator.api import ADMIN, Steps, Target
from emulator.client import Client
from emulator.contracts import (
    Access,
    Caller,
    Decision,
    ListOptions,
    WriteOptions,
)  # fmt: skip
from emulator.errors import ApiError
from emulator.objects import HISTORY
from tests.emulator.rig import Gatekeeper, config_map, definition, running, widget

Json = dict[str, Any]


@pytest.fixture
def client() -> Iterator[Client]:
    """Give a client of a fresh server."""
    with running() as opened:
        yield opened


def at_once(count: int, act: Callable[[int], None]) -> list[Exception]:
    """Run a function on many threads at the same time; return what they raised."""
    raised: list[Exception] = []
    gate = threading.Barrier(count)

    def run(index: int) -> None:
        gate.wait(30)
        try:
            act(index)
        except Exception as error:  # noqa: BLE001 - handed to the test
            raised.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return raised


def test_two_servers_share_nothing() -> None:
    """Two servers in one process have objects, versions and kinds of their own."""
    with running() as one, running() as other:
        one.create(config_map("a"))
        one.create(definition("gones", "Gone"))
        assert other.list("v1", "ConfigMap") == []
        with pytest.raises(ApiError, match="could not find"):
            other.list("rig.example.io/v1", "Gone")


def test_a_seed_makes_names_and_uids_again() -> None:
    """Two runs with one seed give the same uids and generated names."""
    runs = []
    for _ in range(2):
        with running(seed=7) as client:
            body = {**config_map(""), "metadata": {"generateName": "x-", "namespace": "default"}}
            made = client.create(body)["metadata"]
            runs.append((made["name"], made["uid"]))
    assert runs[0] == runs[1]


def test_one_of_many_creates_a_name(client: Client) -> None:
    """Of many that create the same name at once, one succeeds and the others hear AlreadyExists."""

    def create(_: int) -> None:
        client.create(config_map("same"))

    raised = at_once(8, create)
    assert [error.reason for error in raised if isinstance(error, ApiError)] == [
        "AlreadyExists"
    ] * 7


def test_no_patch_is_lost(client: Client) -> None:
    """Patches of different fields at the same time all arrive, and none sees a conflict."""
    client.create(config_map("shared", start="0"))

    def patch(index: int) -> None:
        for turn in range(10):
            change = {"data": {f"k{index}": str(turn)}}
            client.patch("v1", "ConfigMap", "shared", change, namespace="default")

    assert at_once(8, patch) == []
    data = client.get("v1", "ConfigMap", "shared", namespace="default")["data"]
    assert data == {"start": "0", **{f"k{index}": "9" for index in range(8)}}


def test_a_stale_update_conflicts(client: Client) -> None:
    """Of two updates from one reading, the second hears Conflict and changes nothing."""
    first = client.create(config_map("m", a="1"))
    client.update({**first, "data": {"a": "2"}})
    with pytest.raises(ApiError) as refused:
        client.update({**first, "data": {"a": "3"}})
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert client.get("v1", "ConfigMap", "m", namespace="default")["data"] == {"a": "2"}


def test_a_watch_shows_every_write_in_order(client: Client) -> None:
    """While many write, a watch sees each write once and versions that only rise."""
    with client.watch("v1", "ConfigMap", namespace="default") as watch:

        def write(index: int) -> None:
            for turn in range(10):
                client.create(config_map(f"w-{index}-{turn}"))

        assert at_once(8, write) == []
        watch.close()
        events = list(watch)
    versions = [int(object_["metadata"]["resourceVersion"]) for _, object_ in events]
    assert [type_ for type_, _ in events] == ["ADDED"] * 80
    assert versions == sorted(set(versions))


def test_closing_ends_a_watch_that_waits(client: Client) -> None:
    """A reader that waits for events comes back when another thread closes the watch."""
    target = Target(client.api.resource("", "v1", "configmaps"), "default")
    client.create(config_map("first"))
    stream = client.api.watch(target)
    seen = threading.Event()
    events: list[str] = []

    def read() -> None:
        for event in stream:
            events.append(event.type)
            seen.set()

    # Waits with a deadline pass at once on this clock, so the reader may also end by its timeout.
    reader = threading.Thread(target=read)
    reader.start()
    assert seen.wait(30)
    stream.close()
    reader.join(30)
    assert not reader.is_alive()
    assert events == ["ADDED"]


def test_watches_share_one_encoding(client: Client) -> None:
    """Every watch that sees the same event sends the very same bytes."""
    target = Target(client.api.resource("", "v1", "configmaps"), "default")
    options = ListOptions(resource_version=str(client.api.store.version))
    streams = [client.api.watch(target, options) for _ in range(3)]
    client.create(config_map("a"))
    for stream in streams:
        stream.close()
    lines = [next(iter(stream)).line() for stream in streams]
    assert len({id(line) for line in lines}) == 1


def test_a_watch_of_one_name_hears_of_it_alone(client: Client) -> None:
    """Of many watches by name, each sees its own object from its first to its last state."""
    target = Target(client.api.resource("", "v1", "configmaps"), "default")
    watches = {
        name: client.api.watch(target, ListOptions(field_selector=f"metadata.name={name}"))
        for name in ("a", "b")
    }
    for name in ("a", "b"):
        client.create(config_map(name))
        client.delete("v1", "ConfigMap", name, namespace="default")
    for name, stream in watches.items():
        stream.close()
        seen = [(event.type, event.object["metadata"]["name"]) for event in stream]
        assert seen == [("ADDED", name), ("DELETED", name)]


def test_a_pod_enters_its_nodes_watch_when_bound(client: Client) -> None:
    """A watch of one node's Pods sees a Pod from its binding on, and one of no node lets it go."""
    pods = Target(client.api.resource("", "v1", "pods"))
    here = client.api.watch(pods, ListOptions(field_selector="spec.nodeName=node-a"))
    nowhere = client.api.watch(pods, ListOptions(field_selector="spec.nodeName="))
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }  # fmt: skip
    client.create(body)
    client.bind("default", "p", "node-a")
    for stream in (here, nowhere):
        stream.close()
    assert [event.type for event in here] == ["ADDED"]
    assert [event.type for event in nowhere] == ["ADDED", "DELETED"]


def test_history_is_bounded(client: Client) -> None:
    """After more writes than are kept, an old version is 410 for a watch and for a page."""
    for index in range(3):
        client.create(config_map(f"m{index}"))
    target = Target(client.api.resource("", "v1", "configmaps"), "default")
    page = client.api.list(target, ListOptions(limit=2))
    for turn in range(HISTORY + 1):
        client.api.update(
            ADMIN, Target(target.resource, "default", "m0"), config_map("m0", t=str(turn))
        )
    old = ListOptions(resource_version=page.resource_version)
    events = list(client.api.watch(target, old))
    assert [(event.type, event.object["code"]) for event in events] == [("ERROR", 410)]
    with pytest.raises(ApiError) as refused:
        client.api.list(target, ListOptions(limit=2, continue_token=page.continue_token))
    assert refused.value.code == 410
    again = refused.value.status["metadata"]["continue"]
    rest = client.api.list(target, ListOptions(limit=2, continue_token=again))
    assert [one["metadata"]["name"] for one in rest.items] == ["m2"]


def test_what_comes_out_of_a_client_is_private(client: Client) -> None:
    """Changing an object that a client returned changes nothing on the server."""
    client.create(config_map("m", a="1"))
    client.get("v1", "ConfigMap", "m", namespace="default")["data"]["a"] = "2"
    client.list("v1", "ConfigMap")[0]["data"]["a"] = "2"
    assert client.get("v1", "ConfigMap", "m", namespace="default")["data"] == {"a": "1"}


def test_dry_run_stores_nothing(client: Client) -> None:
    """A dry run answers as the write would and leaves no trace, not even a version."""
    target = Target(client.api.resource("", "v1", "configmaps"), "default")
    before = client.api.store.version
    outcome = client.api.create(ADMIN, target, config_map("dry"), WriteOptions(dry_run=True))
    assert outcome.code == 201
    assert client.list("v1", "ConfigMap") == []
    assert client.api.store.version == before


class Nobody:
    """An authorizer that says no to everyone but the admin."""

    def decide(self, access: Access) -> Decision:
        """Answer by the caller alone."""
        return Decision(access.caller == ADMIN, "only the admin may")


def test_a_client_asks_before_it_acts() -> None:
    """Whom the authorizer refuses gets the sentence that names user, verb and resource."""
    with running(Steps(authorizer=Nobody())) as client:
        client.create(config_map("m"))
        with pytest.raises(ApiError) as refused:
            client.as_caller(Caller("eve")).delete("v1", "ConfigMap", "m", namespace="default")
        assert refused.value.code == 403
        assert 'User "eve" cannot delete resource "configmaps"' in refused.value.message
        assert client.get("v1", "ConfigMap", "m", namespace="default")


def test_admission_has_its_say() -> None:
    """Mutation comes before validation, its change is stored, and its warnings reach the caller."""
    gate = Gatekeeper()
    with running(Steps(admission=gate)) as client:
        target = Target(client.api.resource("", "v1", "configmaps"), "default")
        outcome = client.api.create(ADMIN, target, config_map("m"))
        assert outcome.warnings == ("labelled",)
        client.delete("v1", "ConfigMap", "m", namespace="default")
    assert outcome.object["metadata"]["labels"] == {"seen": "true"}
    assert gate.asked == [
        ("mutate", "CREATE", "m"), ("validate", "CREATE", "m"), ("validate", "DELETE", "m"),
    ]  # fmt: skip


def test_widgets_need_their_crd(client: Client) -> None:
    """A kind that nobody defined answers that it is not served."""
    with pytest.raises(ApiError, match="could not find the requested resource"):
        client.create(widget("w"), namespace="default")
