"""`gpustack-delivery manifest`: what a folder, or a repository at a revision, is.

It prints the manifest's digest, its number of files and its size. With it an administrator writes
an `expectedDigest` without trusting the hub of the moment, or compares what lies on a disk with
what an artifact was resolved to.

Rules: AR-DIG-01, AR-DIG-02, AR-RES-06.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from gpustack_delivery.decisions.addresses import endpoint_fault, is_repository
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Entry, Manifest
from gpustack_delivery.vocabulary.node_store import HubAccess
from gpustack_delivery.vocabulary.patterns import Patterns
from gpustack_delivery.vocabulary.settings import HUGGING_FACE_ENDPOINT
from gpustack_delivery.worker.folders import read_folder
from gpustack_delivery.worker.hubs import open_hub

_TOKEN_VARIABLE: Final = "HF_TOKEN"  # noqa: S105 - a variable's name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("source", metavar="DIR | REPOSITORY[@REVISION]", help="a folder, or a hub's repository")
    add(
        "--endpoint",
        default="",
        metavar="URL",
        help=f"the hub, {HUGGING_FACE_ENDPOINT.default} if absent; {_TOKEN_VARIABLE} may hold a "
        "token",
    )
    add("--ca-file", default="", metavar="FILE", help="trust these CA certificates too (PEM)")
    add("--allow", action="append", default=[], metavar="PATTERN", help="take only these files")
    add("--ignore", action="append", default=[], metavar="PATTERN", help="leave these files out")
    add("--lines", action="store_true", help="print the canonical manifest first")


def run(args: argparse.Namespace) -> int:
    """Print the manifest's numbers."""
    patterns = Patterns(tuple(args.allow), tuple(args.ignore))
    folder = Path(args.source)
    if args.endpoint or not folder.exists():
        entries = patterns.filter(_list_repository(args))
    else:
        entries = tuple(read_folder(folder, patterns))
    if not entries:
        raise ConfigurationFault(f"{args.source!a} holds no file that the patterns keep")
    manifest = Manifest.of(entries)
    if args.lines:
        sys.stdout.write(manifest.encode().decode())
    sys.stdout.write(
        f"digest {manifest.digest}\nfiles  {manifest.file_count}\nbytes  {manifest.size_bytes}\n"
    )
    return 0


def _list_repository(args: argparse.Namespace) -> tuple[Entry, ...]:
    repository, _, revision = args.source.partition("@")
    if not is_repository(repository):
        raise ConfigurationFault(
            f"{args.source!a} is neither a folder that exists nor a repository such as "
            "OWNER/NAME or OWNER/NAME@REVISION"
        )
    endpoint = args.endpoint or HUGGING_FACE_ENDPOINT.default
    if fault := endpoint_fault(endpoint):
        raise ConfigurationFault(f"--endpoint {fault}")
    token = Token(os.environ.get(_TOKEN_VARIABLE, "")) or None
    with open_hub(HubKind.HUGGING_FACE, HubAccess(endpoint), _read_ca(args.ca_file)) as hub:
        revision = revision or HubKind.HUGGING_FACE.default_revision
        commit = hub.resolve(repository, revision, token)
        return hub.list_tree(repository, commit, token)


def _read_ca(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii") if file else ""
    except (OSError, UnicodeDecodeError):
        raise ConfigurationFault(f"--ca-file {file!a} cannot be read as PEM text") from None
