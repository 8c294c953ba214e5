"""The hub's HTTP interface, looked at without a client library in between."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from emulator.clock import ManualClock
from emulator.hubs import HubError, HuggingFaceHub, Options
from emulator.hubs.repository import Commit, Repository
from tests.emulator.hubs.conftest import ask

FILES = {
    ".gitattributes": b"*.bin filter=lfs\n",
    "config.json": b"{}\n",
    "model.bin": b"weights" * 1000,
    "sub/a.txt": b"a",
    "sub/deep/b.txt": b"b",
    "sub.txt": b"sorts between",
}


def head_of(repository: Repository) -> Commit:
    """Return what the main branch names."""
    commit = repository.resolve("main")
    assert commit is not None
    return commit


def pages(url: str) -> list[list[dict[str, Any]]]:
    """Return the pages of a listing, following `Link`."""
    found = []
    while url:
        answer = ask(url)
        assert answer.status == 200
        found.append(answer.json)
        match = re.fullmatch(r'<(.+)>; rel="next"', answer.headers.get("link", ""))
        url = match[1] if match else ""
    return found


def test_revision_names_a_commit(hub: HuggingFaceHub) -> None:
    """Branch, tag, pull request, full ref and commit resolve; a slash may be escaped or not."""
    repository = hub.add_repository("org/model", FILES)
    first = head_of(repository).id
    repository.point("refs/tags/v1", first)
    repository.point("refs/pr/1", first)
    second = repository.commit({"config.json": b"2"})
    repository.commit({"config.json": b"3"}, branch="feature/x")
    third = repository.resolve("feature/x")
    assert third is not None
    api = f"{hub.url}/api/models/org/model"
    expected = {
        "main": second,
        "refs%2Fheads%2Fmain": second,
        "v1": first,
        first: first,
        "refs%2Fpr%2F1": first,
        "refs/pr/1": first,
        "feature%2Fx": third.id,
    }
    for revision, commit in expected.items():
        assert ask(f"{api}/revision/{revision}").json["sha"] == commit
    assert ask(api).json["sha"] == second
    repository.point("refs/heads/main", first)
    assert ask(api).json["sha"] == first


@pytest.mark.parametrize("revision", ["none", "feature%2Fx", "0" * 40, "MAIN", "refs%2Fpr%2F2", ""])
def test_unknown_revision(hub: HuggingFaceHub, revision: str) -> None:
    """A revision that names nothing is 404 RevisionNotFound, on every endpoint."""
    hub.add_repository("org/model", FILES)
    for url in (
        f"{hub.url}/api/models/org/model/revision/{revision}",
        f"{hub.url}/api/models/org/model/tree/{revision}",
        f"{hub.url}/org/model/resolve/{revision}/config.json",
    ):
        answer = ask(url)
        assert (answer.status, answer.headers["x-error-code"]) == (404, "RevisionNotFound")
        assert answer.json["error"] == answer.headers["x-error-message"]


def test_abbreviated_commit_is_unknown(hub: HuggingFaceHub) -> None:
    """Only a full id is a commit."""
    commit = head_of(hub.add_repository("org/model", FILES)).id
    answer = ask(f"{hub.url}/api/models/org/model/revision/{commit[:12]}")
    assert answer.headers["x-error-code"] == "RevisionNotFound"


def test_listing_tells_files_apart(hub: HuggingFaceHub) -> None:
    """Folders, git blobs and LFS files are listed with the ids and sizes that git and LFS know."""
    commit = head_of(hub.add_repository("org/model", FILES))
    (page,) = pages(f"{hub.url}/api/models/org/model/tree/{commit.id}?recursive=true")
    entries = {entry["path"]: entry for entry in page}
    assert [entry["path"] for entry in page] == sorted([*FILES, "sub", "sub/deep"])
    weights = commit.files["model.bin"]
    assert entries["model.bin"] == {
        "type": "file",
        "oid": weights.oid,
        "size": 7000,
        "path": "model.bin",
        "lfs": {"oid": weights.content.sha256, "size": 7000, "pointerSize": len(weights.pointer)},
    }
    assert entries["sub/deep"] == {
        "type": "directory",
        "oid": commit.directories["sub/deep"],
        "size": 0,
        "path": "sub/deep",
    }
    assert "lfs" not in entries["config.json"]


def test_listing_of_a_folder(hub: HuggingFaceHub) -> None:
    """Without `recursive` one level is listed, and a folder can be listed alone."""
    hub.add_repository("org/model", FILES)
    tree = f"{hub.url}/api/models/org/model/tree/main"

    def paths(url: str) -> list[str]:
        return [entry["path"] for entry in ask(url).json]

    assert paths(tree) == [".gitattributes", "config.json", "model.bin", "sub", "sub.txt"]
    assert paths(f"{tree}/sub") == ["sub/a.txt", "sub/deep"]
    assert paths(f"{tree}/sub%2Fdeep") == paths(f"{tree}/sub/deep") == ["sub/deep/b.txt"]
    assert paths(f"{tree}/sub?recursive=1") == ["sub/a.txt", "sub/deep", "sub/deep/b.txt"]
    missing = ask(f"{tree}/none")
    assert (missing.status, missing.headers["x-error-code"]) == (404, "EntryNotFound")


def test_listing_comes_in_pages(clock: ManualClock) -> None:
    """Pages follow each other on the client's own name for the host, and lose nothing."""
    files = {f"file-{number:04}.txt": b"x" for number in range(2500)}
    with HuggingFaceHub(clock=clock, options=Options(page_entries=1000)) as hub:
        hub.add_repository("org/model", files)
        found = pages(f"{hub.url}/api/models/org/model/tree/main?recursive=true")
        assert [len(page) for page in found] == [1000, 1000, 500]
        assert [entry["path"] for page in found for entry in page] == sorted(files)
        local = hub.url.replace("127.0.0.1", "localhost")
        first = ask(f"{local}/api/models/org/model/tree/main?recursive=true")
        assert first.headers["link"].startswith(f"<{local}/api/")
        expanded = pages(f"{hub.url}/api/models/org/model/tree/main?expand=true")
        assert [len(page) for page in expanded] == [50] * 50
        broken = ask(f"{hub.url}/api/models/org/model/tree/main?cursor=%00")
        assert broken.status == 400


