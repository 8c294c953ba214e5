"""What a kill costs: bytes that the next plugin asks the hub for although the last one had them."""

from __future__ import annotations

import random
import re
from typing import Any, Final

from spec_tests.waiting import eventually
from tests.performance.bench import Bench
from tests.performance.rows import RESUME, Finding
from tests.performance.scenarios import ONE_FILE, served
from tests.performance.site import MIB, Model, Site, site

_FOR_EACH_OPEN_FILE: Final = 64.0
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")


def after_kill(bench: Bench) -> list[Finding]:
    """Kill the plugin anywhere in the middle of one large file, and let the next one go on."""
    with bench.scratch() as folder, site() as here:
        model = served(here, ONE_FILE, folder / "source", bench.scale)
        again = [_asked_again(here, model) for _ in bench.each("resume")]
    return [RESUME.beside(again, [_FOR_EACH_OPEN_FILE] * len(again))]


def _asked_again(here: Site, model: Model) -> float:
    """Return the MiB that were asked for and had been sent before."""
    plugin, log = here.plugin, here.world.hub.requests
    ((size, _),) = model.offer.files.values()
    log.clear()
    plugin.start()
    call = plugin.call(model)
    plugin.begin(call)
    limit = size * random.uniform(0.2, 0.8)  # noqa: S311 - any moment
    eventually(lambda: _sent(log) > limit, "so much is sent")
    plugin.kill()
    eventually(lambda: not log.in_flight, "the hub sees that nobody reads any more")
    sent = _sent(log)
    log.clear()
    plugin.start()
    plugin.mount(call)
    asked = _asked(log)
    plugin.unmount(call)
    plugin.stop()
    plugin.clear()
    return (asked - (size - sent)) / MIB


def _sent(log: Any) -> int:
    return sum(entry.sent_bytes for entry in log.entries(host="cdn"))


def _asked(log: Any) -> int:
    spans = (_RANGE.fullmatch(entry.range) for entry in log.entries(host="cdn", method="GET"))
    return sum(int(span[2]) - int(span[1]) + 1 for span in spans if span)
