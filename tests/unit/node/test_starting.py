"""Starting: what is refused untouched, what a kill left behind, and what is damaged."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest

from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.cache import LAYOUT
from gpustack_delivery.node.peers.options import PeerOptions
from gpustack_delivery.node.reporter import ROUND_SECONDS, Reporter
from gpustack_delivery.vocabulary.resources import NODE_MODEL_STORES
from tests.unit.fakes import eventually
from tests.unit.node.stage import FILES, NODE, Stage


def listing(root: Path) -> list[str]:
    """Return every path under a directory."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def refused(stage: Stage, match: str) -> None:
    """Start, and see it refused with one line."""
    with pytest.raises(ConfigurationFault, match=match) as caught:
        stage.start()
    assert "\n" not in str(caught.value)
    assert stage.plugin is not None
    stage.plugin = None


def test_a_fresh_root_is_laid_out_and_taken_again(stage: Stage) -> None:
    """A cut first start, or a filesystem's own folder, is no obstacle."""
    (stage.cache / "lost+found").mkdir(parents=True)
    (stage.cache / "layout.tmp").write_text("gpu")
    stage.start()
    assert (stage.cache / "layout").read_bytes() == LAYOUT
    stage.stop()
    stage.start()


@pytest.mark.parametrize("content", ["foreign layout", "foreign file", "file"])
def test_a_root_that_holds_something_else_is_refused_untouched(stage: Stage, content: str) -> None:
    """Another layout, an unknown file, or no directory at all."""
    if content == "file":
        stage.cache.write_text("mine")
    else:
        stage.cache.mkdir()
        name = "layout" if content == "foreign layout" else "photos"
        (stage.cache / name).write_text("gpustack-model-store v9\n")
    before = listing(stage.root)
    refused(stage, "cache root")
    assert listing(stage.root) == before


@pytest.mark.parametrize(
    "name", ["published", "partial", "trash", "ledger", "ledger/refs", "ledger/digests"]
)
def test_a_root_that_leads_elsewhere_is_refused_untouched(stage: Stage, name: str) -> None:
    """A link in a directory's place: nobody knows whose files lie where it leads."""
    stage.start()
    stage.stop()
    precious = stage.root / "elsewhere" / ("a" * 64) / "1"
    precious.mkdir(parents=True)
    (stage.cache / name).rename(stage.root / "was")
    (stage.cache / name).symlink_to(stage.root / "elsewhere")
    before = listing(stage.root)
    refused(stage, "plain directory")
    assert listing(stage.root) == before


def test_a_root_on_two_filesystems_is_refused(stage: Stage) -> None:
    """A published tree is renamed into its place, and no rename leaves a filesystem."""
    stage.start()
    stage.stop()
    stage.disk.devices[stage.cache / "partial"] = "8:2"
    refused(stage, "filesystem of the cache root")


def test_a_root_in_use_is_refused(stage: Stage) -> None:
    """One plugin a cache."""
    stage.start()
    other = Stage()
    other.configure()
    other.cache = stage.cache
    refused(other, "in use by another")
    other.close()


def test_a_socket_path_that_is_too_long_is_refused(stage: Stage) -> None:
    """Before anything is made."""
    stage.socket = stage.kubelet / ("x" * 100) / "csi.sock"
    before = listing(stage.root)
    with pytest.raises(ConfigurationFault, match="bytes long"):
        stage.start()
    assert listing(stage.root) == before


def test_a_foreign_file_in_the_sockets_place_is_left_alone(stage: Stage) -> None:
    """A dead socket is removed, and nothing else is."""
    stage.socket.parent.mkdir(parents=True)
    stage.socket.write_text("mine")
    refused(stage, "is no socket")
    assert stage.socket.read_text() == "mine"


def test_a_dead_socket_is_replaced_and_a_living_one_is_not(stage: Stage) -> None:
    """The kernel leaves the file when a process dies."""
    stage.socket.parent.mkdir(parents=True)
    living = socket.socket(socket.AF_UNIX)
    living.bind(str(stage.socket))
    living.listen()
    refused(stage, "already listens")
    living.close()
    stage.start()
    assert stage.socket.parent.stat().st_mode & 0o777 == 0o755


