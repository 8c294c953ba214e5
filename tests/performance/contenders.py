"""Who delivers beside the plugin: each peer as one process that fetches one repository.

`snapshot_download` times itself without its imports; the others are timed from start to end, which
costs them a few milliseconds. All of them write to the same kind of filesystem as the plugin, read
from the same server, and start with an empty destination.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.performance.rows import ARIA2, CURL, PIPELINE, SNAPSHOT


@dataclass(frozen=True, slots=True)
class Offer:
    """What is to be delivered: a repository, the hub's URL, a commit, each file's size and SHA-256.

    `ca_file` holds whom to trust; None for plain http.
    """

    repository: str
    url: str
    commit: str
    ca_file: Path | None
    files: dict[str, tuple[int, str]]

    def file_url(self, path: str) -> str:
        """Return where a file is downloaded."""
        return f"{self.url}/{self.repository}/resolve/{self.commit}/{quote(path)}"


@dataclass(frozen=True, slots=True)
class Run:
    """What one delivery took; the memory only where it is known."""

    seconds: float
    cpu_seconds: float
    peak_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to deliver.

    Args:
        needs: programs it calls; where one is missing it does not run, and the report says so.
        one_file: whether it is only for a repository of one file.
    """

    name: str
    deliver: Callable[[Offer, Path], Run]
    needs: Sequence[str] = ()
    one_file: bool = False

    @property
    def missing(self) -> list[str]:
        """Return the programs it lacks here."""
        return [program for program in self.needs if shutil.which(program) is None]


def timed(command: Sequence[str]) -> Run:
    """Run a command to its end."""
    began, spent = time.monotonic(), _children_cpu()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - fixed programs
    return Run(time.monotonic() - began, _children_cpu() - spent)


def aria2_command(offer: Offer, destination: Path, *, verify: bool) -> list[str]:
    """Return the call of aria2c with 8 connections for every file of an offer."""
    listing = destination / "list"
    lines = []
    for path, (_, sha256) in offer.files.items():
        lines += [offer.file_url(path), f"  out={path}"]
        lines += [f"  checksum=sha-256={sha256}"] if verify else []
    listing.write_text("\n".join(lines))
    command = ["aria2c", "-q", "-x8", "-s8", "-j8", "--file-allocation=falloc", "-i", str(listing)]
    if offer.ca_file is not None:
        command.append(f"--ca-certificate={offer.ca_file}")
    return [*command, "-d", str(destination)]


def _snapshot(offer: Offer, destination: Path) -> Run:
    command = [sys.executable, "-m", "tests.performance.snapshot", offer.repository, offer.url]
    environment = dict(os.environ)
    if offer.ca_file is not None:
        environment["SSL_CERT_FILE"] = str(offer.ca_file)
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, offer.commit, str(destination)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _aria2(offer: Offer, destination: Path) -> Run:
    return timed(aria2_command(offer, destination, verify=True))


def _curl_command(offer: Offer, output: str) -> list[str]:
    (path,) = offer.files
    trust = ["--cacert", str(offer.ca_file)] if offer.ca_file is not None else []
    return ["curl", "-sSfL", *trust, "-o", output, offer.file_url(path)]


def _curl(offer: Offer, destination: Path) -> Run:
    return timed(_curl_command(offer, str(destination / "file")))


def _pipeline(offer: Offer, destination: Path) -> Run:
    script = 'file=$1; shift; "$@" | tee "$file" | openssl dgst -sha256'
    curl = _curl_command(offer, "-")
    return timed(["sh", "-c", script, "sh", str(destination / "file"), *curl])


PEERS: Final = (
    Peer(SNAPSHOT, _snapshot),
    Peer(ARIA2, _aria2, needs=["aria2c"]),
    Peer(PIPELINE, _pipeline, needs=["curl", "openssl", "tee"], one_file=True),
    Peer(CURL, _curl, needs=["curl"], one_file=True),
)
