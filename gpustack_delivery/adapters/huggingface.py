"""The Hugging Face hub's API, as far as artifacts need it: revisions, trees, access and file URLs.

Errors become a `Verdict` from the status and the hub's own error code alone; bodies and headers are
never repeated, because a proxy may have put anything there.

    404 with X-Error-Code RevisionNotFound        RevisionNotFound
    any status with X-Error-Code GatedRepo        AccessDenied
    401, 403, any other 404                       AccessDenied: missing and private look the same
    everything else, and no answer                SourceUnavailable

The worker resolves and revalidates through it, the node plugin lists and downloads.
Rules: AR-HF-01, AR-HF-02, AR-HF-03, NS-DL-03, NS-DL-10, NS-FR-02.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, urljoin

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
from gpustack_delivery.adapters.redirects import same_place
from gpustack_delivery.errors import HubFault, Verdict
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry

_LINK: Final = re.compile(r"<([^<>]*)>([^<]*)")
_NEXT: Final = re.compile(r';\s*rel\s*=\s*"?([^";]*)"?', re.IGNORECASE)
_MASKED: Final = "*" * 64


class HuggingFace:
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
        """Return the commit that a branch, tag or commit names now."""
        commit = decode(self._get(self._api(repository, "revision", revision), token), dict).get(
            "sha"
        )
        if not is_commit(commit):
            raise unavailable("the hub answered without a full commit")
        return str(commit)

    def list_tree(self, repository: str, commit: str, token: Token | None) -> tuple[Entry, ...]:
        """Return every file at a commit, from all pages of the recursive listing."""
        url = self._api(repository, "tree", commit) + "?recursive=true"
        found: list[Entry] = []
        counted = 0
        while url:
            answer = self._get(url, token)
            page = decode(answer, list)
            counted += max(1, len(page))  # so that empty pages cannot go on for ever either
            if counted > MAX_ENTRIES:
                raise too_large()
            found += [entry for item in page if (entry := _entry(item)) is not None]
            url = self._next_page(answer)
        return tuple(found)

    def probe(self, repository: str, commit: str, token: Token | None) -> None:
        """Ask for the head of one file: what a download would meet, without following it."""
        url = self.file_url(repository, commit, self._any_path(repository, commit, token))
        answer = self._call("HEAD", url, token)
        if not 200 <= answer.status < 400:
            raise _refusal(answer)

    def accepts(self, token: Token) -> bool:
        """Say whether the hub knows the token."""
        try:
            answer = self._call("GET", f"{self._endpoint}/api/whoami-v2", token)
        except HubFault as fault:
            if isinstance(fault.__cause__, CredentialFault):
                return False
            raise
        if answer.status == 401:
            return False
        if not 200 <= answer.status < 300:
            raise _refusal(answer)
        return True

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """Return where a file is downloaded, each segment of its path escaped once."""
        segments = "/".join(
            quote(segment, safe="", errors="surrogatepass") for segment in path.split("/")
        )
        return f"{self._endpoint}/{escaped_repository(repository)}/resolve/{commit}/{segments}"

    def _api(self, repository: str, kind: str, revision: str) -> str:
        revision = quote(revision, safe="")
        return f"{self._endpoint}/api/models/{escaped_repository(repository)}/{kind}/{revision}"

    def _any_path(self, repository: str, commit: str, token: Token | None) -> str:
        """Return a file's path: the first at the root when there is one, else the first of all."""
        page = decode(self._get(self._api(repository, "tree", commit), token), list)
        paths = [entry.path for item in page if (entry := _entry(item)) is not None]
        if not paths:
            paths = [entry.path for entry in self.list_tree(repository, commit, token)]
        if not paths:
            raise HubFault(Verdict.EMPTY_MANIFEST, "the commit holds no file")
        return min(paths)

    def _next_page(self, answer: Answer) -> str:
        """Return the URL of the following page, "" on the last one.

        It gets the token too, so it must be the endpoint's own, wherever this page came from.
        """
        target = _next_link(answer.headers.get("Link", ""))
        if not target:
            return ""
        try:
            url = urljoin(answer.url, target)
            same = same_place(self._endpoint, url)
        except (ValueError, KeyError):
            raise unavailable("the hub's link to the next page cannot be read") from None
        if not same:
            raise unavailable("the hub's next page is on another host")
        return url

    def _get(self, url: str, token: Token | None) -> Answer:
        answer = self._call("GET", url, token)
        if answer.status != 200:
            raise _refusal(answer)
        return answer

    def _call(self, method: str, url: str, token: Token | None) -> Answer:
        return call(self._http, method, url, token, follow=method == "GET")


def _refusal(answer: Answer) -> HubFault:
    code = answer.headers.get("X-Error-Code", "")
    said = f"HTTP {answer.status}"
    if answer.status == 404 and code == "RevisionNotFound":
        return HubFault(Verdict.REVISION_NOT_FOUND, "the repository has no such revision")
    if code == "GatedRepo":
        return HubFault(
            Verdict.ACCESS_DENIED,
            f"the repository is gated and this credential has no access, {said}",
        )
    if answer.status in {401, 403, 404}:
        return HubFault(Verdict.ACCESS_DENIED, f"{INACCESSIBLE}, {said}")
    return unavailable(said)


def _next_link(header: str) -> str:
    links = _LINK.findall(header)
    if header and not links:
        raise unavailable("the hub's link to the next page cannot be read")
    for target, parameters in links:
        if any("next" in rel.lower().split() for rel in _NEXT.findall(parameters)):
            return str(target)
    return ""


def _entry(item: Any) -> Entry | None:
    """Read one entry of a tree; None for a directory."""
    try:
        kind = item["type"]
        if kind == "directory":
            return None
        path, size, lfs = item["path"], item["size"], item.get("lfs")
        if kind != "file":
            raise invalid(
                f"the tree holds an entry that is neither file nor directory: {kind!r:.40}"
            )
        if not isinstance(path, str) or type(size) is not int:
            raise TypeError
        if lfs is None:
            return Entry(path, size, f"gitsha1:{item['oid']}")
        if lfs["oid"] == _MASKED:
            raise HubFault(
                Verdict.ACCESS_DENIED, "the repository is gated: its listing hides the digests"
            )
        if lfs["size"] != size:
            raise invalid(f"the tree gives {path!a:.200} two sizes")
        return Entry(path, size, f"sha256:{lfs['oid']}")
    except (TypeError, KeyError, AttributeError):
        raise unavailable("the hub's tree cannot be read") from None
