"""The Hugging Face hub's HTTP interface, as far as downloads need it: requests in, replies out.

- `GET /api/whoami-v2`: the token's user, or 401
- `GET /api/models/{repo}[/revision/{rev}]`: the commit that the revision names now, and its files
- `GET /api/models/{repo}/tree/{rev}[/{dir}]`: files and folders in pages, the next one in `Link`
- `HEAD, GET /{repo}/resolve/{rev}/{path}`: a git blob's bytes, or a redirect for an LFS file

A revision is one escaped segment. What the real hub says no with is kept to the letter where
clients read it: status, X-Error-Code and X-Error-Message. Strangers learn as little as there: a
private repository looks missing, and to those without any token missing looks like not logged in.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from emulator.hubs.huggingface_routes import RESOLVE_CACHE, Problem, Route, parse, split
from emulator.hubs.replies import Reply, Subject, content_reply, json_reply, redirect_reply
from emulator.hubs.repository import Commit, File, Repository
from gpustack_delivery.httpd import Request

_MASKED = "*" * 64


@dataclass(frozen=True, slots=True)
class Options:
    """How a hub presents what it has.

    Args:
        page_entries: entries on a page of a tree.
        expanded_entries: the same for a tree with `expand`.
        relative_redirects: git blobs are redirected to a path on the same host first, as the real
            hub does for some clients.
    """

    page_entries: int = 1000
    expanded_entries: int = 50
    relative_redirects: bool = False


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks: a user, a stranger without a token, or somebody whose token nobody knows."""

    user: str = ""
    unknown_token: bool = False

    def reads(self, repository: Repository) -> bool:
        return bool(self.user) and self.user in repository.readers


