"""Ten nodes that want one digest at the same moment, with node-to-node sync: what the hub sends."""

from __future__ import annotations

from typing import Final

from spec_tests.peers import free_port
from spec_tests.waiting import pause
from tests.performance.bench import Bench
from tests.performance.rows import FLEET, Finding
from tests.performance.scenarios import SHARDS, served
from tests.performance.site import MIB, Site, site

_NODES: Final = 10
_ASK_AGAIN_SECONDS: Final = 0.1


def one_digest(bench: Bench) -> list[Finding]:
    """Deliver to all of them, once; bytes depend on no machine."""
    with bench.scratch() as folder, site(nodes=_NODES, peer_port=free_port()) as here:
        bench.say("fleet: ten nodes, once")
        model = served(here, SHARDS, folder / "source", bench.scale)
        here.world.hub.requests.clear()
        for plugin in here.plugins:
            plugin.start()
        left = [(plugin, plugin.call(model)) for plugin in here.plugins]
        while left:
            left = [(plugin, call) for plugin, call in left if not plugin.ask(call)]
            pause(_ASK_AGAIN_SECONDS)
        sent = _sent_mib(here)
        size = sum(size for size, _ in model.offer.files.values()) / MIB
    return [FLEET.beside([sent], [size])]


def _sent_mib(here: Site) -> float:
    entries = here.world.hub.requests.entries(method="GET")
    return float(sum(entry.sent_bytes for entry in entries if entry.status in {200, 206}) / MIB)
