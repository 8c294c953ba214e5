"""`gpustack-delivery verify`: hashes published trees again and names every file that is wrong.

One line a damage on standard output and a line of sums at the end; nothing is changed. Exit status
0 means that every tree is whole, 1 that one is not, 2 that there was nothing to look at.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpustack_delivery.adapters.hashing import Hashing
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.command import CACHE_ROOT
from gpustack_delivery.node.verifying import Finding, examine, published_digests
from gpustack_delivery.terminal import filled
from gpustack_delivery.vocabulary.manifest import is_digest
from gpustack_delivery.vocabulary.quantity import format_binary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--cache-root", type=filled, default=CACHE_ROOT, metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "digest", nargs="*", metavar="DIGEST", help="sha256:… of a tree (default: all of them)"
    )


def run(args: argparse.Namespace) -> int:
    """Examine the trees asked for and print what is found.

    Raises:
        ConfigurationFault: the cache cannot be read, or a digest is none or is not published.
    """
    root = Path(args.cache_root)
    present = published_digests(root)
    for digest in args.digest:
        if not is_digest(digest):
            raise ConfigurationFault(
                f"DIGEST must be sha256: and 64 lowercase hex digits: {digest!r}"
            )
        if digest not in present:
            raise ConfigurationFault(f"not published in {root}: {digest}")
    hashing = Hashing()
    findings = []
    for digest in dict.fromkeys(args.digest or present):
        finding = examine(root, digest, hashing)
        if finding is not None:  # or it was collected while it was read
            findings.append(finding)
            _print(finding)
    damaged = sum(bool(finding.damages) for finding in findings)
    files, size = sum(f.file_count for f in findings), sum(f.size_bytes for f in findings)
    sums = f"{_counted(len(findings), 'tree')}, {_counted(files, 'file')}, {format_binary(size)}B"
    _say(f"{sums}: {damaged} damaged")
    return 1 if damaged else 0


def _print(finding: Finding) -> None:
    for damage in finding.damages:
        # Quoted like a string of Python: a name may hold anything a terminal would obey.
        place = f"{damage.path!r}: " if damage.path else ""
        _say(f"{finding.digest}: {place}{damage.what}")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
