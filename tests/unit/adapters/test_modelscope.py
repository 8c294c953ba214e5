"""What the ModelScope adapter asks, how it reads every answer, and how git keeps it honest."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import responses
from responses.matchers import query_param_matcher

from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.modelscope import ModelScope
from gpustack_delivery.errors import ConfigurationFault, HubFault, Verdict
from gpustack_delivery.ports import Hub
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry

HUB = "https://scope.example"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
MODELS = f"{HUB}/api/v1/models/org/model"
REFS = f"{HUB}/org/model.git/info/refs"
MEDIA = "application/x-git-upload-pack-advertisement"
TOKEN = Token("ms_canary")
SHA256 = "b" * 64


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Give the adapter over an endpoint that exists only in these tests."""
    http = Http(environment={})
    yield ModelScope(HUB, http)
    http.close()


@pytest.fixture
def web() -> Iterator[responses.RequestsMock]:
    """Give the web that the adapter sees; every answer in it must be used."""
    with responses.RequestsMock() as web:
        yield web


def envelope(data: object, code: int = 200) -> dict[str, object]:
    """Return a JSON answer's envelope."""
    return {"Code": code, "Message": "innards", "Data": data, "Success": code == 200}


def commits(*ids: object) -> dict[str, object]:
    """Return the answer of the commits call."""
    return envelope({"Commit": [{"Id": one} for one in ids]})


def blob(path: str, **more: Any) -> dict[str, Any]:
    """Return a listing's entry of a file."""
    return {"Type": "blob", "Path": path, "Size": 3, "Sha256": SHA256, **more}


def tree(path: str) -> dict[str, Any]:
    """Return a listing's entry of a directory."""
    return {"Type": "tree", "Path": path, "Size": 0, "Sha256": ""}


def advertise(*lines: str, flush: bool = True) -> bytes:
    """Return git's answer with some refs, each given as `<commit> <name>`."""
    packets = ["# service=git-upload-pack\n"]
    body = b"".join(f"{len(line) + 4:04x}{line}".encode() for line in packets) + b"0000"
    for number, line in enumerate(lines):
        text = line + ("\0multi_ack thin-pack" if number == 0 else "") + "\n"
        body += f"{len(text) + 4:04x}{text}".encode()
    return body + (b"0000" if flush else b"")


def verdict(call: Callable[[], object]) -> Verdict:
    """Return the verdict a call ends with; its texts hold neither the token nor a body."""
    with pytest.raises(HubFault) as caught:
        call()
    said = f"{caught.value} {caught.value.detail}"
    assert "canary" not in said
    assert "innards" not in said
    return caught.value.verdict


def test_commit_is_itself(hub: Hub) -> None:
    """A full commit needs no request."""
    assert hub.resolve("org/model", COMMIT, TOKEN) == COMMIT


@pytest.mark.parametrize(
    "refs",
    [
        [f"{COMMIT} HEAD", f"{COMMIT} refs/heads/dev"],
        [f"{OTHER} refs/heads/dev", f"{COMMIT} refs/tags/dev"],
        [f"{OTHER} refs/heads/dev", f"{OTHER} refs/tags/dev", f"{COMMIT} refs/tags/dev^{{}}"],
    ],
    ids=["branch", "tag before branch", "peeled before tag"],
)
def test_hub_and_git_agree(hub: Hub, web: responses.RequestsMock, refs: list[str]) -> None:
    """A branch or tag is the commit that hub and git both name; git gets the token its own way."""
    query = {"Ref": "dev", "PageSize": "1"}
    web.get(f"{MODELS}/commits", json=commits(COMMIT), match=[query_param_matcher(query)])
    web.get(REFS, body=advertise(*refs), content_type=MEDIA)
    assert hub.resolve("org/model", "dev", TOKEN) == COMMIT
    git = web.calls[1].request
    assert git.headers["User-Agent"] == "git/2.39"
    assert git.headers["Accept"] == MEDIA
    credentials = b64encode(b"oauth2:ms_canary").decode()
    assert git.headers["Authorization"] == f"Basic {credentials}"
    assert git.url == f"{REFS}?service=git-upload-pack"


