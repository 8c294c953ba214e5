"""The worker and the plugin as they are, on an API server that restarts, falls silent and forgets.

Both run on an emulated cluster, over its wire. After every trouble a change made meanwhile has
arrived, nothing was done twice, and nothing has grown: no thread, no connection, no open watch.
"""

from __future__ import annotations

import base64
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from logging import INFO
from pathlib import Path
from typing import Any

import pytest

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.faults import Delay, Gone, Refuse
from emulator.faults.effects import Effect
from gpustack_delivery.adapters import kube as adapter
from gpustack_delivery.embedded import Embedded, host_fault
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary.resources import DRIVER_NAME
from gpustack_delivery.vocabulary.settings import (
    DOWNLOAD_CONCURRENCY,
    HUGGING_FACE_ENDPOINT,
    SECRET_NAME,
)
from tests.unit.fakes import eventually
from tests.unit.worker.replica import ACCOUNT, NAMESPACE, Replica

API = "worker.gpustack.ai/v1alpha1"
RESTARTS = 20
EVERY = 5
_PASSING = re.compile(r":\d{4,}$|\.sock_\d+$|^pod:")


class Site:
    """A cluster with one node, its plugin and its worker, seen from outside."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hub = cluster.add_hub()
        self._value = 3

    def pass_time(self, seconds: float) -> None:
        """Let pauses that are under way end."""
        self.cluster.clock.advance(seconds)  # type: ignore[union-attr]  # the fixture's is manual
        self.cluster.settle()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, letting time pass."""

        def later() -> bool:
            self.pass_time(5.0)
            return condition()

        eventually(later, what)

    def store(self) -> Any:
        """Return the node's object, empty while there is none."""
        found = self.cluster.client.list(API, "NodeModelStore")
        return found[0] if found else {}

    def configure(self) -> Callable[[], bool]:
        """Change a Setting; return what says whether it has reached the node."""
        self._value = value = self._value + 1
        texts = {
            DOWNLOAD_CONCURRENCY.name: str(value),
            HUGGING_FACE_ENDPOINT.name: self.hub.url,
        }
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        metadata = {"name": SECRET_NAME, "namespace": NAMESPACE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self.cluster.apply(secret)
        return lambda: bool(self.store()["spec"]["download"]["concurrency"] == value)

    def resolve(self) -> None:
        """Have an artifact made and resolved."""
        self.hub.add_repository("org/model", {"config.json": b"{}"})
        client, metadata = self.cluster.client, {"name": "model", "namespace": "default"}
        spec = {"source": {"huggingFace": {"repository": "org/model"}}}
        artifact = {"apiVersion": API, "kind": "ModelArtifact", "metadata": metadata, "spec": spec}
        client.create(artifact)

        def resolved() -> bool:
            found = client.get(API, "ModelArtifact", "model", namespace="default")
            return "resolved" in found.get("status", {})

        self.until(resolved, "the artifact's resolution")


def threads() -> Counter[str]:
    """Return the lasting threads by name: none that serves one connection or one Pod."""
    names = (thread.name for thread in threading.enumerate())
    return Counter(name for name in names if not _PASSING.search(name))


def sockets() -> int:
    """Return how many sockets this process has open, the emulated server's ends among them."""
    count = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            count += str(file.readlink()).startswith("socket:")
    return count


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Give a cluster at work, on a clock that the tests move."""
    with Cluster(clock=ManualClock(), translate=host_fault) as cluster, ExitStack() as stack:
        site = Site(cluster)
        installation = Embedded(cluster)
        stack.callback(installation.close)
        installation.install()
        node = cluster.add_node("node-a")
        arrived = site.configure()
        installation.start_worker()
        installation.start_plugin(node)
        site.until(lambda: bool(site.store()) and arrived(), "the node's object")
        site.resolve()
        yield site


def test_restarts_lose_nothing_and_leave_nothing(site: Site) -> None:
    """What changes while the server is away arrives, once; no thread, socket or watch is left."""
    faults = site.cluster.faults
    open_before, threads_before, sockets_before = faults.open_watches(), threads(), sockets()
    asked, generation = len(site.hub.requests.entries()), site.store()["metadata"]["generation"]
    for number in range(RESTARTS):
        faults.stop_api_server()
        arrived = site.configure() if number % EVERY == 0 else None
        faults.start_api_server()
        site.pass_time(1.0)
        if arrived is not None:
            site.until(arrived, "what changed while the server was away")
    site.until(lambda: faults.open_watches() == open_before, "the watches of before")
    site.until(lambda: threads() == threads_before, "the threads of before")
    site.until(lambda: sockets() < sockets_before + RESTARTS, "no socket for each restart")
    assert len(site.hub.requests.entries()) == asked
    assert site.store()["metadata"]["generation"] == generation + RESTARTS // EVERY


@pytest.mark.parametrize("effect", [Gone(), Refuse(410, "Expired")], ids=["event", "answer"])
def test_forgotten_versions_are_listed_again(site: Site, effect: Effect) -> None:
    """410 as an event and as an answer: the change that no watch told of is found all the same."""
    faults = site.cluster.faults
    open_before, threads_before = faults.open_watches(), threads()
    faults.stop_api_server()
    arrived = site.configure()
    faults.forget_history()
    rule = faults.add(effect, verb="watch", times=30)
    faults.start_api_server()
    site.until(arrived, "what no watch told of")
    site.until(lambda: faults.open_watches() == open_before, "the watches of before")
    assert rule.hits == 30
    faults.remove(rule)
    site.until(lambda: threads() == threads_before, "the threads of before")


def test_watches_of_kinds_at_rest_end_and_go_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no bookmark ever comes, watches end and begin again; nobody is told of a fault."""
    faults = site.cluster.faults
    open_before = faults.open_watches()
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "WATCH_SILENCE_SECONDS", 0.3)
        faults.drop_watches()
        plugins = faults.add(Delay(0), verb="watch", user="*:gpustack-delivery-model-manager")
        workers = faults.add(Delay(0), verb="watch", resource="persistentvolumeclaims")
        site.until(
            lambda: workers.hits >= 4 and plugins.hits >= 8, "the same watches again and again"
        )
        site.until(site.configure(), "a change after so much silence")
    faults.clear()
    faults.drop_watches()
    site.until(lambda: faults.open_watches() == open_before, "the watches of before")
    assert [record.getMessage() for record in caplog.records if record.levelno > INFO] == []


