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
from gpustack_delivery.decisions.admission import judge_artifact
from gpustack_delivery.errors import ConfigurationFault, HubFault
from gpustack_delivery.redaction import Token, speakable_url
from gpustack_delivery.terminal import filled
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Entry, Manifest
from gpustack_delivery.vocabulary.node_store import HubAccess
from gpustack_delivery.vocabulary.patterns import Patterns
from gpustack_delivery.vocabulary.settings import HUGGING_FACE_ENDPOINT, MODEL_SCOPE_ENDPOINT
from gpustack_delivery.worker.folders import read_folder
from gpustack_delivery.worker.hubs import open_hub

_HUBS: Final = {"huggingface": HubKind.HUGGING_FACE, "modelscope": HubKind.MODEL_SCOPE}
_HUB_FLAGS: Final = ("--endpoint", "--ca-file", "--hub")
_FIELDS: Final = {
    "revision": "",
    "allowPatterns": "--allow",
    "ignorePatterns": "--ignore",
}
_TAKEN: Final = "; {!r} is no folder here, and so it was taken for a repository"
_TOKEN_VARIABLES: Final = {
    HubKind.HUGGING_FACE: "HF_TOKEN",
    HubKind.MODEL_SCOPE: "MODELSCOPE_API_TOKEN",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add(
        "source",
        type=filled,
        metavar="DIR | REPOSITORY[@REVISION]",
        help="a folder, or a hub's repository; what follows the first @ is the revision",
    )
    add(
        "--hub",
        choices=_HUBS,
        default="",
        help="which hub the files are from, huggingface if absent; for a repository, a token is "
        f"read from {' or '.join(_TOKEN_VARIABLES.values())}",
    )
    add("--endpoint", default="", metavar="URL", help="the hub's address, if not the public one")
    add("--ca-file", default="", metavar="FILE", help="trust these CA certificates too (PEM)")
    add("--allow", action="append", default=[], metavar="PATTERN", help="take only these files")
    add("--ignore", action="append", default=[], metavar="PATTERN", help="leave these files out")
    add("--lines", action="store_true", help="print the canonical manifest first")


def run(args: argparse.Namespace) -> int:
    """Print the manifest's numbers."""
    patterns = Patterns(tuple(args.allow), tuple(args.ignore))
    hub_flag = next((flag for flag in _HUB_FLAGS if vars(args)[_attribute(flag)]), "")
    kind = _HUBS[args.hub] if args.hub else HubKind.HUGGING_FACE
    if _is_folder(args, hub_flag):
        _judge("any/name", "main", args)
        entries = tuple(read_folder(Path(args.source), patterns, kind))
    else:
        entries = patterns.filter(_list_repository(args, kind, hub_flag))
    if not entries:
        raise ConfigurationFault(f"{args.source!r} holds no file that the patterns keep")
    manifest = Manifest.of(entries)
    if args.lines:
        sys.stdout.write(manifest.encode().decode())
    sys.stdout.write(
        f"digest {manifest.digest}\nfiles  {manifest.file_count}\nbytes  {manifest.size_bytes}\n"
    )
    return 0


def _is_folder(args: argparse.Namespace, hub_flag: str) -> bool:
    """Say whether a folder is meant: with --hub alone, a path that no repository can be called."""
    if args.endpoint or args.ca_file or (hub_flag and is_repository(args.source.partition("@")[0])):
        return False
    return _is_there(args.source)


def _is_there(source: str) -> bool:
    try:
        return Path(source).exists()
    except OSError as error:
        raise ConfigurationFault(f"{source!r} cannot be looked at: {error.strerror}") from None


def _list_repository(args: argparse.Namespace, kind: HubKind, hub_flag: str) -> tuple[Entry, ...]:
    repository, at, revision = args.source.partition("@")
    if not is_repository(repository):
        if hub_flag and _is_there(args.source):
            raise ConfigurationFault(
                f"{hub_flag} asks a hub, and {args.source!r} is a folder here: leave {hub_flag} "
                "away to read the folder, or name a repository such as OWNER/NAME"
            )
        known = "" if hub_flag else "neither a folder that exists nor "
        raise ConfigurationFault(
            f"{args.source!r} is {known or 'not '}a repository such as OWNER/NAME or "
            "OWNER/NAME@REVISION"
        )
    if at and not revision:
        raise ConfigurationFault(f"{args.source!r} names no revision after its @")
    _judge(repository, revision or kind.default_revision, args)
    token = _token(_TOKEN_VARIABLES[kind])
    access = _access(kind, args.endpoint)
    try:
        with open_hub(kind, access, _read_ca(args.ca_file)) as hub:
            commit = hub.resolve(repository, revision or kind.default_revision, token)
            return hub.list_tree(repository, commit, token)
    except HubFault as fault:
        of_hugging_face = kind is HubKind.HUGGING_FACE
        endpoint = access.hugging_face_endpoint if of_hugging_face else access.model_scope_endpoint
        why = f" ({fault.detail.rpartition('>')[2]})" if fault.detail else ""
        asked = f"{speakable_url(endpoint)} {repository}"
        # A mistyped folder looks like a repository that belongs to nobody, such as gpt2.
        taken = "" if hub_flag or "/" in repository else _TAKEN.format(args.source)
        raise HubFault(fault.verdict, f"{asked}: {fault}{why}{taken}") from None


def _token(variable: str) -> Token | None:
    text = os.environ.get(variable, "").strip()
    if not (text.isascii() and text.isprintable()):
        raise ConfigurationFault(f"${variable} holds what no token does: set it again, or unset it")
    return Token(text) if text else None


def _judge(repository: str, revision: str, args: argparse.Namespace) -> None:
    """Judge what an artifact with this source and these patterns would be refused for."""
    source = {"huggingFace": {"repository": repository, "revision": revision}}
    spec = {"source": source, "allowPatterns": args.allow, "ignorePatterns": args.ignore}
    for denial in judge_artifact(spec, image_volumes=False):
        flag = next(said for field, said in _FIELDS.items() if field in denial.field)
        flag = flag or f"the revision of {args.source!r}"
        raise ConfigurationFault(f"{flag} {denial.message}")


def _attribute(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


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
        text = Path(file).read_text(encoding="ascii") if file else ""
    except (OSError, UnicodeDecodeError):
        raise ConfigurationFault(f"--ca-file {file!r} cannot be read as PEM text") from None
    if file and "-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigurationFault(f"--ca-file {file!r} holds no certificate in PEM form")
    return text