def test_a_port_in_use_is_one_clear_error(stage: Stage) -> None:
    """Everything started before it is stopped again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = stage.options
        stage.options = lambda **changes: options(secure_port=port)  # type: ignore[method-assign]
        refused(stage, "cannot listen")
        stage.options = options  # type: ignore[method-assign]
    assert not stage.socket.exists()
    stage.start()


def test_what_a_kill_left_is_cleared(stage: Stage) -> None:
    """Trash, half-sealed state, older attempts, unrecorded and foreign partials."""
    digest = stage.artifact()
    other = stage.artifact("other", repository="org/o", files={"a": b"other"})
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(other, "u2", name="other")[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1)
    stage.stop()
    stage.hub.gate.set()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    (stage.cache / "trash" / "old").mkdir()
    published = stage.tree(digest).parent
    (published / "state").mkdir()
    stray = stage.cache / "published" / ("0" * 64)
    stray.mkdir()
    partial = stage.cache / "partial" / other.removeprefix("sha256:")
    newest = max(int(path.name) for path in partial.iterdir())
    (partial / str(newest + 1)).mkdir()
    for name in ("f" * 64, "not-a-digest"):
        (stage.cache / "partial" / name / "1").mkdir(parents=True)
    stage.start()
    assert list((stage.cache / "trash").iterdir()) == []
    assert not (published / "state").exists()
    assert not stray.exists()
    assert [path.name for path in partial.iterdir()] == [str(newest + 1)]
    assert [path.name for path in (stage.cache / "partial").iterdir()] == [partial.name]
    eventually(lambda: stage.model(digest).get("state") == "Ready")


def test_an_attempt_cut_while_sealing_is_resumed(stage: Stage) -> None:
    """Write-protected files and a stray marker are no obstacle, and the marker is not believed."""
    digest = stage.artifact()
    stage.hub.gate.clear()
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "ABORTED")
    eventually(lambda: stage.hub.fetching == 1)
    stage.stop()
    partial = next((stage.cache / "partial" / digest.removeprefix("sha256:")).iterdir())
    (partial / "tree" / "weights").mkdir(exist_ok=True)
    (partial / "tree" / "config.json").write_bytes(FILES["config.json"])
    (partial / "tree" / "config.json").chmod(0o444)
    (partial / "tree" / "weights").chmod(0o555)
    (partial / "marker").write_text(json.dumps({"digest": digest}))
    stage.hub.gate.set()
    stage.start()
    assert not stage.tree(digest).exists()
    stage.mounted(digest)
    assert (stage.tree(digest) / "config.json").read_bytes() == FILES["config.json"]


@pytest.mark.parametrize("garbage", ["", "{", "[]", "{}", '{"hex": 3}', '{"reason": "Nonsense"}'])
def test_a_corrupt_ledger_costs_a_memory_and_no_more(stage: Stage, garbage: str) -> None:
    """Records of digests and of references, whatever stands in them."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    stage.stop()
    ledger = stage.cache / "ledger"
    for path in [*(ledger / "refs").iterdir(), *(ledger / "digests").iterdir()]:
        path.write_text(garbage)
    (ledger / "digests" / "unknown.json").write_text("{}")
    stage.start()
    eventually(lambda: stage.model(digest).get("referenced"))
    assert stage.publish(digest, "u2") == ("OK", "")
    assert stage.unpublish("u1") == ("OK", "")
    eventually(lambda: len(list((ledger / "refs").iterdir())) == 1)


def test_a_mount_wins_over_a_record_that_disagrees(stage: Stage) -> None:
    """The record is corrected to the digest that is really shown."""
    digest = stage.artifact()
    other = stage.artifact("other", repository="org/o", files={"a": b"other"})
    stage.start()
    stage.mounted(digest)
    stage.mounted(other, "u2", name="other")
    stage.stop()
    mount = stage.mounts.at(stage.target("u1"))[0]
    stage.mounts.unmount(mount.target)
    stage.mounts.bind_read_only(stage.tree(other), mount.target)
    stage.start()
    eventually(lambda: stage.model(digest) and not stage.model(digest).get("referenced"))
    assert stage.model(other)["referenced"]