def test_silent_watches_are_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are open and dead are replaced, and what they did not tell is found."""
    faults = site.cluster.faults
    open_before, threads_before = faults.open_watches(), threads()
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "WATCH_SILENCE_SECONDS", 1.0)
        faults.drop_watches()  # those that follow are patient for a second
        site.until(lambda: faults.open_watches() == open_before, "impatient watches")
        assert faults.silence_watches() > 0
        site.until(site.configure(), "what silent watches did not tell")
    faults.drop_watches()
    site.until(lambda: faults.open_watches() == open_before, "the watches of before")
    site.until(lambda: threads() == threads_before, "the threads of before")


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """Give a cluster with the chart's objects and nobody at work."""
    with Cluster(clock=ManualClock(), translate=host_fault) as cluster:
        Embedded(cluster, values={"publicApi": {"enabled": False}}).install()
        yield cluster


def add_node(cluster: Cluster, name: str) -> None:
    """Add a node that runs the plugin, and wait for its object."""
    cluster.paper_nodes.add(name, drivers=[DRIVER_NAME])

    def made() -> bool:
        cluster.clock.advance(1.0)  # type: ignore[union-attr]  # the fixture's is manual
        found = cluster.client.list(API, "NodeModelStore")
        return any(store["metadata"]["name"] == name for store in found)

    eventually(made, f"the object of {name}")


def test_the_lead_is_handed_over_and_a_token_is_no_reason_to(bare: Cluster) -> None:
    """A leader whose token expires goes on with the next; at its orderly end another goes on."""
    with Replica(bare, "one") as one:
        eventually(lambda: one.worker.leading)
        with Replica(bare, "two") as two:
            bare.faults.expire_token(one.kubeconfig)
            bare.faults.rotate_token(one.kubeconfig)
            add_node(bare, "node-a")
            assert (one.worker.leading, two.worker.leading) == (True, False)
            one.worker.stop()
            add_node(bare, "node-b")
            assert (one.worker.leading, two.worker.leading) == (False, True)
    stores = bare.client.list(API, "NodeModelStore")
    assert [store["metadata"]["generation"] for store in stores] == [1, 1]
    lease = bare.client.get("coordination.k8s.io/v1", "Lease", ACCOUNT, namespace=NAMESPACE)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 1)


def test_without_an_identity_nothing_starts(bare: Cluster) -> None:
    """A review of the own token is good enough, and without either review the start is refused."""
    own = bare.faults.add(Refuse(404), resource="selfsubjectreviews")
    with Replica(bare, "three") as three:
        eventually(lambda: three.worker.leading)
    assert own.hits == 1
    token = bare.faults.add(Refuse(403), resource="tokenreviews")
    with pytest.raises(ConfigurationFault, match="who this worker is"), Replica(bare, "four"):
        pass
    assert token.hits == 1
    bare.faults.clear()
