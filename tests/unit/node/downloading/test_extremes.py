"""The hard cases: very large files, a process that is killed, and faults in any order."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustack_delivery.adapters.hashing import Hashing, HashState
from gpustack_delivery.errors import AttemptFault, Reason
from gpustack_delivery.node.downloading import Target
from gpustack_delivery.vocabulary.manifest import Entry
from tests.unit.fakes import eventually
from tests.unit.node.downloading.site import CHECKPOINT, SEGMENT, Site, pattern
from tests.unit.origin import HANG_UP, Handler, Origin, Seen, Wire

Serve = Callable[[Handler], tuple[Site, Origin]]
CONTENT = pattern(CHECKPOINT * 4 + 1000)


def test_sixty_gigabytes_in(serve: Serve, tmp_path: Path) -> None:
    """Offsets beyond 32 bits reach the request, the disk and the hash unharmed."""
    size, tail = 60_000_000_000, pattern(SEGMENT * 2 + 3)
    offset = size - len(tail)
    state = HashState("sha256", tuple(range(8)), offset, bytes(offset % 64))
    hashing = Hashing()
    hasher = hashing.resume(state, "sha256", size, offset)
    assert hasher is not None
    hasher.update(tail)
    entry = Entry("f", size, "sha256:" + hasher.hexdigest())

    def handler(seen: Seen, wire: Wire) -> None:
        first, last = seen.byte_range
        part = tail[first - offset : last - offset + 1]
        wire.respond(206, part, Content_Range=f"bytes {first}-{last}/{size}")

    site, origin = serve(handler)
    target = Target(entry, f"{origin.url}/f", site.tree / "f")
    with target.destination.open("wb") as file:
        file.truncate(offset)
    site.state.mkdir()
    name = hashlib.sha256(b"f").hexdigest() + ".json"
    record = {"path": "f", "size": size, "digest": entry.digest, "offset": offset}
    (site.state / name).write_text(json.dumps({**record, "state": state.to_wire()}))
    site.fetch(target)
    with target.destination.open("rb") as arrived:
        arrived.seek(offset)
        assert arrived.read() == tail
    assert site.received == len(tail)


_KILLED = """
import sys
from pathlib import Path
from tests.unit.node.downloading.site import *
root, url = Path(sys.argv[1]), sys.argv[2]
site = Site(root, url)
site.start(site.target("f", pattern(int(sys.argv[3])))).finish()
"""


def test_killed_process_loses_at_most_a_checkpoint(serve: Serve, tmp_path: Path) -> None:
    """After kill -9 the next process asks only for bytes after the last checkpoint."""
    until = CHECKPOINT * 3 + SEGMENT * 2
    content = pattern(CHECKPOINT * 6)
    killed: list[int] = []

    def handler(seen: Seen, wire: Wire) -> object:
        if not killed and seen.byte_range[1] >= until:
            wire.wait_for_hangup()
            return HANG_UP
        wire.respond_range(seen, content)
        return None

    site, origin = serve(handler)
    target = site.target("f", content)
    command = [sys.executable, "-c", _KILLED, str(tmp_path), origin.url, str(len(content))]
    with subprocess.Popen(command, cwd=Path(__file__).parents[4]) as process:  # noqa: S603 - ours
        eventually(lambda: site.resumable(target) == CHECKPOINT * 3, "the third checkpoint")
        process.send_signal(signal.SIGKILL)
    killed.append(process.returncode)
    before = len(origin.seen)
    site.fetch(target)
    assert site.content("f") == content
    assert min(seen.byte_range[0] for seen in origin.seen[before:]) == CHECKPOINT * 3


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_any_sequence_of_faults_ends_with_the_right_bytes(seed: int) -> None:
    """Under random failures, cancellations and restarts, files are right or not there at all."""
    chance = random.Random(seed)  # noqa: S311 - repeats a failure by its seed
    files = {f"f{i}": pattern(chance.choice([0, 9, SEGMENT, SEGMENT * 7 + 1]), i) for i in range(4)}

    def handler(seen: Seen, wire: Wire) -> object:
        content = files[seen.target[1:]]
        first, last = seen.byte_range
        part = content[first : last + 1]
        span = f"bytes {first}-{last}/{len(content)}"
        match chance.randrange(8):
            case 0:
                wire.respond(chance.choice([429, 500, 503, 416]), Retry_After="1")
            case 1:
                wire.respond(206, part[: len(part) // 2], Content_Range=span)
            case 2:
                length = str(len(part))
                wire.respond(206, part[: len(part) // 3], Content_Range=span, Content_Length=length)
                return HANG_UP
            case 3:
                wire.respond(200, content)
            case 4:
                return HANG_UP
            case 5:
                wire.respond(206, part, Content_Range=span.replace("bytes ", "bytes 1", 1))
            case _:
                wire.respond_range(seen, content)
        return None

    with tempfile.TemporaryDirectory() as root, Origin(handler) as origin:
        site = Site(Path(root), origin.url)
        targets = [site.target(path, content) for path, content in files.items()]
        total = sum(len(content) for content in files.values())
        for _ in range(60):
            held = site.resumable(*targets)
            site.received = 0
            running = site.start(*targets)
            if chance.random() < 0.3:
                running.cancellation.cancel()
            fault = running.outcome()
            if fault is None:
                assert held + site.received == total
                break
            assert isinstance(fault, AttemptFault)
            assert fault.reason in {Reason.SOURCE_UNAVAILABLE, Reason.CANCELED}
            assert held + site.received <= total
        else:
            pytest.fail("the files never arrived")
        assert {path: site.content(path) for path in files} == files
        site.close()
