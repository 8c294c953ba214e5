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
from gpustack_delivery.vocabulary.settings import HUGGING_FACE_ENDPOINT, MODEL_SCOPE_ENDPOINT
from gpustack_delivery.worker.folders import read_folder
from gpustack_delivery.worker.hubs import open_hub

_HUBS: Final = {"huggingface": HubKind.HUGGING_FACE, "modelscope": HubKind.MODEL_SCOPE}
_TOKEN_VARIABLES: Final = {
    HubKind.HUGGING_FACE: "HF_TOKEN",
    HubKind.MODEL_SCOPE: "MODELSCOPE_API_TOKEN",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("source", metavar="DIR | REPOSITORY[@REVISION]", help="a folder, or a hub's repository")
    add(
        "--hub",
        choices=_HUBS,
        default="",
        help="which hub the repository is on, huggingface if absent; a token is read from "
        f"{' or '.join(_TOKEN_VARIABLES.values())}",
    )
    add("--endpoint", default="", metavar="URL", help="the hub's address, if not the public one")
    add("--ca-file", default="", metavar="FILE", help="trust these CA certificates too (PEM)")
    add("--allow", action="append", default=[], metavar="PATTERN", help="take only these files")
    add("--ignore", action="append", default=[], metavar="PATTERN", help="leave these files out")
    add("--lines", action="store_true", help="print the canonical manifest first")


def run(args: argparse.Namespace) -> int:
    """Print the manifest's numbers."""
    if not args.source:
        raise ConfigurationFault("the name of the folder or repository is empty")
    patterns = Patterns(tuple(args.allow), tuple(args.ignore))
    folder = Path(args.source)
    if args.hub or args.endpoint or not folder.exists():
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
    kind = _HUBS[args.hub] if args.hub else HubKind.HUGGING_FACE
    token = Token(os.environ.get(_TOKEN_VARIABLES[kind], "")) or None
    with open_hub(kind, _access(kind, args.endpoint), _read_ca(args.ca_file)) as hub:
        commit = hub.resolve(repository, revision or kind.default_revision, token)
        return hub.list_tree(repository, commit, token)


def _access(kind: HubKind, endpoint: str) -> HubAccess:
    if endpoint and (fault := endpoint_fault(endpoint)):
        raise ConfigurationFault(f"--endpoint {fault}")
    named = {kind: endpoint} if endpoint else {}
    return HubAccess(
        hugging_face_endpoint=named.get(HubKind.HUGGING_FACE, HUGGING_FACE_ENDPOINT.default),
        model_scope_endpoint=named.get(HubKind.MODEL_SCOPE, MODEL_SCOPE_ENDPOINT.default),
    )


def _read_ca(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii") if file else ""
    except (OSError, UnicodeDecodeError):
        raise ConfigurationFault(f"--ca-file {file!a} cannot be read as PEM text") from None
