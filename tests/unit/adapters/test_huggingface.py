"""What the Hugging Face adapter asks, and how it reads every kind of answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import responses

from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.errors import ConfigurationFault, HubFault, Verdict
from gpustack_delivery.ports import Hub
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.manifest import Entry

HUB = "https://hub.example"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODELS = f"{HUB}/api/models/org/model"
TREE = f"{MODELS}/tree/{COMMIT}"
TOKEN = Token("hf_canary")
BLOB = "a" * 40
SHA256 = "b" * 64


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Give the adapter over an endpoint that exists only in these tests."""
    http = Http(environment={})
    yield HuggingFace(HUB + "/", http)
    http.close()


@pytest.fixture
def web() -> Iterator[responses.RequestsMock]:
    """Give the web that the adapter sees; every answer in it must be used."""
    with responses.RequestsMock() as web:
        yield web


def file(path: str, **more: Any) -> dict[str, Any]:
    """Return a tree entry of a plain file."""
    return {"type": "file", "oid": BLOB, "size": 3, "path": path, **more}


def large(path: str, oid: str = SHA256, size: int = 3) -> dict[str, Any]:
    """Return a tree entry of a file in large file storage."""
    return file(path, lfs={"oid": oid, "size": size, "pointerSize": 130})


CALLS: dict[str, Callable[[Hub], object]] = {
    "resolve": lambda hub: hub.resolve("org/model", "main", TOKEN),
    "list_tree": lambda hub: hub.list_tree("org/model", COMMIT, TOKEN),
    "probe": lambda hub: hub.probe("org/model", COMMIT, TOKEN),
}
FIRST = {"resolve": f"{MODELS}/revision/main", "list_tree": TREE, "probe": TREE}


def verdict(call: Callable[[Hub], object], hub: Hub) -> Verdict:
    """Return the verdict a call ends with; its texts must not hold the token or a body."""
    with pytest.raises(HubFault) as caught:
        call(hub)
    said = f"{caught.value} {caught.value.detail}"
    assert "canary" not in said
    assert "innards" not in said
    return caught.value.verdict


def test_revision_becomes_a_commit(hub: Hub, web: responses.RequestsMock) -> None:
    """A revision with slashes is one segment of the path, and the token goes along."""
    web.get(f"{MODELS}/revision/refs%2Fpr%2F1", json={"sha": COMMIT, "id": "org/model"})
    assert hub.resolve("org/model", "refs/pr/1", TOKEN) == COMMIT
    assert web.calls[0].request.url == f"{MODELS}/revision/refs%2Fpr%2F1"
    assert web.calls[0].request.headers["Authorization"] == "Bearer hf_canary"


def test_no_token_no_header(hub: Hub, web: responses.RequestsMock) -> None:
    """Without a credential none is sent."""
    web.get(f"{MODELS}/revision/main", json={"sha": COMMIT})
    hub.resolve("org/model", "main", None)
    assert "Authorization" not in web.calls[0].request.headers


@pytest.mark.parametrize(
    "body",
    [b"innards <html>", b"", b"[]", b"null", b'{"sha": "0123456"}', b'{"sha": null}', b"{}",
     json.dumps({"sha": COMMIT.upper()}).encode(), b"[" * 100_000, b"\xff\xfe"],
    ids=range(10),
)  # fmt: skip
def test_answer_without_a_commit_is_unavailable(
    hub: Hub, web: responses.RequestsMock, body: bytes
) -> None:
    """Anything but a full commit in JSON is no answer."""
    web.get(f"{MODELS}/revision/main", body=body)
    assert verdict(CALLS["resolve"], hub) is Verdict.SOURCE_UNAVAILABLE


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "RevisionNotFound", Verdict.REVISION_NOT_FOUND),
        (404, "RepoNotFound", Verdict.ACCESS_DENIED),
        (404, "", Verdict.ACCESS_DENIED),
        (401, "", Verdict.ACCESS_DENIED),
        (401, "RevisionNotFound", Verdict.ACCESS_DENIED),
        (403, "", Verdict.ACCESS_DENIED),
        (403, "GatedRepo", Verdict.ACCESS_DENIED),
        (500, "GatedRepo", Verdict.ACCESS_DENIED),
        (201, "", Verdict.SOURCE_UNAVAILABLE),
        (304, "", Verdict.SOURCE_UNAVAILABLE),
        (400, "", Verdict.SOURCE_UNAVAILABLE),
        (429, "", Verdict.SOURCE_UNAVAILABLE),
        (500, "", Verdict.SOURCE_UNAVAILABLE),
        (503, "RevisionNotFound", Verdict.SOURCE_UNAVAILABLE),
    ],
)
def test_refusals(
    hub: Hub, web: responses.RequestsMock, name: str, status: int, code: str, expected: Verdict
) -> None:
    """Each call reads status and error code by the same table."""
    headers = {"X-Error-Code": code} if code else {}
    web.get(FIRST[name], status=status, headers=headers, body="innards hf_canary")
    assert verdict(CALLS[name], hub) is expected