class HuggingFaceApi:
    """Answers requests from repositories and users that it is given.

    Args:
        find_repository: the repository of a name.
        find_user: the user of a token.
        offer: the URL on the content host where a file is fetched.
    """

    def __init__(
        self,
        find_repository: Callable[[str], Repository | None],
        find_user: Callable[[str], str | None],
        offer: Callable[[File], str],
        options: Options,
    ) -> None:
        self._find_repository = find_repository
        self._find_user = find_user
        self._offer = offer
        self._options = options

    def answer(self, request: Request, origin: str) -> tuple[Reply, Subject]:
        """Answer a request.

        Args:
            origin: scheme and host as the client wrote them, for links to further pages.
        """
        try:
            if request.method not in {"GET", "HEAD"}:
                raise Problem(405, "", "Only downloads are emulated")
            caller = self._caller(request)
            segments = split(request.path)
            if segments == ["api", "whoami-v2"]:
                return _whoami(caller), Subject(frozenset({"whoami"}))
            route = parse(segments)
        except Problem as problem:
            return problem.reply(), Subject()
        try:
            if route.verb == "info":
                return self._info(route, caller), Subject(frozenset({"info"}))
            if route.verb == "tree":
                reply = self._tree(route, caller, request, origin)
                return reply, Subject(frozenset({"tree"}), route.path)
            return self._resolve(route, caller, request)
        except Problem as problem:
            return problem.reply(), Subject(frozenset({route.verb}), route.path)

    def _caller(self, request: Request) -> _Caller:
        authorization = request.headers.get("Authorization")
        if authorization is None:
            return _Caller()
        scheme, _, token = authorization.partition(" ")
        user = self._find_user(token.strip()) if scheme.lower() == "bearer" else None
        return _Caller(user) if user is not None else _Caller(unknown_token=True)

    def _repository(self, route: Route, caller: _Caller) -> Repository:
        repository = self._find_repository(route.repository)
        if repository is not None and repository.private and not caller.reads(repository):
            repository = None
        if repository is not None and repository.gated and route.verb == "resolve":
            return self._gate(repository, caller)
        if caller.unknown_token:
            raise Problem(401, "", "Invalid credentials in Authorization header")
        if repository is None and not caller.user:
            raise Problem(401, "", "Invalid username or password.")
        if repository is None:
            raise Problem(404, "RepoNotFound", "Repository not found")
        return repository

    def _gate(self, repository: Repository, caller: _Caller) -> Repository:
        if caller.reads(repository):
            return repository
        text = f"Access to model {repository.name} is restricted"
        if not caller.user:
            text += ". You must have access to it and be authenticated to access it. Please log in."
            raise Problem(401, "GatedRepo", text)
        text += " and you are not in the authorized list."
        text += f" Visit https://huggingface.co/{repository.name} to ask for access."
        raise Problem(403, "GatedRepo", text)

    def _commit(self, repository: Repository, route: Route) -> Commit:
        commit = repository.resolve(route.revision)
        if commit is None:
            raise Problem(404, "RevisionNotFound", f"Invalid rev id: {route.revision}")
        return commit

    def _info(self, route: Route, caller: _Caller) -> Reply:
        repository = self._repository(route, caller)
        commit = self._commit(repository, route)
        when = _date(commit)
        return json_reply(
            {
                "_id": commit.id[:24],
                "id": repository.name,
                "modelId": repository.name,
                "author": repository.name.rpartition("/")[0],
                "sha": commit.id,
                "lastModified": when,
                "createdAt": when,
                "private": repository.private,
                "gated": "auto" if repository.gated else False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": [{"rfilename": path} for path in sorted(commit.files)],
                "usedStorage": sum(file.size_bytes for file in commit.files.values()),
            }
        )

    def _tree(self, route: Route, caller: _Caller, request: Request, origin: str) -> Reply:
        repository = self._repository(route, caller)
        commit = self._commit(repository, route)
        if route.path not in commit.directories:
            raise Problem(
                404,
                "EntryNotFound",
                f"{route.path} does not exist on {route.revision!r}",
                commit=commit.id,
            )
        query = dict(parse_qsl(request.query))
        recursive, expand = (query.get(name, "").lower() in {"true", "1"} for name in _SWITCHES)
        paths = commit.below(route.path, recursive=recursive)
        size = self._options.expanded_entries if expand else self._options.page_entries
        start = _position(query.get("cursor", ""))
        masked = repository.gated and not caller.reads(repository)
        page = [
            _entry(commit, path, masked=masked, expand=expand)
            for path in paths[start : start + size]
        ]
        reply = json_reply(page)
        reply.headers.append(("X-Repo-Commit", commit.id))
        if start + size < len(paths):
            cursor = base64.urlsafe_b64encode(str(start + size).encode()).decode()
            following = urlencode(query | {"cursor": cursor})
            reply.headers.append(("Link", f'<{origin}{request.path}?{following}>; rel="next"'))
        return reply

    def _resolve(self, route: Route, caller: _Caller, request: Request) -> tuple[Reply, Subject]:
        repository = self._repository(route, caller)
        commit = self._commit(repository, route)
        file = commit.files.get(route.path)
        if file is None:
            raise Problem(404, "EntryNotFound", "Entry not found", commit=commit.id)
        places = {"resolve"}
        if file.lfs:
            reply = redirect_reply(302, self._offer(file))
            reply.headers.append(("X-Linked-Size", str(file.size_bytes)))
            reply.headers.append(("X-Linked-Etag", f'"{file.etag}"'))
        elif self._options.relative_redirects and request.path.split("/")[1:4] != RESOLVE_CACHE:
            where = f"/{'/'.join(RESOLVE_CACHE)}/{repository.name}/{commit.id}/{quote(file.path)}"
            reply = redirect_reply(307, f"{where}?etag=%22{file.etag}%22")
        else:
            reply = content_reply(file.content, file.etag, request)
            name = quote(file.path.rpartition("/")[2], safe="")
            reply.headers.append(("Content-Disposition", f"inline; filename*=UTF-8''{name}"))
            places.add("bytes")
        reply.headers.append(("X-Repo-Commit", commit.id))
        return reply, Subject(frozenset(places), route.path)


_SWITCHES = ("recursive", "expand")


def _whoami(caller: _Caller) -> Reply:
    if not caller.user:
        return Problem(401, "", "Invalid username or password.").reply()
    return json_reply(
        {
            "type": "user",
            "id": caller.user,
            "name": caller.user,
            "fullname": caller.user,
            "isPro": False,
            "orgs": [],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": "emulator", "role": "read"},
            },
        }
    )


def _position(cursor: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(cursor or b"MA=="))
    except (ValueError, binascii.Error):
        raise Problem(400, "", "Invalid cursor") from None


def _entry(commit: Commit, path: str, *, masked: bool, expand: bool) -> dict[str, Any]:
    entry: dict[str, Any]
    if path in commit.files:
        file = commit.files[path]
        entry = {"type": "file", "oid": file.oid, "size": file.size_bytes, "path": path}
        if file.lfs:
            entry["lfs"] = {
                "oid": _MASKED if masked else file.content.sha256,
                "size": file.size_bytes,
                "pointerSize": len(file.pointer),
            }
    else:
        entry = {"type": "directory", "oid": commit.directories[path], "size": 0, "path": path}
    if expand:
        entry["lastCommit"] = {"id": commit.id, "title": commit.title, "date": _date(commit)}
    return entry


def _date(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
