"""peer-sync#what-a-peer-serves: listings and files of published trees, and nothing else."""

from __future__ import annotations

import json
import ssl

import pytest

from emulator.hubs.broken_bodies import Stall
from spec_tests.conftest import Builder
from spec_tests.oracle import File, Tree, pseudo_random
from spec_tests.peers import PeerClient, file_path, free_port, listing_of, tree_path
from spec_tests.scenario import World
from spec_tests.worlds import TINY

pytestmark = pytest.mark.feature("peer-sync")
ESCAPES = (
    "../marker",
    "../../../layout",
    "tokenizer/../../marker",
    "tokenizer/../config.json/../../marker",
    "/etc/passwd",
    "//etc/passwd",
    "..%2fmarker",
    "%2e%2e/marker",
    "%2e%2e%2fmarker",
    "%2Fetc%2Fpasswd",
    "%252e%252e/marker",
    "..%5cmarker",
    "config.json%00",
    "./marker",
    "",
)


@pytest.fixture
def world(worlds: Builder) -> World:
    """Give a world whose one node serves."""
    return worlds(peer_port=free_port())


@pytest.mark.rule("PS-SRV-01")
def test_a_listing_is_the_published_manifest(world: World) -> None:
    """Every file with its path, size and digest, so that the digest can be made from it again."""
    world.node.mount(world.artifact())
    status, body, _ = PeerClient(world, "node-a").get(tree_path(TINY.digest))
    assert status == 200
    told, honest = json.loads(body), listing_of(TINY)
    assert told["digest"] == TINY.digest
    by_path = {entry["path"]: entry for entry in told["entries"]}
    assert by_path == {entry["path"]: entry for entry in honest["entries"]}


@pytest.mark.rule("PS-SRV-01")
def test_a_file_comes_whole_or_by_range(world: World) -> None:
    """Whole, from the middle, from the end, to the end; a range beyond the end is refused."""
    world.node.mount(world.artifact())
    client = PeerClient(world, "node-a")
    path, content = (
        file_path(TINY.digest, "model.safetensors"),
        TINY.contents()["model.safetensors"],
    )
    size = len(content)
    assert client.get(path)[:2] == (200, content)
    for asked, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        (f"bytes={size - 5}-", size - 5, size),
        ("bytes=-7", size - 7, size),
        (f"bytes=10-{size + 10}", 10, size),
    ):
        status, body, headers = client.get(path, headers={"Range": asked})
        assert (status, body) == (206, content[start:end]), asked
        assert headers["Content-Range"] == f"bytes {start}-{end - 1}/{size}"
    status, _, headers = client.get(path, headers={"Range": f"bytes={size}-"})
    assert (status, headers["Content-Range"]) == (416, f"bytes */{size}")


@pytest.mark.rule("PS-SRV-01")
def test_what_is_no_single_range_is_answered_with_the_whole_file(world: World) -> None:
    """Several ranges, a range that ends before it begins, other units, nonsense: 200, all of it."""
    world.node.mount(world.artifact())
    client, content = PeerClient(world, "node-a"), TINY.contents()["model.safetensors"]
    path = file_path(TINY.digest, "model.safetensors")
    for asked in ("bytes=0-0,5-9", "bytes=5-2", "items=0-1", "bytes=-", "bytes=a-b", "0-1"):
        status, body, headers = client.get(path, headers={"Range": asked})
        assert (status, body) == (200, content), asked
        assert "Content-Range" not in headers


@pytest.mark.rule("PS-SRV-01", "PS-SRV-03")
def test_only_published_trees_are_served(world: World) -> None:
    """A malformed digest is 400, an unknown one or an unknown file 404, each with an error body."""
    world.node.mount(world.artifact())
    client = PeerClient(world, "node-a")
    for path, expected in (
        ("/peer/v1/trees/" + "g" * 64, 400),
        ("/peer/v1/trees/" + TINY.digest, 400),
        ("/peer/v1/trees/" + TINY.digest[7:].upper(), 400),
        ("/peer/v1/trees/" + "0" * 64, 404),
        (file_path("sha256:" + "0" * 64, "config.json"), 404),
        (file_path(TINY.digest, "missing.json"), 404),
        (file_path(TINY.digest, "tokenizer"), 404),
        ("/", 404),
        ("/metrics", 404),
    ):
        status, body, _ = client.get(path)
        assert status == expected, path
        assert set(json.loads(body)) == {"error"}


