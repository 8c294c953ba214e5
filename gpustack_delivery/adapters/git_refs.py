"""Which commit git advertises for a branch or tag, asked over HTTP without a git program.

A repository's first answer to a clone is a list of its refs in packet lines: four hex digits of
length, then `<commit> <ref>`, the first one with capabilities behind a NUL. An annotated tag has a
second, peeled line (`<ref>^{}`) with the commit that the tag object points at. `HEAD` is never
looked at: it would answer for the default branch in place of an unknown one.

`modelscope` checks the hub's word against it. Rules: AR-MS-01.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Final

from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.hub_api import call, unavailable
from gpustack_delivery.errors import HubFault
from gpustack_delivery.redaction import Token

_MEDIA_TYPE: Final = "application/x-git-upload-pack-advertisement"
_LINE: Final = re.compile(rb"([0-9a-f]{40}) (\S[^\n]*)\n?")
_UNREADABLE: Final = "git's list of refs cannot be read"


def advertised_commit(http: Http, repository: str, revision: str, token: Token | None) -> str:
    """Return the commit of a branch or tag; a tag comes first, peeled when it is annotated.

    Raises:
        HubFault: `SourceUnavailable` for every failure, also a refusal: the hub has just answered
            for this revision, so a git side that does not agree is a hub in trouble.
    """
    headers = {"User-Agent": "git/2.39", "Accept": _MEDIA_TYPE}
    if token:
        # git's own way to carry a token; on redirects `Http` treats it as it treats a bearer.
        credentials = b64encode(f"oauth2:{token.reveal()}".encode()).decode()
        headers["Authorization"] = f"Basic {credentials}"
    url = f"{repository}/info/refs?service=git-upload-pack"
    try:
        answer = call(http, "GET", url, None, headers=headers)
    except HubFault as fault:
        raise unavailable(f"git: {fault}") from fault
    if answer.status != 200:
        raise unavailable(f"git: HTTP {answer.status}")
    if not answer.headers.get("Content-Type", "").startswith(_MEDIA_TYPE):
        raise unavailable(_UNREADABLE)
    refs = _refs(answer.body)
    for name in (f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}", f"refs/heads/{revision}"):
        if name in refs:
            return refs[name]
    raise unavailable("git knows no such branch or tag, although the hub answers for it")


def _refs(body: bytes) -> Mapping[str, str]:
    refs = {}
    for packet in _packets(body):
        if packet.startswith(b"# service="):
            continue
        found = _LINE.fullmatch(packet.partition(b"\0")[0])
        if found is None:
            raise unavailable(_UNREADABLE)
        refs[found[2].decode("utf-8", "replace")] = found[1].decode()
    if not refs:
        raise unavailable("git advertises no refs")
    return refs


def _packets(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        head = body[at : at + 4]
        if re.fullmatch(rb"[0-9a-fA-F]{4}", head) is None:
            raise unavailable(_UNREADABLE)
        length = int(head, 16)
        if length == 0:
            at += 4
            continue
        if length < 4 or at + length > len(body):
            raise unavailable(_UNREADABLE)
        yield body[at + 4 : at + length]
        at += length
