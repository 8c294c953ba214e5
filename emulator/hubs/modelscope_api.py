"""The ModelScope hub's HTTP interface, as far as downloads need it: requests in, replies out.

- `GET /api/v1/models/{repo}/commits?Ref=`: the commit that a ref names now
- `GET /api/v1/models/{repo}/repo/files?Revision=[&Root=][&Recursive=]`: files and folders
- `HEAD, GET /api/v1/models/{repo}/repo?Revision=&FilePath=`: a file's bytes, or a redirect
- `GET /openapi/v1/users/me`: whether a token is known
- `GET /{repo}.git/info/refs?service=git-upload-pack`: the refs, as git tells them

Every JSON answer is an envelope with a code of its own. Two habits of the real hub make clients
careful and are kept: a listing is cut at 3000 entries without a word, and, where that is switched
on, a ref that does not exist is answered with the default branch's commit.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote

from emulator.hubs import git_refs
from emulator.hubs.replies import (
    Reply,
    Subject,
    content_reply,
    json_reply,
    redirect_reply,
    text_reply,
)
from emulator.hubs.repository import Commit, File, Repository
from gpustack_delivery.httpd import Request

REVISION_NOT_FOUND = 10990101004
NOT_ACCESSIBLE = 10010205001
LOGIN_REQUIRED = 10010200001


@dataclass(frozen=True, slots=True)
class Habits:
    """What the hub does where clients would rather it did not.

    Args:
        listing_entries: where a listing is cut.
        unknown_ref_is_default: an unknown ref is answered with the default branch's commit.
    """

    listing_entries: int = 3000
    unknown_ref_is_default: bool = False


class _Problem(Exception):
    """Ends a request with an envelope that says no."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def reply(self) -> Reply:
        reply = _envelope(None, code=self.code, message=str(self), status=self.status)
        if self.status == 401:
            reply.headers.append(("WWW-Authenticate", 'Basic realm="modelscope"'))
        return reply


