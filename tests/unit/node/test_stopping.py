"""A plugin that is told to stop stops at once, whatever its hub lets it wait for."""

from __future__ import annotations

import threading

import pytest

from gpustack_delivery.node.plugin import Plugin, World
from gpustack_delivery.node.routes import Router
from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage
from tests.unit.silent import Silent


@pytest.mark.parametrize(
    ("scheme", "accepts"),
    [("http", True), ("https", True), ("http", False)],
    ids=["no-answer", "no-handshake", "no-connection"],
)
def test_a_hub_that_never_answers_holds_up_no_stop(
    stage: Stage, scheme: str, *, accepts: bool
) -> None:
    """The listing is ended in the middle, long before its half minute is over, and not recorded."""
    digest = stage.artifact()
    with Silent(accepts=accepts) as hub:
        stage.configure(hub={"huggingFaceEndpoint": f"{scheme}://{hub.address}"})
        world = World(stage.clock, stage.kube, stage.mounts, stage.disk)
        stage.plugin = Plugin(stage.options(), world, Router)
        stage.plugin.start()
        eventually(lambda: stage.publish(digest)[0] == "ABORTED", "an attempt")
        eventually(hub.waited_for, "a listing that waits")
        stopping = threading.Thread(target=stage.stop)
        stopping.start()
        eventually(lambda: not stopping.is_alive(), "the stop")  # sooner than any request gives up
    (record,) = (stage.cache / "ledger" / "digests").glob("*.json")
    assert b"reason" not in record.read_bytes()
