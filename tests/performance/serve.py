"""An emulated Hugging Face hub in a process of its own: no contender shares its interpreter.

    python -m tests.performance.serve FOLDER [--tls]

prints one JSON line (`url`, `commit`, `ca_pem`) and serves the folder as `bench/model` until its
standard input is closed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from emulator.hubs import HuggingFaceHub, LfsRule
from gpustack_delivery.httpd.certificates import Authority
from gpustack_delivery.terminal import Parser


def main() -> None:
    """Serve until nobody listens any more."""
    parser = Parser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    authority = Authority("bench") if options.tls else None
    with HuggingFaceHub(authority=authority) as hub:
        rule = LfsRule(patterns=("*.safetensors",), size_bytes=10 << 20)
        repository = hub.add_repository("bench/model", options.folder, lfs=rule)
        head = repository.resolve("main")
        assert head is not None
        commit = head.id
        sys.stdout.write(
            json.dumps({"url": hub.url, "commit": commit, "ca_pem": hub.ca_pem}) + "\n"
        )
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