def test_page_that_ends_exactly(clock: ManualClock) -> None:
    """A listing that fills its last page names no further one."""
    with HuggingFaceHub(clock=clock, options=Options(page_entries=3)) as hub:
        hub.add_repository("org/model", dict.fromkeys("abcdef", b"x"))
        found = pages(f"{hub.url}/api/models/org/model/tree/main?recursive=true")
        assert [len(page) for page in found] == [3, 3]


def test_git_blob_is_served_by_the_hub(hub: HuggingFaceHub) -> None:
    """HEAD and GET of a small file answer directly, with its commit, blob id and length."""
    commit = head_of(hub.add_repository("org/model", FILES))
    url = f"{hub.url}/org/model/resolve/main/sub/a.txt"
    got, head = ask(url), ask(url, "HEAD")
    assert (got.status, got.body) == (200, b"a")
    assert (head.status, head.body) == (200, b"")
    for answer in (got, head):
        assert answer.headers["x-repo-commit"] == commit.id
        assert answer.headers["etag"] == f'"{commit.files["sub/a.txt"].oid}"'
        assert answer.headers["content-length"] == "1"
        assert answer.headers["accept-ranges"] == "bytes"
        assert "x-linked-etag" not in answer.headers


def test_lfs_file_is_redirected(hub: HuggingFaceHub) -> None:
    """A large file is a 302 to a signed URL on the other host, its size and digest in headers."""
    commit = head_of(hub.add_repository("org/model", FILES))
    url = f"{hub.url}/org/model/resolve/main/model.bin"
    for method in ("HEAD", "GET"):
        answer = ask(url, method)
        assert answer.status == 302
        assert answer.headers["x-repo-commit"] == commit.id
        assert answer.headers["x-linked-size"] == "7000"
        digest = commit.files["model.bin"].content.sha256
        assert answer.headers["x-linked-etag"] == f'"{digest}"'
        location = answer.headers["location"]
        assert urlsplit(location).netloc == urlsplit(hub.content_url).netloc
        assert urlsplit(location).hostname != urlsplit(hub.url).hostname
        content = ask(location)
        assert content.body == FILES["model.bin"]
        assert content.headers["etag"] == f'"{digest}"'