@pytest.mark.parametrize(
    "refs",
    [
        [f"{OTHER} refs/heads/dev"],
        [f"{COMMIT} HEAD", f"{COMMIT} refs/heads/master"],
        [f"{COMMIT} refs/tags/dev", f"{OTHER} refs/tags/dev^{{}}"],
        [f"{COMMIT} refs/heads/device"],
    ],
    ids=["another commit", "unknown ref", "tag object", "prefix"],
)
def test_disagreement_is_unavailable(
    hub: Hub, web: responses.RequestsMock, refs: list[str]
) -> None:
    """A hub that answers for another commit than git does, or for a ref git lacks, is not used."""
    web.get(f"{MODELS}/commits", json=commits(COMMIT))
    web.get(REFS, body=advertise(*refs), content_type=MEDIA)
    assert verdict(lambda: hub.resolve("org/model", "dev", None)) is Verdict.SOURCE_UNAVAILABLE


def test_disagreement_names_both_commits(hub: Hub, web: responses.RequestsMock) -> None:
    """The message lets a person see which side moved."""
    web.get(f"{MODELS}/commits", json=commits(COMMIT))
    web.get(REFS, body=advertise(f"{OTHER} refs/heads/dev"), content_type=MEDIA)
    with pytest.raises(HubFault, match=f"{COMMIT}.*{OTHER}"):
        hub.resolve("org/model", "dev", None)


@pytest.mark.parametrize(
    "body",
    [b"", b"0000", advertise(), b"00", b"zzzz", b"0003", b"0002", b"00ff123",
     advertise("nonsense"), advertise(f"{COMMIT}"), advertise(f"{COMMIT.upper()} refs/heads/dev"),
     b"<html>innards</html>"],
    ids=range(12),
)  # fmt: skip
def test_unreadable_advertisement_is_unavailable(
    hub: Hub, web: responses.RequestsMock, body: bytes
) -> None:
    """Truncated packets, odd lines and no refs at all are no word of git's."""
    web.get(f"{MODELS}/commits", json=commits(COMMIT))
    web.get(REFS, body=body, content_type=MEDIA)
    assert verdict(lambda: hub.resolve("org/model", "dev", None)) is Verdict.SOURCE_UNAVAILABLE


