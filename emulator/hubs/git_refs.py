"""Git's smart HTTP, as far as naming refs: what `git ls-remote` and ref checks read.

An annotated tag is advertised twice, as the tag's own object and, with `^{}` behind its name, as
the commit it leads to. No objects are served: a fetch after the advertisement finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from emulator.hubs.replies import Reply, bytes_reply
from emulator.hubs.repository import Ref

ADVERTISEMENT = "application/x-git-upload-pack-advertisement"
_CAPABILITIES = "multi_ack thin-pack side-band side-band-64k ofs-delta no-progress include-tag"
_NO_OBJECT = "0" * 40
_FLUSH = b"0000"


def packet(line: str) -> bytes:
    """Return a line as a packet: its length in four hex digits, itself included, in front."""
    data = line.encode()
    return b"%04x" % (len(data) + 4) + data


def advertisement(refs: Mapping[str, Ref], head: str) -> Reply:
    """Return the answer to `GET /{repo}.git/info/refs?service=git-upload-pack`.

    Args:
        refs: by full name.
        head: the full name of the ref that HEAD follows; without that ref there is no HEAD.
    """
    lines = []
    capabilities = f"{_CAPABILITIES} object-format=sha1 agent=git/emulator"
    if head in refs:
        lines.append(f"{refs[head].commit} HEAD")
        capabilities += f" symref=HEAD:{head}"
    for name, ref in sorted(refs.items()):
        lines.append(f"{ref.tag_object or ref.commit} {name}")
        if ref.tag_object:
            lines.append(f"{ref.commit} {name}^{{}}")
    first, *rest = lines or [f"{_NO_OBJECT} capabilities^{{}}"]
    packets = [packet("# service=git-upload-pack\n"), _FLUSH, packet(f"{first}\0{capabilities}\n")]
    packets += [packet(f"{line}\n") for line in rest]
    reply = bytes_reply(200, b"".join([*packets, _FLUSH]), ADVERTISEMENT)
    reply.headers.append(("Cache-Control", "no-cache, max-age=0, must-revalidate"))
    return reply