@pytest.mark.rule("PS-SRV-03")
def test_an_unfinished_download_is_not_served(world: World) -> None:
    """What lies on the node without being published does not exist for a peer."""
    world.hub.faults.add(Stall(offset=1000), path="model.safetensors")
    artifact = world.artifact()
    world.node.publish(world.node.call(artifact))
    client = PeerClient(world, "node-a")
    assert client.status(tree_path(TINY.digest)) == 404
    assert client.status(file_path(TINY.digest, "config.json")) == 404
    world.hub.faults.clear()
    world.node.mount(artifact)
    assert client.status(tree_path(TINY.digest)) == 200


@pytest.mark.rule("PS-SRV-03")
def test_no_spelling_of_a_path_leaves_the_tree(world: World) -> None:
    """Dots, absolute paths and their encodings reach nothing outside of the tree."""
    world.node.mount(world.artifact())
    client = PeerClient(world, "node-a")
    for escape in ESCAPES:
        status, body, _ = client.get(f"{tree_path(TINY.digest)}/files/{escape}")
        assert status in {400, 404}, escape
        assert set(json.loads(body)) == {"error"}, escape


@pytest.mark.rule("PS-SRV-03")
def test_a_symlink_in_a_tree_is_not_followed(world: World) -> None:
    """Neither as a file nor as a directory on the way."""
    tree = world.node.tree(world.node.mount(world.artifact()))
    outside = world.node.cache_root / "outside"
    outside.mkdir()
    (outside / "vocab.txt").write_bytes(TINY.contents()["tokenizer/vocab.txt"])
    (outside / "config.json").write_bytes(TINY.contents()["config.json"])
    for directory in (tree, tree / "tokenizer"):
        directory.chmod(0o755)
    (tree / "config.json").unlink()
    (tree / "config.json").symlink_to(outside / "config.json")
    (tree / "tokenizer/vocab.txt").unlink()
    (tree / "tokenizer").rmdir()
    (tree / "tokenizer").symlink_to(outside)
    client = PeerClient(world, "node-a")
    for path in ("config.json", "tokenizer/vocab.txt"):
        assert client.status(file_path(TINY.digest, path)) >= 400, path
    assert client.status(file_path(TINY.digest, "README.md")) == 200


@pytest.mark.rule("PS-SRV-01")
def test_file_answers_beyond_the_limit_wait_for_their_turn(worlds: Builder) -> None:
    """With one stream allowed a second file waits while the first is read; listings do not."""
    world = worlds(peer_port=free_port(), peer_streams=1)
    tree = Tree((File("big.safetensors", pseudo_random(16 << 20, seed=3), lfs=True),))
    world.node.mount(world.artifact(repository=world.repository("acme/big", tree)))
    client = PeerClient(world, "node-a")
    path, content = file_path(tree.digest, "big.safetensors"), tree.files[0].content
    first, second = client.connection(), client.connection()
    try:
        first.request("GET", path, headers=client.headers())
        answer = first.getresponse()
        begun = answer.read(1 << 16)
        second.request("GET", path, headers={**client.headers(), "Range": "bytes=0-9"})
        for _ in range(5):  # five whole round trips later the second has still heard nothing
            assert client.status(tree_path(tree.digest)) == 200
        second.sock.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):
            second.sock.recv(1)
        second.sock.settimeout(30)
        assert begun + answer.read() == content
        waited = second.getresponse()
        assert (waited.status, waited.read()) == (206, content[:10])
    finally:
        first.close()
        second.close()


@pytest.mark.rule("PS-SRV-01")
def test_a_client_that_leaves_gives_its_stream_back(worlds: Builder) -> None:
    """Streams that are broken off do not count for ever."""
    world = worlds(peer_port=free_port(), peer_streams=1)
    tree = Tree((File("big.safetensors", pseudo_random(16 << 20, seed=3), lfs=True),))
    world.node.mount(world.artifact(repository=world.repository("acme/big", tree)))
    client = PeerClient(world, "node-a")
    path = file_path(tree.digest, "big.safetensors")
    for _ in range(3):
        leaving = client.connection()
        leaving.request("GET", path, headers=client.headers())
        leaving.getresponse().read(1000)
        leaving.close()
    assert client.get(path, headers={"Range": "bytes=0-9"})[0] == 206
