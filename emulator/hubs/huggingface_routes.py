"""Paths of the Hugging Face hub taken apart, and the hub's form of an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from emulator.hubs.replies import Reply, json_reply

API = ["api", "models"]
RESOLVE_CACHE = ["api", "resolve-cache", "models"]
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Problem(Exception):
    """Ends a request with the hub's form of an error."""

    def __init__(self, status: int, code: str, message: str, *, commit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.commit = commit

    def reply(self) -> Reply:
        """Return the error as it is answered: JSON, and headers that clients read."""
        message = str(self)
        reply = json_reply({"error": message}, self.status)
        if self.code:
            reply.headers.append(("X-Error-Code", self.code))
        printable = "".join(letter if " " <= letter <= "~" else "?" for letter in message)
        reply.headers.append(("X-Error-Message", printable))
        if self.commit:
            reply.headers.append(("X-Repo-Commit", self.commit))
        return reply


@dataclass(frozen=True, slots=True)
class Route:
    """What a path asks for; the verb is `info`, `tree` or `resolve`."""

    repository: str
    verb: str
    revision: str = "main"
    path: str = ""


def split(path: str) -> list[str]:
    """Return a path's segments, each decoded once.

    Raises:
        Problem: they are not UTF-8.
    """
    try:
        return [unquote(segment, errors="strict") for segment in path.split("/")[1:]]
    except UnicodeDecodeError:
        raise Problem(400, "", "The path is not UTF-8") from None


def parse(segments: list[str]) -> Route:
    """Return what a path asks for.

    Raises:
        Problem: nothing that the hub has.
    """
    if segments[:3] == RESOLVE_CACHE:
        for size in (2, 1):  # owner and name, or a name alone
            name, rest = "/".join(segments[3 : 3 + size]), segments[3 + size :]
            if rest and _COMMIT.fullmatch(rest[0]):
                return Route(name, "resolve", rest[0], "/".join(rest[1:]))
    in_api = segments[:2] == API
    segments = segments[2:] if in_api else segments
    verbs = {"revision", "tree"} if in_api else {"resolve"}
    for size in (2, 1):
        name, rest = "/".join(segments[:size]), segments[size:]
        if rest and rest[0] in verbs:
            revision, path = _revision(rest[1:])
            verb = "info" if rest[0] == "revision" else rest[0]
            return Route(name, verb, revision, path)
    if in_api and len(segments) in {1, 2}:
        return Route("/".join(segments), "info")
    raise Problem(404, "", "Sorry, we can't find the page you are looking for.")


def _revision(segments: list[str]) -> tuple[str, str]:
    size = 3 if segments[:1] == ["refs"] else 1  # the one revision that is written with slashes
    return "/".join(segments[:size]), "/".join(segments[size:])