def test_relative_redirect_of_blobs(clock: ManualClock) -> None:
    """With that option small files take a step on the same host first."""
    with HuggingFaceHub(clock=clock, options=Options(relative_redirects=True)) as hub:
        for name in ("org/model", "single"):
            hub.add_repository(name, {"a b.txt": b"a"})
            first = ask(f"{hub.url}/{name}/resolve/main/a%20b.txt")
            assert first.status == 307
            assert first.headers["location"].startswith(f"/api/resolve-cache/models/{name}/")
            second = ask(hub.url + first.headers["location"])
            assert (second.status, second.body) == (200, b"a")


def test_missing_entry_names_the_commit(hub: HuggingFaceHub) -> None:
    """A file that the commit lacks is 404 EntryNotFound, and the commit is still told."""
    commit = head_of(hub.add_repository("org/model", FILES))
    for path in ("none", "sub", "", "sub/", "../config.json", "config.json/"):
        answer = ask(f"{hub.url}/org/model/resolve/main/{path}")
        assert (answer.status, answer.headers["x-error-code"]) == (404, "EntryNotFound")
        assert answer.headers["x-repo-commit"] == commit.id


NAMES = [
    "space d.txt", "hash#.txt", "percent%.txt", "coded%41.txt", "plus+.txt", "question?.txt",
    "and&=.txt", "emoji-😀.txt", "nfc-\u00e9.txt", "nfd-e\u0301.txt", "dot.", "new\nline.txt",
    "x" * 251 + ".txt", "\u00e9" * 120, "back\\slash.txt", "quote\".txt", "semi;colon.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_stray_names(hub: HuggingFaceHub, name: str) -> None:
    """Any name is listed as it is and fetched when each of its segments is escaped once."""
    hub.add_repository("org/model", {name: b"small", f"{name}/{name}.bin": b"large"})
    (page,) = pages(f"{hub.url}/api/models/org/model/tree/main?recursive=true")
    assert {entry["path"] for entry in page} == {name, f"{name}/{name}.bin"}
    small = ask(f"{hub.url}/org/model/resolve/main/{quote(name)}")
    assert small.body == b"small"
    large = ask(f"{hub.url}/org/model/resolve/main/{quote(name)}/{quote(name)}.bin")
    assert ask(large.headers["location"]).body == b"large"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404), ("/api/models", 404), ("/api/models/", 401), ("/org/model", 404),
        ("/api/models/a/b/c/d", 404), ("/org/model/raw/main/config.json", 404),
        ("/org/model/resolve/main/%ff", 400), ("/api/datasets/org/model", 404),
        ("//resolve//", 401), ("/api/resolve-cache/models/org/model/main/config.json", 404),
    ],
)  # fmt: skip
def test_stray_paths(hub: HuggingFaceHub, target: str, status: int) -> None:
    """What the hub does not have is a clean refusal."""
    hub.add_repository("org/model", FILES)
    assert ask(hub.url + target).status == status


def test_only_reading_is_emulated(hub: HuggingFaceHub) -> None:
    """Uploads are refused, on both hosts."""
    assert ask(f"{hub.url}/api/models/org/model", "POST").status == 405
    assert ask(f"{hub.content_url}/lfs/x", "PUT").status == 405


def test_repositories_that_cannot_be(hub: HuggingFaceHub) -> None:
    """Names that are none, and names taken, are refused; so are refs to nothing."""
    for name in ("", "a/b/c", "/b", "a/"):
        with pytest.raises(HubError, match="owner/name"):
            hub.add_repository(name, FILES)
    repository = hub.add_repository("org/model", FILES)
    with pytest.raises(HubError, match="already"):
        hub.add_repository("org/model", FILES)
    with pytest.raises(HubError, match="no commit"):
        repository.point("refs/heads/main", "0" * 40)
    with pytest.raises(HubError, match="refs/heads/main"):
        repository.point("main", head_of(repository).id)
    hub.remove_repository("org/model")
    assert ask(f"{hub.url}/api/models/org/model").status == 401
