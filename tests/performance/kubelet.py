"""Kubelet's calls from a process of its own, timed one by one.

    python -m tests.performance.kubelet SOCKET

reads one JSON object a line from standard input, until an empty one, and answers each:

    {"do": "cycle", "calls": [...], "least": N}   publish and unpublish the calls in turn, at least
                                                  N times and until {"do": "stop"} comes; answers
                                                  with the seconds of every publish
    {"do": "publish" | "unpublish", "calls": [...], "threads": N}
                                                  each call once; answers with the seconds in all
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from spec_tests.observe import CsiChannel, PublishCall

Json = dict[str, Any]


def cycle(channel: CsiChannel, order: Json, lines: queue.Queue[str]) -> list[float]:
    """Publish and unpublish in turn."""
    calls = [_call(wire) for wire in order["calls"]]
    seconds: list[float] = []
    while len(seconds) < order["least"] or lines.empty():
        call = calls[len(seconds) % len(calls)]
        began = time.monotonic()
        answer = channel.publish(call)
        seconds.append(time.monotonic() - began)
        assert answer.ok, answer
        assert channel.unpublish(call.volume_id, call.target).ok
    return seconds


def together(channel: CsiChannel, order: Json) -> float:
    """Make each call once, some at a time."""
    calls = [_call(wire) for wire in order["calls"]]

    def once(call: PublishCall) -> None:
        if order["do"] == "publish":
            answer = channel.publish(call)
        else:
            answer = channel.unpublish(call.volume_id, call.target)
        assert answer.ok, answer

    with ThreadPoolExecutor(order["threads"]) as pool:
        began = time.monotonic()
        list(pool.map(once, calls))
        return time.monotonic() - began


def _call(wire: Json) -> PublishCall:
    return PublishCall(wire["volume"], Path(wire["target"]), wire["context"])


def _listen(lines: queue.Queue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)


def main(socket: Path) -> None:
    """Answer until there are no more lines."""
    channel, lines = CsiChannel(socket), queue.Queue[str]()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while order := json.loads(lines.get()):
        if order["do"] == "stop":
            continue
        answer = (
            cycle(channel, order, lines) if order["do"] == "cycle" else together(channel, order)
        )
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    channel.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