def test_page_in_place_of_git_is_unavailable(hub: Hub, web: responses.RequestsMock) -> None:
    """An answer of another type is not parsed, however it looks."""
    web.get(f"{MODELS}/commits", json=commits(COMMIT))
    web.get(REFS, body=advertise(f"{COMMIT} refs/heads/dev"), content_type="text/html")
    assert verdict(lambda: hub.resolve("org/model", "dev", None)) is Verdict.SOURCE_UNAVAILABLE


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_git_failure_is_unavailable(hub: Hub, web: responses.RequestsMock, status: int) -> None:
    """A git side that refuses is a hub in trouble, not an artifact that lost its access."""
    web.get(f"{MODELS}/commits", json=commits(COMMIT))
    web.get(REFS, status=status)
    assert verdict(lambda: hub.resolve("org/model", "dev", None)) is Verdict.SOURCE_UNAVAILABLE


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (commits(), Verdict.REVISION_NOT_FOUND),
        (envelope({"Commit": None}), Verdict.REVISION_NOT_FOUND),
        (commits("0123"), Verdict.SOURCE_UNAVAILABLE),
        (commits(None), Verdict.SOURCE_UNAVAILABLE),
        (envelope({"Commit": ["x"]}), Verdict.SOURCE_UNAVAILABLE),
        (envelope([]), Verdict.SOURCE_UNAVAILABLE),
        (envelope(None), Verdict.SOURCE_UNAVAILABLE),
    ],
)
def test_odd_commits(
    hub: Hub, web: responses.RequestsMock, answer: object, expected: Verdict
) -> None:
    """No commit means no revision; anything but a full one is no answer."""
    web.get(f"{MODELS}/commits", json=answer)
    assert verdict(lambda: hub.resolve("org/model", "dev", None)) is expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (200, 10990101004, Verdict.REVISION_NOT_FOUND),
        (404, 10990101004, Verdict.REVISION_NOT_FOUND),
        (200, 10010205001, Verdict.ACCESS_DENIED),
        (500, 10010200001, Verdict.ACCESS_DENIED),
        (401, 0, Verdict.ACCESS_DENIED),
        (403, 0, Verdict.ACCESS_DENIED),
        (404, 0, Verdict.ACCESS_DENIED),
        (404, 200, Verdict.ACCESS_DENIED),
        (200, 10099999999, Verdict.SOURCE_UNAVAILABLE),
        (429, 0, Verdict.SOURCE_UNAVAILABLE),
        (500, 0, Verdict.SOURCE_UNAVAILABLE),
        (500, 200, Verdict.SOURCE_UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("name", ["resolve", "list_tree", "probe"])
def test_refusals(
    hub: Hub, web: responses.RequestsMock, name: str, status: int, code: int, expected: Verdict
) -> None:
    """The envelope's code goes before the status, in every call."""
    revision = "dev" if name == "resolve" else COMMIT
    url = f"{MODELS}/commits" if name == "resolve" else f"{MODELS}/repo/files"
    web.get(url, json=envelope({}, code) if code else "innards", status=status)
    assert verdict(lambda: getattr(hub, name)("org/model", revision, TOKEN)) is expected


def test_broken_transport_is_unavailable(hub: Hub, web: responses.RequestsMock) -> None:
    """A hub that cannot be reached is told in few words."""
    web.get(f"{MODELS}/repo/files", body=requests.ConnectionError("innards"))
    assert verdict(lambda: hub.list_tree("org/model", COMMIT, None)) is Verdict.SOURCE_UNAVAILABLE


def test_listing_becomes_entries(hub: Hub, web: responses.RequestsMock) -> None:
    """Every file has its SHA-256; directories are passed over."""
    query = {"Revision": COMMIT, "Recursive": "true"}
    answer = envelope({"Files": [tree("a"), blob("a/b c"), blob("d")]})
    web.get(f"{MODELS}/repo/files", json=answer, match=[query_param_matcher(query)])
    assert hub.list_tree("org/model", COMMIT, TOKEN) == (
        Entry("a/b c", 3, f"sha256:{SHA256}"),
        Entry("d", 3, f"sha256:{SHA256}"),
    )
    assert web.calls[0].request.headers["Authorization"] == "Bearer ms_canary"


def test_cut_listing_is_taken_by_directories(hub: Hub, web: responses.RequestsMock) -> None:
    """A listing of 3000 entries is dropped; each directory is then listed by itself."""
    files = f"{MODELS}/repo/files"

    def level(entries: list[dict[str, Any]], **query: str) -> None:
        matches = [query_param_matcher({"Revision": COMMIT, **query})]
        web.get(files, json=envelope({"Files": entries}), match=matches)

    level([blob(f"x{n}") for n in range(3000)], Recursive="true")
    level([blob("top"), tree("a"), tree("b")])
    level([blob(f"a/{n}") for n in range(3000)], Recursive="true", Root="a")
    level([blob("a/0"), tree("a/deep")], Root="a")
    level([blob("a/deep/1")], Recursive="true", Root="a/deep")
    level([blob("b/2")], Recursive="true", Root="b")
    entries = hub.list_tree("org/model", COMMIT, None)
    assert {entry.path for entry in entries} == {"top", "a/0", "a/deep/1", "b/2"}


def test_directory_of_3000_is_unavailable(hub: Hub, web: responses.RequestsMock) -> None:
    """Where even one level is cut off, the listing cannot be had."""
    web.get(f"{MODELS}/repo/files", json=envelope({"Files": [blob(f"{n}") for n in range(3000)]}))
    assert verdict(lambda: hub.list_tree("org/model", COMMIT, None)) is Verdict.SOURCE_UNAVAILABLE


def test_directories_that_lead_in_a_circle_come_to_an_end(
    hub: Hub, web: responses.RequestsMock
) -> None:
    """A hub may list a directory within itself for ever; entries are counted, directories too."""
    cut, circle = [tree(f"{n}") for n in range(3000)], [tree(f"{n}") for n in range(2999)]
    files, query = f"{MODELS}/repo/files", {"Recursive": "true"}
    deep = query_param_matcher(query, strict_match=False)
    web.get(files, json=envelope({"Files": cut}), match=[deep])
    web.get(files, json=envelope({"Files": circle}))
    assert verdict(lambda: hub.list_tree("org/model", COMMIT, None)) is Verdict.MANIFEST_TOO_LARGE


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({**blob("x"), "Type": "commit"}, Verdict.INVALID_MANIFEST),
        (blob("x", Sha256=""), Verdict.INVALID_MANIFEST),
        (blob("x", Sha256="B" * 64), Verdict.INVALID_MANIFEST),
        (blob("x", Sha256=None), Verdict.INVALID_MANIFEST),
        (None, Verdict.INVALID_MANIFEST),
        (blob("x", Size="3"), Verdict.SOURCE_UNAVAILABLE),
        (blob("x", Path=None), Verdict.SOURCE_UNAVAILABLE),
    ],
)
def test_odd_entries(
    hub: Hub, web: responses.RequestsMock, item: object, expected: Verdict
) -> None:
    """An entry without a digest, or of another kind, ends the listing."""
    web.get(f"{MODELS}/repo/files", json=envelope({"Files": [item]}))
    assert verdict(lambda: hub.list_tree("org/model", COMMIT, None)) is expected


