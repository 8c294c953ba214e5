"""The ModelScope hub's API, with the cross-check that its answers about revisions need.

Every JSON answer is an envelope of `Code`, `Message` and `Data`; only HTTP 200 with Code 200 is a
success. For a revision it does not know the hub may silently answer for its default branch, so a
branch or tag is also looked up among the repository's git refs, and both must name one commit.

    Code 10990101004                        RevisionNotFound
    Code 10010205001 or 10010200001         AccessDenied
    401, 403, 404                           AccessDenied
    everything else, and no answer          SourceUnavailable

The worker resolves and revalidates through it, the node plugin lists and downloads.
Rules: AR-MS-01, AR-MS-02, AR-MS-03.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import urlencode

from gpustack_delivery.adapters.git_refs import advertised_commit
from gpustack_delivery.adapters.http import Answer, CredentialFault, Http
from gpustack_delivery.adapters.hub_api import (
    INACCESSIBLE,
    MAX_ENTRIES,
    call,
    checked_endpoint,
    decode,
    escaped_repository,
    invalid,
    is_commit,
    too_large,
    unavailable,
)
from gpustack_delivery.errors import HubFault, Verdict
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry

PAGE_ENTRIES: Final = 3000
"""A listing of so many entries has been cut off; it is taken again directory by directory."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_NO_REVISION: Final = 10990101004
_NO_ACCESS: Final = frozenset({10010205001, 10010200001})


class ModelScope:
    """One endpoint's hub; stateless, safe for any number of threads.

    Args:
        endpoint: an http or https URL with a host; a path prefix is kept.
        http: how requests are made.

    Raises:
        ConfigurationFault: the endpoint is no such URL.
    """

    def __init__(self, endpoint: str, http: Http) -> None:
        self._endpoint = checked_endpoint(endpoint)
        self._http = http

    def resolve(self, repository: str, revision: str, token: Token | None) -> str:
        """Return the commit of a branch or tag, on which hub and git agree; a commit is itself."""
        if is_commit(revision):
            return revision
        query = urlencode({"Ref": revision, "PageSize": 1})
        data = self._data(f"{self._model(repository)}/commits?{query}", token)
        commits = data.get("Commit")
        if not isinstance(commits, list) or not commits:
            raise HubFault(Verdict.REVISION_NOT_FOUND, "the repository has no such revision")
        said = commits[0].get("Id") if isinstance(commits[0], dict) else None
        if not is_commit(said):
            raise unavailable("the hub answered without a full commit")
        git = advertised_commit(
            self._http, f"{self._endpoint}/{escaped_repository(repository)}.git", revision, token
        )
        if git != said:
            raise unavailable(f"the hub names commit {said}, git names {git}")
        return str(said)

    def list_tree(self, repository: str, commit: str, token: Token | None) -> tuple[Entry, ...]:
        """Return every file at a commit; a listing that was cut off is taken by directories."""
        found: list[Entry] = []
        directories = [""]
        counted = 0
        while directories:
            root = directories.pop()
            items = self._items(repository, commit, token, root, deep=True)
            if len(items) >= PAGE_ENTRIES:
                items = self._items(repository, commit, token, root, deep=False)
                if len(items) >= PAGE_ENTRIES:
                    raise unavailable(f"a directory has {PAGE_ENTRIES} entries or more")
                directories += [_path(item) for item in items if _kind(item) == "tree"]
            counted += max(1, len(items))  # so that no circle of directories goes on for ever
            if counted > MAX_ENTRIES:
                raise too_large()
            found += [_entry(item) for item in items if _kind(item) == "blob"]
        return tuple(found)

    def probe(self, repository: str, commit: str, token: Token | None) -> None:
        """Ask for the head of one file: what a download would meet, without following it."""
        items = self._items(repository, commit, token, "", deep=False)
        paths = [_path(item) for item in items if _kind(item) == "blob"]
        if not paths:
            paths = [entry.path for entry in self.list_tree(repository, commit, token)]
        if not paths:
            raise HubFault(Verdict.EMPTY_MANIFEST, "the commit holds no file")
        url = self.file_url(repository, commit, min(paths))
        answer = call(self._http, "HEAD", url, token, follow=False)
        if answer.status != 200 and not 300 <= answer.status < 400:
            raise _refusal(answer)

    def accepts(self, token: Token) -> bool:
        """Say whether the hub knows the token."""
        try:
            url = f"{self._endpoint}/openapi/v1/users/me"
            answer = call(self._http, "GET", url, token, follow=False)
        except HubFault as fault:
            if isinstance(fault.__cause__, CredentialFault):
                return False
            raise
        if answer.status in {401, 403}:
            return False
        if answer.status != 200:
            raise unavailable(f"HTTP {answer.status}")
        return True

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """Return where a file is downloaded."""
        query = urlencode({"Revision": commit, "FilePath": path}, errors="surrogatepass")
        return f"{self._model(repository)}/repo?{query}"

    def _model(self, repository: str) -> str:
        return f"{self._endpoint}/api/v1/models/{escaped_repository(repository)}"

    def _items(
        self, repository: str, commit: str, token: Token | None, root: str, *, deep: bool
    ) -> list[Any]:
        query = {"Revision": commit}
        if root:
            query["Root"] = root
        if deep:
            query["Recursive"] = "true"
        encoded = urlencode(query, errors="surrogatepass")
        data = self._data(f"{self._model(repository)}/repo/files?{encoded}", token)
        items = data.get("Files")
        if items is None:
            return []
        if not isinstance(items, list):
            raise unavailable("the hub's listing cannot be read")
        return items

    def _data(self, url: str, token: Token | None) -> dict[str, Any]:
        answer = call(self._http, "GET", url, token)
        if answer.status != 200 or _code(answer) != 200:
            raise _refusal(answer)
        data = decode(answer, dict).get("Data")
        if not isinstance(data, dict):
            raise unavailable("the hub's answer holds no data")
        return data


def _code(answer: Answer) -> int:
    """Return the envelope's code, 0 when there is no envelope."""
    try:
        code = json.loads(answer.body)["Code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    return code if type(code) is int else 0


def _refusal(answer: Answer) -> HubFault:
    code = _code(answer)
    said = f"HTTP {answer.status}, code {code}" if code else f"HTTP {answer.status}"
    if code == _NO_REVISION:
        return HubFault(Verdict.REVISION_NOT_FOUND, "the repository has no such revision")
    if code in _NO_ACCESS or answer.status in {401, 403, 404}:
        return HubFault(Verdict.ACCESS_DENIED, f"{INACCESSIBLE}, {said}")
    return unavailable(said)


def _kind(item: Any) -> str:
    """Return `tree` or `blob`; anything else cannot be delivered."""
    kind = item.get("Type") if isinstance(item, dict) else None
    if kind not in ("tree", "blob"):  # a tuple: what stands there may not even be hashable
        raise invalid(
            f"the listing holds an entry that is neither file nor directory: {kind!a:.40}"
        )
    return str(kind)


def _path(item: Any) -> str:
    path = item.get("Path")
    if not isinstance(path, str) or not path:
        raise unavailable("the hub's listing cannot be read")
    return path


def _entry(item: Any) -> Entry:
    path, size, digest = _path(item), item.get("Size"), item.get("Sha256")
    if type(size) is not int:
        raise unavailable("the hub's listing cannot be read")
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise invalid(f"the listing gives {path!a:.200} no SHA-256")
    return Entry(path, size, f"sha256:{digest}")