@pytest.mark.parametrize("name", CALLS)
def test_broken_transport_is_unavailable(hub: Hub, web: responses.RequestsMock, name: str) -> None:
    """A hub that cannot be reached is told in few words, without its address."""
    web.get(FIRST[name], body=requests.ConnectionError("innards of hub.example"))
    with pytest.raises(HubFault, match=r"^a connection failure$") as caught:
        CALLS[name](hub)
    assert caught.value.verdict is Verdict.SOURCE_UNAVAILABLE


def test_tree_becomes_entries(hub: Hub, web: responses.RequestsMock) -> None:
    """Plain files have git's id, large ones their SHA-256; directories are passed over."""
    folder = {"type": "directory", "oid": BLOB, "size": 0, "path": "a"}
    tree = [file("config.json"), folder, large("a/w.safetensors"), file("é 🤖#?%41+")]
    web.get(TREE, json=tree, match=[responses.matchers.query_param_matcher({"recursive": "true"})])
    assert hub.list_tree("org/model", COMMIT, TOKEN) == (
        Entry("config.json", 3, f"gitsha1:{BLOB}"),
        Entry("a/w.safetensors", 3, f"sha256:{SHA256}"),
        Entry("é 🤖#?%41+", 3, f"gitsha1:{BLOB}"),
    )


@pytest.mark.parametrize(
    "link", [f"{TREE}?recursive=true&cursor=2", f"{TREE.removeprefix(HUB)}?cursor=2", "?cursor=2"]
)
def test_every_page_is_read(hub: Hub, web: responses.RequestsMock, link: str) -> None:
    """The next page is found by an absolute or a relative link, and gets the token too."""
    headers = {"Link": f'<{HUB}/first>; rel="first", <{link}>; rel="next"'}
    web.get(TREE, json=[file("1")], headers=headers)
    web.get(TREE, json=[file("2")], headers={"Link": f'<{HUB}>; rel="prev"'})
    entries = hub.list_tree("org/model", COMMIT, TOKEN)
    assert [entry.path for entry in entries] == ["1", "2"]
    assert "cursor=2" in str(web.calls[1].request.url)
    assert web.calls[1].request.headers["Authorization"] == "Bearer hf_canary"


@pytest.mark.parametrize(
    "link",
    ["<https://elsewhere.example/x>; rel=next", "<http://hub.example/x>; rel=next",
     "<https://hub.example:8443/x>; rel=next", "<//elsewhere.example/x>; rel=next",
     "<ftp://hub.example/x>; rel=next", "<https://[hub/x>; rel=next", "rubbish"],
)  # fmt: skip
def test_next_page_elsewhere_is_refused(hub: Hub, web: responses.RequestsMock, link: str) -> None:
    """A page on another host, port or scheme, or an unreadable link, ends the listing unasked."""
    web.get(TREE, json=[file("1")], headers={"Link": link})
    assert verdict(CALLS["list_tree"], hub) is Verdict.SOURCE_UNAVAILABLE
    assert len(web.calls) == 1


def test_redirected_listing_cannot_call_the_token_back(
    hub: Hub, web: responses.RequestsMock
) -> None:
    """A page served by another host does not lead the token to that host by a relative link."""
    web.get(TREE, status=302, headers={"Location": "https://mirror.example/tree"})
    web.get("https://mirror.example/tree", json=[file("1")], headers={"Link": "<?c=2>; rel=next"})
    assert verdict(CALLS["list_tree"], hub) is Verdict.SOURCE_UNAVAILABLE
    assert "Authorization" not in web.calls[1].request.headers
    assert len(web.calls) == 2


def test_failing_page_fails_the_listing(hub: Hub, web: responses.RequestsMock) -> None:
    """A listing is whole or none."""
    web.get(TREE, json=[file("1")], headers={"Link": "<?cursor=2>; rel=next"})
    web.get(TREE, status=502)
    assert verdict(CALLS["list_tree"], hub) is Verdict.SOURCE_UNAVAILABLE


def test_listing_that_never_ends_is_too_large(hub: Hub, web: responses.RequestsMock) -> None:
    """Entries are capped, directories counted among them."""
    page = [{"type": "directory", "path": "d", "oid": BLOB, "size": 0}] * 30_000
    for _ in range(4):
        web.get(TREE, json=page, headers={"Link": "<?cursor=2>; rel=next"})
    assert verdict(CALLS["list_tree"], hub) is Verdict.MANIFEST_TOO_LARGE


