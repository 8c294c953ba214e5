"""Who delivers, beside us: each contender as one process that fetches one repository.

Our side and `snapshot_download` time themselves without their imports; the others are timed from
start to end, which costs them a few milliseconds. All of them write to the same filesystem, from
the same server, and start with an empty destination.
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
from urllib.parse import quote


@dataclass(frozen=True)
class Offer:
    """What is to be delivered: the hub's URL, a commit, and each file's size and SHA-256."""

    url: str
    commit: str
    ca_file: Path | None
    files: dict[str, tuple[int, str]]

    def file_url(self, path: str) -> str:
        """Return where a file is downloaded."""
        return f"{self.url}/bench/model/resolve/{self.commit}/{quote(path)}"


@dataclass(frozen=True)
class Run:
    """What one delivery took; the memory only where the contender tells it."""

    seconds: float
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0


Deliver = Callable[[Offer, Path], Run]


@dataclass(frozen=True)
class Contender:
    """One way to deliver.

    Args:
        needs: programs it calls; where one is missing it does not run, and the report says so.
        verifies: whether it checks what it received.
        one_file: whether it is only for a repository of one file.
    """

    name: str
    deliver: Deliver
    needs: Sequence[str] = ()
    verifies: bool = False
    one_file: bool = False

    @property
    def missing(self) -> list[str]:
        """Return the programs it lacks here."""
        return [program for program in self.needs if shutil.which(program) is None]


def _python(module: str, offer: Offer, destination: Path) -> Run:
    command = [sys.executable, "-m", f"tests.performance.{module}", offer.url, offer.commit]
    environment = dict(os.environ)
    arguments = [str(destination)]
    if offer.ca_file is not None:
        arguments.append(str(offer.ca_file))
        environment["SSL_CERT_FILE"] = str(offer.ca_file)
    done = subprocess.run(  # noqa: S603 - our own modules
        [*command, *arguments], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def _ours(offer: Offer, destination: Path) -> Run:
    return _python("ours", offer, destination)


def _plugin(offer: Offer, destination: Path) -> Run:
    return _python("plugin", offer, destination)


def _snapshot(offer: Offer, destination: Path) -> Run:
    return _python("snapshot", offer, destination)


def _timed(command: Sequence[str]) -> Run:
    began, spent = time.monotonic(), _children_cpu()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - fixed programs
    return Run(time.monotonic() - began, _children_cpu() - spent)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _aria2(offer: Offer, destination: Path) -> Run:
    listing = destination / "list"
    lines = []
    for path, (_, sha256) in offer.files.items():
        lines += [offer.file_url(path), f"  out={path}", f"  checksum=sha-256={sha256}"]
    listing.write_text("\n".join(lines))
    command = ["aria2c", "-q", "-x8", "-s8", "-j8", "--file-allocation=falloc", "-i", str(listing)]
    if offer.ca_file is not None:
        command.append(f"--ca-certificate={offer.ca_file}")
    return _timed([*command, "-d", str(destination)])


def _curl_command(offer: Offer, destination: Path, output: str) -> list[str]:
    (path,) = offer.files
    trust = ["--cacert", str(offer.ca_file)] if offer.ca_file is not None else []
    return ["curl", "-sSfL", *trust, "-o", output, offer.file_url(path)]


def _curl(offer: Offer, destination: Path) -> Run:
    return _timed(_curl_command(offer, destination, str(destination / "file")))


def _pipeline(offer: Offer, destination: Path) -> Run:
    curl = _curl_command(offer, destination, "-")
    script = 'file=$1; shift; "$@" | tee "$file" | openssl dgst -sha256'
    return _timed(["sh", "-c", script, "sh", str(destination / "file"), *curl])


OURS = Contender("ours (verified, synced)", _ours, verifies=True)
THROUGH_CSI = Contender("our plugin, over its CSI socket", _plugin, verifies=True)
PEERS = (
    Contender("huggingface_hub.snapshot_download", _snapshot),
    Contender("aria2c -x8 --checksum=sha-256", _aria2, needs=["aria2c"], verifies=True),
    Contender(
        "curl | tee | openssl dgst -sha256",
        _pipeline,
        needs=["curl", "openssl", "tee"],
        verifies=True,
        one_file=True,
    ),
    Contender("curl", _curl, needs=["curl"], one_file=True),
)