def test_empty_listing(hub: Hub, web: responses.RequestsMock) -> None:
    """A commit without files lists none, and there is nothing to probe."""
    web.get(f"{MODELS}/repo/files", json=envelope({"Files": None}))
    assert hub.list_tree("org/model", COMMIT, None) == ()
    assert verdict(lambda: hub.probe("org/model", COMMIT, None)) is Verdict.EMPTY_MANIFEST


@pytest.mark.parametrize(
    ("status", "passes"), [(200, True), (302, True), (204, False), (403, False)]
)
def test_probe(hub: Hub, web: responses.RequestsMock, status: int, *, passes: bool) -> None:
    """One file's head tells: 200 or a redirect, which is not followed, is access."""
    web.get(f"{MODELS}/repo/files", json=envelope({"Files": [tree("a"), blob("z"), blob("b&c")]}))
    query = {"Revision": COMMIT, "FilePath": "b&c"}
    headers = {"Location": "https://cdn.example/signed"}
    web.head(f"{MODELS}/repo", status=status, headers=headers, match=[query_param_matcher(query)])
    if passes:
        hub.probe("org/model", COMMIT, TOKEN)
    else:
        verdict(lambda: hub.probe("org/model", COMMIT, TOKEN))


def test_token_check(hub: Hub, web: responses.RequestsMock) -> None:
    """A token is known, unknown, or the hub does not say; redirects say nothing."""
    url = f"{HUB}/openapi/v1/users/me"
    web.get(url, json={})
    assert hub.accepts(TOKEN)
    for status in (401, 403):
        web.replace("GET", url, status=status)
        assert not hub.accepts(TOKEN)
    for status in (302, 500):
        web.replace("GET", url, status=status)
        assert verdict(lambda: hub.accepts(TOKEN)) is Verdict.SOURCE_UNAVAILABLE
    assert not hub.accepts(Token("a\nb"))


def test_file_urls_escape_in_the_query(hub: Hub) -> None:
    """Revision and path are query values, escaped as such."""
    url = hub.file_url("org/model", COMMIT, "a b/ü&#?%41.bin")
    path = "a+b%2F%C3%BC%26%23%3F%2541.bin"
    assert url == f"{MODELS}/repo?Revision={COMMIT}&FilePath={path}"


def test_endpoint_that_cannot_be_used_is_refused() -> None:
    """An endpoint must be an http or https URL with a host."""
    with pytest.raises(ConfigurationFault):
        ModelScope("scope.example", Http(environment={}))