def test_an_unreadable_mount_table_delays_mounts_until_it_can_be_read(stage: Stage) -> None:
    """References first, mounts second; the retry comes by itself."""
    digest = stage.artifact()
    stage.mounts.fail = "table"
    stage.start(synced=False)
    assert stage.publish(digest)[0] == "INTERNAL"
    eventually(lambda: "collection skipped" in stage.condition("Ready").get("message", ""))
    assert stage.https("/readyz")[0] == 503
    stage.mounts.fail = ""
    assert stage.publish(digest)[0] == "UNAVAILABLE"

    def ready() -> bool:
        stage.clock.advance(10)
        return stage.https("/readyz")[0] == 200

    eventually(ready, "readiness")
    stage.mounted(digest)


def test_publication_syncs_before_it_renames(stage: Stage) -> None:
    """Files, directories from the deepest up, listing, marker, and the parent after the rename."""
    digest = stage.artifact()
    stage.start()
    stage.mounted(digest)
    name = digest.removeprefix("sha256:")
    order = [str(path.relative_to(stage.cache)) for path in stage.disk.synced]
    attempt = next(p for p in order if p.startswith(f"partial/{name}/") and p.count("/") == 2)
    steps = [order.index(f"{attempt}/tree/{path}") for path in FILES]
    steps = [max(steps)]
    for path in ("tree/weights", "tree", "manifest.json.tmp", "marker.tmp"):
        steps.append(order.index(f"{attempt}/{path}"))
    steps.append(len(order) - 1 - order[::-1].index("published"))
    assert steps == sorted(steps)


@pytest.mark.parametrize("part", ["config.json", "weights", "marker.tmp", "published"])
def test_a_sync_that_fails_publishes_nothing(stage: Stage, part: str) -> None:
    """The partial stays for a resume, and the failure has its reason."""
    digest = stage.artifact()
    stage.disk.fail_sync = lambda path: path.name == part
    stage.start()
    eventually(lambda: stage.publish(digest)[0] == "UNAVAILABLE", "the failure")
    assert "the node's disk failed" in stage.publish(digest)[1]
    stage.disk.fail_sync = lambda path: False
    stage.clock.advance(61)
    stage.mounted(digest)


def test_a_kubelet_directory_that_is_none_is_not_made(stage: Stage) -> None:
    """A mistyped one would look like kubelet's, and every mount would be refused."""
    stage.kubelet = stage.root / "kubelte"
    before = listing(stage.root)
    refused(stage, "--kubelet-dir .*/kubelte is no folder")
    assert listing(stage.root) == before


def test_a_node_without_its_store_is_said(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """At once and for information, as on every new node; a round later it is a warning."""
    stage.kube.remove(NODE_MODEL_STORES, NODE)
    caplog.set_level(logging.INFO)

    def said(level: int) -> bool:
        words = f"no NodeModelStore {NODE} yet"
        return any(r.levelno == level and words in r.getMessage() for r in caplog.records)

    stage.start()
    eventually(lambda: said(logging.INFO), "the first word")

    def later() -> bool:
        stage.clock.advance(ROUND_SECONDS)
        return said(logging.WARNING)

    eventually(later, "the warning")


def test_a_store_that_is_missing_is_not_said_at_every_change(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What wakes the reporter while a new node waits makes no warning of it: only time does."""
    stage.kube.remove(NODE_MODEL_STORES, NODE)
    caplog.set_level(logging.INFO)
    rounds: list[int] = []
    said = Reporter._say_absent

    def counted(reporter: Reporter) -> None:
        said(reporter)
        rounds.append(len(rounds))

    monkeypatch.setattr(Reporter, "_say_absent", counted)
    stage.start()
    assert stage.plugin is not None
    reporter = stage.plugin._reporter

    def woken() -> None:
        before = len(rounds)
        reporter.changed()
        eventually(lambda: len(rounds) > before, "another round")

    for _ in range(3):
        woken()
    levels = [r.levelno for r in caplog.records if "no NodeModelStore" in r.getMessage()]
    assert levels == [logging.INFO]


def test_a_missing_peer_token_is_said_at_the_start(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node still mounts from the hub, but nobody waits days to learn why peers refuse it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.93", 0))  # where nobody else looks for a free port
        port = unused.getsockname()[1]
    peers = PeerOptions(port, service_account="a", token_file=Path("/none"), host="127.0.0.93")
    options = stage.options(peer_sync=peers)
    monkeypatch.setattr(stage, "options", lambda: options)
    stage.start()
    assert "--peer-sync-token-file cannot be read: [Errno 2]" in caplog.text
