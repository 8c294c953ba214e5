"""Every field of every kind with everything wrong for it: refused by its name, or stored and told.

The fields are read off the schemas under chart/crds, so a new one is covered the day it is there.
Nothing that was stored may make the worker or a plugin fail by a mistake of ours.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import pytest

from emulator.cluster import Cluster
from emulator.errors import ApiError
from emulator.node import Node
from gpustack_delivery.adapters.kube import KubeClient, connect
from gpustack_delivery.embedded import Embedded, host_fault
from gpustack_delivery.errors import Invalid
from gpustack_delivery.vocabulary.resources import Json, Resource
from gpustack_delivery.vocabulary.settings import SETTINGS
from tests.unit.fakes import eventually
from tests.unit.wrong_specs import GOOD, ODD, SCHEMAS, Place, names, walk, wrong_specs

SETTING: Final = Resource("gpustack.ai", "v1", "settings", "Setting")
API: Final = "worker.gpustack.ai/v1alpha1"
NAMESPACE: Final = "team-a"
NODE: Final = "node-a"
REPORTS: Final = {
    "ModelArtifact": lambda status: status.get("conditions"),
    "ModelStore": lambda status: status.get("conditions"),
    "ModelStoreBinding": lambda status: status.get("phase"),
    "ModelPrefetch": lambda status: status.get("conditions"),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_good_objects_have_every_field(kind: str) -> None:
    """What is walked below is all that the schema knows."""
    walked = {
        tuple(step for step in place if isinstance(step, str))
        for good in GOOD[kind]
        for place, _ in walk(SCHEMAS[kind], good)
    }
    assert set(names(SCHEMAS[kind])) <= walked


def patiently(condition: Callable[[], object], what: str) -> None:
    """Wait six times as long as usual: hundreds of objects are reported on, on a busy machine."""
    for _ in range(5):
        with suppress(AssertionError):
            return eventually(condition, what)
    return eventually(condition, what)


class World:
    """A cluster with a worker, a plugin on one node and a hub that has nothing."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster, self.client, self.node = cluster, cluster.client, node

    def refer(self) -> None:
        """Make what the good objects name, and wait until it can be named."""
        patiently(self.ready, "the node's first report")
        for kind, name, spec in (
            ("ModelArtifact", "artifact", {"source": {"huggingFace": {"repository": "org/model"}}}),
            ("ModelStore", "store", GOOD["ModelStore"][0]),
            ("ModelStoreBinding", "binding", GOOD["ModelStoreBinding"][0]),
        ):
            metadata = {"name": name} | ({} if kind == "ModelStore" else {"namespace": NAMESPACE})
            self.client.create(
                {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
            )
            patiently(partial(self.reported, kind, name), name)

    def reported(self, kind: str, name: str) -> bool:
        """Say whether an object has a status."""
        namespace = "" if kind == "ModelStore" else NAMESPACE
        found = self.client.get(API, kind, name, namespace=namespace)
        return bool(REPORTS[kind](found.get("status", {})))

    def ready(self) -> bool:
        """Say whether the node's plugin reports that it serves."""
        return self.condition(API, "NodeModelStore", NODE, "", "Ready") == "Serving"

    def condition(self, api: str, kind: str, name: str, namespace: str, type_: str) -> str:
        """Return the reason of a condition, "" while there is none."""
        try:
            found = self.client.get(api, kind, name, namespace=namespace)
        except ApiError:
            return ""
        conditions = found.get("status", {}).get("conditions", [])
        return next((str(c["reason"]) for c in conditions if c["type"] == type_), "")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Yield the cluster; the objects of one test do not disturb another's."""
    with Cluster(translate=host_fault) as cluster:
        node = cluster.add_node(NODE)
        hub, scope = cluster.add_hub(), cluster.add_model_scope()
        hub.add_repository("org/model", {"config.json": b"{}"})
        embedded = Embedded(cluster)
        embedded.install()
        settings = {
            "model-artifact-huggingface-endpoint": hub.url,
            "model-artifact-modelscope-endpoint": scope.url,
        }
        place = {"name": "gpustack-settings", "namespace": embedded.namespace}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": place, "stringData": settings}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        cluster.apply([secret, namespace])
        embedded.start_worker()
        try:
            embedded.start_plugin(node)
            made = World(cluster, node)
            made.refer()
            yield made
        finally:
            embedded.close()


@pytest.fixture
def mistakes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail for what a last door has logged: an error that nobody expected."""
    caplog.set_level(logging.INFO)
    yield
    found = [
        record.getMessage() + str(record.exc_info or "")
        for record in caplog.get_records("call")
        if record.exc_info or "mistake of ours" in record.getMessage()
    ]
    assert found == []


def refusal(error: ApiError) -> str:
    """Return what the API says of a refused object."""
    assert 400 <= error.code < 500, error
    return str(error)


def names_it(said: str, place: Place) -> bool:
    """Say whether a refusal names a place: its nearest field, or for a webhook one it lies in."""
    steps = ["spec", *(step for step in place if isinstance(step, str))]
    return any(step in said for step in (steps[1:] if "admission webhook" in said else steps[-1:]))


@pytest.mark.usefixtures("mistakes")
@pytest.mark.parametrize("kind", REPORTS)
def test_a_wrong_field_is_refused_or_reported(world: World, kind: str) -> None:
    """The refusal names the field; what is stored gets a status that says what became of it."""
    client, counter = world.client, itertools.count()
    namespace = "" if kind == "ModelStore" else NAMESPACE
    stored: list[str] = []
    refused = 0
    for place, value, spec in wrong_specs(kind):
        metadata = {"name": f"o{next(counter)}"} | ({"namespace": NAMESPACE} if namespace else {})
        body = {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
        try:
            client.create(body)
        except ApiError as error:
            refused += 1
            said = refusal(error)
            shown = (place, str(value)[:60], said[:600])
            if not names_it(said, place):
                pytest.fail(f"the refusal does not name the field: {shown}")
            continue
        stored.append(str(metadata["name"]))
    assert refused > 20

    def silent() -> list[str]:
        return [
            found["metadata"]["name"]
            for found in client.list(API, kind, namespace=namespace)
            if not REPORTS[kind](found.get("status", {}))
        ]

    patiently(lambda: not silent(), f"a status of each of {len(stored)} objects")
    for name in stored:
        client.delete(API, kind, name, namespace=namespace)
    kept = {"artifact", "store", "binding"}

    def left() -> set[str]:
        return {o["metadata"]["name"] for o in client.list(API, kind, namespace=namespace)} - kept

    patiently(lambda: not left(), "that all of them are gone")


@pytest.mark.usefixtures("mistakes")
@pytest.mark.parametrize("kind", ["ModelDeployment", "Instance", "InstanceType"])
def test_a_wrong_field_of_a_consumer(world: World, kind: str) -> None:
    """It is refused by its name, or it runs; a template that cannot is told to its author."""
    client, counter = world.client, itertools.count()
    namespace = "" if kind == "InstanceType" else NAMESPACE
    untold: set[str] = set()
    stored: list[str] = []
    for place, value, spec in wrong_specs(kind):
        name = f"c{next(counter)}"
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        try:
            client.create({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
        except ApiError as error:
            said = refusal(error)
            assert names_it(said, place), (place, str(value)[:60], said[:300])
            continue
        stored.append(name)
        if place[-2:] in (("spec", "volumes"), ("metadata", "labels")) and value in ("x", 5):
            untold.add(name)

    def told() -> bool:
        events = client.list("v1", "Event", namespace=NAMESPACE)
        heard = {e["involvedObject"]["name"] for e in events if e["reason"] == "InvalidTemplate"}
        return untold <= heard

    assert kind == "InstanceType" or len(untold) == 4
    patiently(told, f"an event for each of {sorted(untold)}")
    for name in stored:
        client.delete(API, kind, name, namespace=namespace)


@pytest.mark.usefixtures("mistakes")
def test_a_wrong_field_of_a_nodes_store(world: World) -> None:
    """It is refused by its name, or the plugin says so in its condition and serves on."""
    refused = 0
    for place, value, spec in wrong_specs("NodeModelStore"):
        try:
            world.client.patch(API, "NodeModelStore", NODE, {"spec": spec})
        except ApiError as error:
            refused += 1
            said = refusal(error)
            assert names_it(said, place), (place, str(value)[:60], said[:300])
    assert refused > 20
    world.client.delete(API, "NodeModelStore", NODE)
    patiently(world.ready, "that the node serves with a store made again")


@pytest.mark.parametrize("kind", ["ModelArtifact", "NodeModelStore"])
def test_a_status_is_not_anybodys(world: World, kind: str) -> None:
    """Whatever an administrator writes there, right or wrong, is refused."""
    name, namespace = (NODE, "") if kind == "NodeModelStore" else ("guarded", NAMESPACE)
    if namespace:
        metadata = {"name": name, "namespace": namespace}
        spec = {"source": {"huggingFace": {"repository": "org/model"}}}
        world.client.create({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
    wrongs: tuple[object, ...] = ({"conditions": []}, {"observedGeneration": -1}, "x", [], 5)
    for wrong in wrongs:
        with pytest.raises(ApiError, match="status") as caught:
            world.client.patch(
                API, kind, name, {"status": wrong}, namespace=namespace, subresource="status"
            )
        refusal(caught.value)


def told(kube: KubeClient, name: str) -> bool:
    """Say whether a Setting tells that its stored value is not in force."""
    setting = kube.get(SETTING, name, "gpustack-system")
    return "the last valid value stays in force" in setting["status"].get("message", "")


@pytest.mark.usefixtures("mistakes")
def test_a_wrong_setting_is_refused_and_a_stored_one_changes_nothing(world: World) -> None:
    """The API names the value; one that went around it, into the Secret, is only not taken."""
    kube = connect(str(world.cluster.kubeconfig()))
    place = "gpustack-system"
    wrongs: tuple[object, ...] = (5, True, [], {}, ODD, "x" * 70_000)
    for setting, wrong in itertools.product(SETTINGS, wrongs):
        with pytest.raises(Invalid) as caught:
            kube.merge_patch(SETTING, setting.name, {"spec": {"value": wrong}}, place)
        assert "value" in caught.value.detail, (setting.name, str(wrong)[:60])
    secret = {"stringData": {setting.name: ODD for setting in SETTINGS}}
    before = world.client.get("v1", "Secret", "gpustack-settings", namespace=place)
    world.client.patch("v1", "Secret", "gpustack-settings", secret, namespace=place)
    for setting in SETTINGS:
        patiently(partial(told, kube, setting.name), setting.name)
    data: Json = dict.fromkeys(setting.name for setting in SETTINGS) | before["data"]
    world.client.patch("v1", "Secret", "gpustack-settings", {"data": data}, namespace=place)
    kube.close()
    patiently(world.ready, "that the node still serves")