class ModelScopeApi:
    """Answers requests from repositories and users that it is given.

    Args:
        find_repository: the repository of a name.
        find_user: the user of a token.
        offer: the URL on the content host where a file is fetched.
        default_branch: what HEAD follows.
    """

    def __init__(
        self,
        find_repository: Callable[[str], Repository | None],
        find_user: Callable[[str], str | None],
        offer: Callable[[File], str],
        default_branch: str,
        habits: Habits,
    ) -> None:
        self._find_repository = find_repository
        self._find_user = find_user
        self._offer = offer
        self._default_branch = default_branch
        self._habits = habits

    def answer(self, request: Request) -> tuple[Reply, Subject]:
        """Answer a request."""
        query = {name: values[0] for name, values in parse_qs(request.query).items()}
        path = query.get("FilePath", query.get("Root", ""))
        place, action = self._route(request)
        subject = Subject(frozenset({place}), path)
        try:
            if request.method not in {"GET", "HEAD"}:
                raise _Problem(405, 405, "only downloads are emulated")
            reply = action(request, query)
        except _Problem as problem:
            return problem.reply(), subject
        if place == "resolve" and reply.status in {200, 206}:
            subject = Subject(frozenset({place, "bytes"}), path)
        return reply, subject

    def _route(self, request: Request) -> tuple[str, _Action]:
        segments = [unquote(segment, errors="replace") for segment in request.path.split("/")[1:]]
        match segments:
            case ["api", "v1", "models", owner, name, "commits"]:
                return "info", partial(self._commits, f"{owner}/{name}")
            case ["api", "v1", "models", owner, name, "repo", "files"]:
                return "tree", partial(self._files, f"{owner}/{name}")
            case ["api", "v1", "models", owner, name, "repo"]:
                return "resolve", partial(self._file, f"{owner}/{name}")
            case ["openapi", "v1", "users", "me"]:
                return "whoami", self._me
            case [owner, name, "info", "refs"] if name.endswith(".git"):
                return "git", partial(self._refs, f"{owner}/{name.removesuffix('.git')}")
        return "none", _nothing

    def _user(self, request: Request) -> str:
        """Return the caller's user, "" for a stranger."""
        token = _token(request.headers.get("Authorization"))
        if token is None:
            return ""
        user = self._find_user(token)
        if user is None:
            raise _Problem(401, LOGIN_REQUIRED, "the token is not valid")
        return user

    def _repository(self, name: str, request: Request) -> Repository:
        user = self._user(request)
        repository = self._find_repository(name)
        closed = repository is not None and (repository.private or repository.gated)
        if repository is None or (closed and user not in repository.readers):
            if closed and not user:
                raise _Problem(401, LOGIN_REQUIRED, "log in to see this model")
            raise _Problem(404, NOT_ACCESSIBLE, "the model does not exist or is not accessible")
        return repository

    def _commit(self, repository: Repository, revision: str) -> Commit:
        commit = repository.resolve(revision or self._default_branch)
        if commit is None and self._habits.unknown_ref_is_default:
            commit = repository.resolve(self._default_branch)
        if commit is None:
            raise _Problem(404, REVISION_NOT_FOUND, "the revision does not exist")
        return commit

    def _commits(self, name: str, request: Request, query: Mapping[str, str]) -> Reply:
        commit = self._commit(self._repository(name, request), query.get("Ref", ""))
        entry = {
            "Id": commit.id,
            "ShortId": commit.id[:8],
            "Title": commit.title,
            "CommittedDate": commit.seconds,
        }
        return _envelope({"Commit": [entry], "TotalCount": 1})

    def _files(self, name: str, request: Request, query: Mapping[str, str]) -> Reply:
        commit = self._commit(self._repository(name, request), query.get("Revision", ""))
        root = query.get("Root", "").strip("/")
        if root not in commit.directories:
            raise _Problem(404, 404, "the folder does not exist")
        recursive = query.get("Recursive", "").lower() == "true"
        paths = commit.below(root, recursive=recursive)[: self._habits.listing_entries]
        return _envelope({"Files": [_entry(commit, path) for path in paths]})

    def _file(self, name: str, request: Request, query: Mapping[str, str]) -> Reply:
        commit = self._commit(self._repository(name, request), query.get("Revision", ""))
        file = commit.files.get(query.get("FilePath", ""))
        if file is None:
            raise _Problem(404, 404, "the file does not exist")
        if file.lfs:
            return redirect_reply(302, self._offer(file))
        return content_reply(file.content, file.etag, request)

    def _me(self, request: Request, query: Mapping[str, str]) -> Reply:
        user = self._user(request)
        if not user:
            raise _Problem(401, LOGIN_REQUIRED, "log in first")
        return _envelope({"username": user})

    def _refs(self, name: str, request: Request, query: Mapping[str, str]) -> Reply:
        if query.get("service") != "git-upload-pack":
            raise _Problem(403, 403, "only git-upload-pack is served")
        repository = self._repository(name, request)
        return git_refs.advertisement(repository.refs(), f"refs/heads/{self._default_branch}")


_Action: TypeAlias = Callable[[Request, Mapping[str, str]], Reply]


def _nothing(request: Request, query: Mapping[str, str]) -> Reply:
    return text_reply(404, "404 page not found")


def _token(authorization: str | None) -> str | None:
    """Return the token of a Bearer or Basic credential, None for a stranger."""
    if authorization is None:
        return None
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return value.strip()
    try:
        return base64.b64decode(value).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _envelope(data: Any, *, code: int = 200, message: str = "success", status: int = 200) -> Reply:
    value = {"Code": code, "Data": data, "Message": message, "Success": code == 200}
    return json_reply(value, status)


def _entry(commit: Commit, path: str) -> dict[str, Any]:
    name = path.rpartition("/")[2]
    entry = {"Name": name, "Path": path, "Revision": commit.id, "CommittedDate": commit.seconds}
    file = commit.files.get(path)
    if file is None:
        return entry | {"Type": "tree", "Mode": "16384", "Size": 0, "Sha256": "", "IsLFS": False}
    digest = file.content.sha256
    facts = {"Size": file.size_bytes, "Sha256": digest, "IsLFS": file.lfs}
    return entry | {"Type": "blob", "Mode": "33188"} | facts