def test_huge_page_is_unavailable(hub: Hub, web: responses.RequestsMock) -> None:
    """A body over 16 MiB is not read to its end."""
    web.get(TREE, body=b" " * ((16 << 20) + 1))
    assert verdict(CALLS["list_tree"], hub) is Verdict.SOURCE_UNAVAILABLE


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "submodule", "path": "x", "oid": BLOB, "size": 0}, Verdict.INVALID_MANIFEST),
        (large("x", size=4), Verdict.INVALID_MANIFEST),
        (large("x", oid="*" * 64), Verdict.ACCESS_DENIED),
        ({"type": "file", "path": "x", "size": 3}, Verdict.SOURCE_UNAVAILABLE),
        (file("x", size="3"), Verdict.SOURCE_UNAVAILABLE),
        (file("x", size=True), Verdict.SOURCE_UNAVAILABLE),
        (file("x", lfs=[]), Verdict.SOURCE_UNAVAILABLE),
        ({**file("x"), "path": None}, Verdict.SOURCE_UNAVAILABLE),
        ("text", Verdict.SOURCE_UNAVAILABLE),
        (None, Verdict.SOURCE_UNAVAILABLE),
    ],
)
def test_odd_entries(
    hub: Hub, web: responses.RequestsMock, item: object, expected: Verdict
) -> None:
    """An entry that is no file or directory, contradicts itself or is masked ends the listing."""
    web.get(TREE, json=[file("a"), item])
    assert verdict(CALLS["list_tree"], hub) is expected


@pytest.mark.parametrize("status", [200, 204, 302, 307, 308])
def test_probe_asks_for_the_first_root_file(
    hub: Hub, web: responses.RequestsMock, status: int
) -> None:
    """Any success or redirect of one file's head is access; the redirect is not followed."""
    folder = {"type": "directory", "path": "a", "oid": BLOB, "size": 0}
    web.get(TREE, json=[folder, file("z"), file("b #1")])
    url = f"{HUB}/org/model/resolve/{COMMIT}/b%20%231"
    web.head(url, status=status, headers={"Location": "https://cdn.example/signed"})
    hub.probe("org/model", COMMIT, TOKEN)
    assert len(web.calls) == 2


def test_probe_without_root_files_takes_any(hub: Hub, web: responses.RequestsMock) -> None:
    """When the root holds only directories, the whole listing names a file."""
    folder = {"type": "directory", "path": "a", "oid": BLOB, "size": 0}
    web.get(TREE, json=[folder], match=[responses.matchers.query_param_matcher({})])
    web.get(f"{TREE}?recursive=true", json=[folder, file("a/b")])
    gated = {"X-Error-Code": "GatedRepo"}
    web.head(f"{HUB}/org/model/resolve/{COMMIT}/a/b", status=403, headers=gated)
    assert verdict(CALLS["probe"], hub) is Verdict.ACCESS_DENIED


def test_probe_of_an_empty_commit(hub: Hub, web: responses.RequestsMock) -> None:
    """A commit without files has nothing to probe."""
    web.get(TREE, json=[])
    web.get(TREE, json=[])
    assert verdict(CALLS["probe"], hub) is Verdict.EMPTY_MANIFEST


def test_token_check(hub: Hub, web: responses.RequestsMock) -> None:
    """A token is known, unknown, or the hub does not say."""
    whoami = f"{HUB}/api/whoami-v2"
    web.get(whoami, json={"name": "ann"})
    assert hub.accepts(TOKEN)
    web.replace("GET", whoami, status=401)
    assert not hub.accepts(TOKEN)
    web.replace("GET", whoami, status=503)
    assert verdict(lambda hub: hub.accepts(TOKEN), hub) is Verdict.SOURCE_UNAVAILABLE


def test_token_that_cannot_be_sent_is_not_accepted(hub: Hub) -> None:
    """A token with a line end is invalid without asking, and denied everywhere else."""
    broken = Token("hf_canary\n")
    assert not hub.accepts(broken)
    denied = verdict(lambda hub: hub.resolve("org/model", "main", broken), hub)
    assert denied is Verdict.ACCESS_DENIED


@pytest.mark.parametrize(
    ("path", "escaped"),
    [
        ("a/b.bin", "a/b.bin"),
        ("a b#c?d%41+&=;@:é", "a%20b%23c%3Fd%2541%2B%26%3D%3B%40%3A%C3%A9"),
        ("e\u0301", "e%CC%81"),
        ("..a/.b./~c", "..a/.b./~c"),
        ("🤖\\x", "%F0%9F%A4%96%5Cx"),
    ],
)
def test_file_urls_are_escaped_once(hub: Hub, path: str, escaped: str) -> None:
    """Each segment is escaped by itself, and nothing is normalized."""
    assert hub.file_url("org/model", COMMIT, path) == f"{HUB}/org/model/resolve/{COMMIT}/{escaped}"


@pytest.mark.parametrize(
    "endpoint", ["", "hub.example", "ftp://hub.example", "https://", "https://u:p@hub.example",
                 "https://hub.example/?x", "https://hub.example/#x", "https://[hub"]
)  # fmt: skip
def test_endpoint_that_cannot_be_used_is_refused(endpoint: str) -> None:
    """An endpoint must be an http or https URL with a host and nothing secret in it."""
    with pytest.raises(ConfigurationFault, match="endpoint"):
        HuggingFace(endpoint, Http(environment={}))


def test_endpoint_keeps_its_prefix() -> None:
    """A mirror under a path is asked under that path."""
    hub: Hub = HuggingFace("http://mirror.example/hf/", Http(environment={}))
    assert hub.file_url("o/m", COMMIT, "f") == f"http://mirror.example/hf/o/m/resolve/{COMMIT}/f"
