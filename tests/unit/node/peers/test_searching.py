"""An attempt's search: odd objects, an API that is away, waiting and its end."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from gpustack_delivery.adapters.host import KernelDisk
from gpustack_delivery.decisions.peering import PATIENCE_SECONDS, Peer
from gpustack_delivery.errors import AttemptFault, Forbidden, HostFault, Reason
from gpustack_delivery.node.downloading import Cancellation, Limits, disk_fault
from gpustack_delivery.node.peers.discovery import SET_ASIDE_SECONDS, Directory
from gpustack_delivery.node.peers.options import PeerOptions
from gpustack_delivery.node.peers.pulling import Peers
from gpustack_delivery.node.peers.searching import LOOK_SECONDS, Search
from gpustack_delivery.ports import Page, Selection
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES, PODS, Json
from tests.unit.fakes import FakeKube, ManualClock, eventually
from tests.unit.silent import Silent

DIGEST = "sha256:" + "ab" * 32
NAMESPACE = "gpustack-system"


class Scene:
    """An API with other nodes on it, and one attempt that searches."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kube = FakeKube(page_size=2)
        self.directory = Directory(self.kube, self.clock, "own", NAMESPACE)
        options = PeerOptions(port=1, authentication="none")
        self.peers = Peers(options, Limits(self.clock), self.clock, KernelDisk())
        self.cancellation = Cancellation()
        self.search = self.another()

    def another(self) -> Search:
        """Return another attempt's search."""
        return Search(self.directory, self.peers, self.clock, DIGEST, self.cancellation)

    def node(
        self, name: str, address: str, port: int = 9, *, ready: bool = True, **entry: object
    ) -> None:
        """Put a node whose plugin serves, with an entry of the digest."""
        metadata = {"name": f"plugin-{name}", "namespace": NAMESPACE}
        ports = [{"name": "peer-sync", "containerPort": port}]
        condition = {"type": "Ready", "status": str(ready)}
        status = {"podIP": address, "conditions": [condition]}
        spec = {"nodeName": name, "containers": [{"ports": ports}]}
        self.kube.put(PODS, {"metadata": metadata, "spec": spec, "status": status})
        self.store(name, [{"digest": DIGEST, **entry}] if entry else [])

    def store(self, name: str, models: list[Json]) -> None:
        """Put a node's status."""
        self.kube.put(NODE_MODEL_STORES, {"metadata": {"name": name}, "status": {"models": models}})

    def next_peer(self, *, wait: bool, step_seconds: float = 1) -> Peer | None:
        """Return the next peer while time passes in small steps."""
        found: list[Peer | None] = []
        thread = threading.Thread(target=lambda: found.append(self.search.next_peer(wait=wait)))
        thread.start()

        def over() -> bool:
            self.clock.advance(step_seconds)
            return not thread.is_alive()

        eventually(over, "the search")
        thread.join()
        return found[0]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Give a scene."""
    made = Scene()
    yield made
    made.peers.close()


def test_an_odd_object_hides_no_other(scene: Scene) -> None:
    """Statuses that cannot be read, and Pods, are passed over."""
    scene.node("a", "10.0.0.1", state="Ready")
    scene.store("b", [{"digest": DIGEST, "state": "Dancing"}])
    scene.store("c", [{"state": "Ready"}])
    scene.kube.put(
        PODS, {"metadata": {"name": "odd", "namespace": NAMESPACE}, "status": {"conditions": [{}]}}
    )
    assert scene.search.next_peer(wait=False) == Peer("a", "https://10.0.0.1:9")


def test_an_api_that_refuses_means_nobody(scene: Scene) -> None:
    """The hub is asked at once: nothing is waited for."""
    scene.node("a", "10.0.0.1", state="Ready")
    scene.kube.trouble = [Forbidden("no", code=403)]
    assert scene.search.next_peer(wait=True) is None


def test_alone_nothing_is_waited_for(scene: Scene) -> None:
    """No other plugin, no pause: time stands still here."""
    assert scene.search.next_peer(wait=True) is None


def test_a_failed_peer_is_not_asked_again(scene: Scene) -> None:
    """By this attempt never, by others a minute later."""
    scene.node("a", "10.0.0.1", state="Ready")
    (peer,) = [scene.search.next_peer(wait=False)]
    assert peer is not None
    scene.search.failed(peer, AttemptFault(Reason.SOURCE_UNAVAILABLE, "HTTP 503"))
    assert scene.search.next_peer(wait=False) is None
    assert scene.another().next_peer(wait=False) is None
    scene.clock.advance(SET_ASIDE_SECONDS)
    assert scene.search.next_peer(wait=False) is None
    assert scene.another().next_peer(wait=False) == peer


@pytest.mark.parametrize(
    "fault",
    [
        AttemptFault(Reason.CANCELED),
        *(disk_fault(OSError(n, os.strerror(n))) for n in (errno.ENOSPC, errno.EIO, errno.EROFS)),
        disk_fault(HostFault("the download holds something foreign")),
    ],
    ids=str,
)
def test_our_own_trouble_is_not_a_peers(scene: Scene, fault: AttemptFault) -> None:
    """It ends the attempt, and the peer keeps its good name."""
    scene.node("a", "10.0.0.1", state="Ready")
    peer = scene.search.next_peer(wait=False)
    assert peer is not None
    with pytest.raises(AttemptFault) as caught:
        scene.search.failed(peer, fault)
    assert caught.value is fault
    assert scene.search.next_peer(wait=False) == peer
    assert scene.another().next_peer(wait=False) == peer


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"state": "Ready"}, Peer("a", "https://10.0.0.1:9")),
        ({"state": "Failed"}, None),
        ({}, None),
    ],
)
def test_another_download_is_waited_for_to_its_end(
    scene: Scene, end: Json, expected: Peer | None
) -> None:
    """Its copy is taken, or the hub is asked."""
    scene.node("a", "10.0.0.1", state="Downloading", sizeBytes=100)
    looked = _looks(scene, 3)

    def finish() -> None:
        looked.wait(20)
        scene.store("a", [{"digest": DIGEST, **end}] if end else [])

    thread = threading.Thread(target=finish)
    thread.start()
    assert scene.next_peer(wait=True) == expected
    thread.join()


def test_a_download_that_moves_is_waited_for_beyond_the_patience(scene: Scene) -> None:
    """And one that stands still is not, once the patience is over."""
    scene.node("a", "10.0.0.1", state="Downloading", sizeBytes=100)
    began = scene.clock.monotonic()
    moves = 3
    given = scene.kube.get

    def get(*args: object, **kwargs: object) -> Json:
        nonlocal moves
        body = given(*args, **kwargs)  # type: ignore[arg-type]
        if moves and scene.clock.monotonic() - began > (4 - moves) * (PATIENCE_SECONDS - 60):
            moves -= 1
            entry = {"state": "Downloading", "sizeBytes": 100, "downloadedBytes": 4 - moves}
            scene.store("a", [{"digest": DIGEST, **entry}])
        return body

    scene.kube.get = get  # type: ignore[method-assign]
    assert scene.next_peer(wait=True, step_seconds=LOOK_SECONDS) is None
    assert scene.clock.monotonic() - began > 3 * (PATIENCE_SECONDS - 60) + PATIENCE_SECONDS


def test_a_large_download_is_waited_for_from_one_step_of_its_status_to_the_next(
    scene: Scene,
) -> None:
    """5% of the size may take long, and the hub is not to send a copy to everybody who waits."""
    scene.node("a", "10.0.0.1", state="Downloading", sizeBytes=40 << 30)
    assert scene.next_peer(wait=True, step_seconds=LOOK_SECONDS) is None
    assert PATIENCE_SECONDS < 512 <= scene.clock.monotonic()


def test_a_download_whose_plugin_is_gone_is_not_waited_for(scene: Scene) -> None:
    """A node that lost its power says nothing any more, and its status stands as it stood."""
    scene.node("a", "10.0.0.1", state="Downloading", sizeBytes=1 << 40)
    given = scene.kube.get

    def die(*args: object, **kwargs: object) -> Json:
        scene.node("a", "10.0.0.1", ready=False, state="Downloading", sizeBytes=1 << 40)
        return given(*args, **kwargs)  # type: ignore[arg-type]

    scene.kube.get = die  # type: ignore[method-assign]
    assert scene.next_peer(wait=True) is None
    assert scene.clock.monotonic() < PATIENCE_SECONDS


def test_while_nobody_can_tell_a_download_is_waited_for(scene: Scene) -> None:
    """An API server that refuses to list Pods makes no plugin disappear."""
    scene.node("a", "10.0.0.1", state="Downloading", sizeBytes=100)
    looked, listing = _looks(scene, 3), scene.kube.list_page

    def refuse(selection: Selection, continue_token: str = "") -> Page:
        if looked.is_set() and selection.resource == PODS:
            raise Forbidden("no")
        return listing(selection, continue_token)

    scene.kube.list_page = refuse  # type: ignore[method-assign]
    assert scene.next_peer(wait=True, step_seconds=LOOK_SECONDS) is None
    assert scene.clock.monotonic() >= PATIENCE_SECONDS


def test_a_cancelled_attempt_waits_no_longer(scene: Scene) -> None:
    """While another node downloads for ever."""
    scene.node("a", "10.0.0.1", state="Downloading", sizeBytes=100)
    faults: list[Reason] = []

    def search() -> None:
        try:
            scene.search.next_peer(wait=True)
        except AttemptFault as fault:
            faults.append(fault.reason)

    thread = threading.Thread(target=search)
    thread.start()
    scene.cancellation.cancel()
    thread.join(20)
    assert faults == [Reason.CANCELED]


def _looks(scene: Scene, count: int) -> threading.Event:
    """Return an event that is set when one node's status has been looked at so often."""
    seen, given, enough = [0], scene.kube.get, threading.Event()

    def get(*args: object, **kwargs: object) -> Json:
        seen[0] += 1
        if seen[0] >= count:
            enough.set()
        return given(*args, **kwargs)  # type: ignore[arg-type]

    scene.kube.get = get  # type: ignore[method-assign]
    return enough


def test_a_silent_peer_holds_up_no_end(scene: Scene) -> None:
    """A cancelled attempt does not wait for a listing that never comes, and blames nobody."""
    with Silent() as peer:
        scene.node("a", "127.0.0.1", peer.port, state="Ready")
        ended: list[AttemptFault] = []

        def search() -> None:
            with pytest.raises(AttemptFault) as fault:
                scene.search.listing()
            ended.append(fault.value)

        thread = threading.Thread(target=search)
        thread.start()
        eventually(peer.waited_for, "a listing that waits")
        scene.cancellation.cancel()
        eventually(lambda: not thread.is_alive(), "the search's end")
    assert [fault.reason for fault in ended] == [Reason.CANCELED]
    assert scene.another().next_peer(wait=False) is not None
