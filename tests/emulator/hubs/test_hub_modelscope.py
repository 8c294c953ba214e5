"""The ModelScope hub: envelopes, listings that are cut, and refs as git tells them."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import pytest

from emulator.clock import ManualClock
from emulator.hubs import Habits, ModelScopeHub, Status
from emulator.hubs.git_refs import ADVERTISEMENT, advertisement
from tests.emulator.hubs.conftest import Answer, ask

FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 100,
    "sub/a b+c#d.txt": b"stray",
    "sub/deep/b.bin": b"",
}


@pytest.fixture
def scope(clock: ManualClock) -> Iterator[ModelScopeHub]:
    """Serve one public and one private repository, which ann may read."""
    with ModelScopeHub(clock=clock) as hub:
        hub.add_token("ms_ann", "ann")
        hub.add_token("ms_bob", "bob")
        hub.add_repository("org/model", FILES)
        hub.add_repository("org/private", FILES, private=True, readers=["ann"])
        yield hub


def api(
    hub: ModelScopeHub, rest: str, name: str = "org/model", *, token: str = "", **headers: str
) -> Answer:
    """Ask for something below a model."""
    return ask(f"{hub.url}/api/v1/models/{name}/{rest}", token=token, context=None, **headers)


def data(answer: Answer) -> Any:
    """Return the data of an envelope that says yes."""
    assert (answer.status, answer.json["Code"], answer.json["Success"]) == (200, 200, True)
    return answer.json["Data"]


def test_commit_of_a_ref(scope: ModelScopeHub) -> None:
    """Branch, tag and commit name commits; the default branch is master."""
    repository = scope.find_repository("org/model")
    assert repository is not None
    first = data(api(scope, "commits?Ref=master&PageSize=1"))["Commit"][0]["Id"]
    repository.tag("v1", first)
    second = repository.commit({"config.json": b"2"}, branch="master")
    for ref, commit in {"master": second, "v1": first, first: first}.items():
        assert data(api(scope, f"commits?Ref={ref}&PageSize=1"))["Commit"][0]["Id"] == commit
    missing = api(scope, "commits?Ref=main&PageSize=1")
    assert (missing.status, missing.json["Code"]) == (404, 10990101004)


def test_misspelled_ref_that_answers(clock: ManualClock) -> None:
    """With the real hub's habit an unknown ref is answered with the default branch's commit."""
    with ModelScopeHub(clock=clock, habits=Habits(unknown_ref_is_default=True)) as hub:
        hub.add_repository("org/model", FILES)
        wrong, right = (
            data(api(hub, f"commits?Ref={ref}"))["Commit"][0]["Id"] for ref in ("mian", "master")
        )
        assert wrong == right


def test_listing(scope: ModelScopeHub) -> None:
    """Files carry size and SHA-256, also the small ones; a folder can be listed alone."""

    def listing(query: str) -> dict[str, Any]:
        files = data(api(scope, f"repo/files?Revision=master{query}"))["Files"]
        return {entry["Path"]: entry for entry in files}

    whole = listing("&Recursive=true")
    assert whole.keys() == {*FILES, "sub", "sub/deep"}
    for path, content in FILES.items():
        assert whole[path]["Type"] == "blob"
        assert whole[path]["Size"] == len(content)
        assert whole[path]["Sha256"] == hashlib.sha256(content).hexdigest()
    assert whole["sub"]["Type"] == "tree"
    assert listing("").keys() == {"config.json", "model.safetensors", "sub"}
    assert listing("&Root=sub").keys() == {"sub/a b+c#d.txt", "sub/deep"}
    assert api(scope, "repo/files?Revision=master&Root=none").status == 404
    unknown = api(scope, "repo/files?Revision=none")
    assert unknown.json["Code"] == 10990101004


def test_listing_is_cut_without_a_word(clock: ManualClock) -> None:
    """3000 entries are all a listing ever has, whether more are there or not."""
    with ModelScopeHub(clock=clock) as hub:
        hub.add_repository("org/many", {f"{n // 1000}/{n:05}.txt": b"x" for n in range(3100)})
        root = data(api(hub, "repo/files?Revision=master&Recursive=true", "org/many"))["Files"]
        assert len(root) == 3000
        part = data(api(hub, "repo/files?Revision=master&Root=3", "org/many"))["Files"]
        assert len(part) == 100


def test_file(scope: ModelScopeHub) -> None:
    """Small files are served in ranges, large ones redirected to the content host."""
    stray = api(scope, f"repo?Revision=master&FilePath={quote_plus('sub/a b+c#d.txt')}")
    assert (stray.status, stray.body) == (200, b"stray")
    part = api(scope, "repo?Revision=master&FilePath=config.json", Range="bytes=1-")
    assert (part.status, part.body) == (206, b"}")
    large = api(scope, "repo?Revision=master&FilePath=model.safetensors")
    assert large.status == 302
    assert ask(large.headers["location"]).body == FILES["model.safetensors"]
    probe = ask(
        f"{scope.url}/api/v1/models/org/model/repo?Revision=master&FilePath=config.json", "HEAD"
    )
    assert (probe.status, probe.body) == (200, b"")
    assert api(scope, "repo?Revision=master&FilePath=none").status == 404
    assert api(scope, "repo?Revision=none&FilePath=config.json").json["Code"] == 10990101004


def test_who_sees_what(scope: ModelScopeHub) -> None:
    """A private repository asks strangers to log in and others to go away."""
    queries = ("commits?Ref=master", "repo/files?Revision=master", "repo?FilePath=config.json")
    for query in queries:
        seen = {
            token: (answer.status, answer.json["Code"] if answer.status != 200 else 200)
            for token in ("", "ms_bob", "ms_forged", "ms_ann")
            for answer in [api(scope, query, "org/private", token=token)]
        }
        assert seen == {
            "": (401, 10010200001),
            "ms_bob": (404, 10010205001),
            "ms_forged": (401, 10010200001),
            "ms_ann": (200, 200),
        }
        assert api(scope, query, "org/none").json["Code"] == 10010205001


def test_token_check(scope: ModelScopeHub) -> None:
    """A known token is 200, none and a forged one are 401."""
    url = f"{scope.url}/openapi/v1/users/me"
    assert data(ask(url, token="ms_ann")) == {"username": "ann"}
    assert ask(url).status == ask(url, token="ms_forged").status == 401


def basic(token: str) -> str:
    """Return the credential that git sends for a token."""
    return f"Basic {base64.b64encode(f'oauth2:{token}'.encode()).decode()}"


def test_refs_need_the_same_rights(scope: ModelScopeHub) -> None:
    """Git's question is answered to those who may read, with the token as a password."""
    url = f"{scope.url}/org/private.git/info/refs?service=git-upload-pack"
    assert ask(url).status == 401
    assert ask(url).headers["www-authenticate"].startswith("Basic ")
    assert ask(url, Authorization=basic("ms_bob")).status == 404
    assert ask(url, Authorization="Basic %%%").status == 401
    answer = ask(url, Authorization=basic("ms_ann"))
    assert (answer.status, answer.headers["content-type"]) == (200, ADVERTISEMENT)
    dumb = ask(f"{scope.url}/org/model.git/info/refs")
    assert dumb.status == 403


def test_advertisement_on_the_wire(scope: ModelScopeHub) -> None:
    """Packets carry their lengths; an annotated tag is named twice, peeled the second time."""
    repository = scope.find_repository("org/model")
    assert repository is not None
    commit = repository.refs()["refs/heads/master"].commit
    repository.tag("v1", commit)
    repository.point("refs/tags/light", commit)
    body = ask(f"{scope.url}/org/model.git/info/refs?service=git-upload-pack").body
    lines, rest = [], body
    while rest:
        size = int(rest[:4], 16)
        lines.append(rest[4 : max(size, 4)].decode())
        rest = rest[max(size, 4) :]
    assert lines[:2] == ["# service=git-upload-pack\n", ""]
    assert lines[-1] == ""
    assert lines[2].split("\0")[0] == f"{commit} HEAD"
    assert "symref=HEAD:refs/heads/master" in lines[2]
    assert lines[3:-1] == [
        f"{commit} refs/heads/master\n",
        f"{commit} refs/tags/light\n",
        f"{repository.refs()['refs/tags/v1'].tag_object} refs/tags/v1\n",
        f"{commit} refs/tags/v1^{{}}\n",
    ]


def test_advertisement_of_nothing() -> None:
    """A repository without refs advertises its capabilities alone."""
    reply = advertisement({}, "refs/heads/master")
    body = b"".join(reply.content.pieces(0, reply.length))
    assert b"0" * 40 + b" capabilities^{}\0" in body


@pytest.mark.needs("git")
def test_git_reads_the_refs(scope: ModelScopeHub) -> None:
    """The real `git ls-remote` understands the advertisement."""
    repository = scope.find_repository("org/private")
    assert repository is not None
    commit = repository.refs()["refs/heads/master"].commit
    repository.tag("v1", commit)
    url = f"{scope.url}/org/private.git".replace("://", "://oauth2:ms_ann@")
    output = subprocess.run(  # noqa: S603 - the URL is the test's own
        ["git", "ls-remote", "--symref", url],  # noqa: S607 - whichever git the machine has
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": os.environ["PATH"], "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"},
    ).stdout
    assert output.splitlines() == [
        "ref: refs/heads/master\tHEAD",
        f"{commit}\tHEAD",
        f"{commit}\trefs/heads/master",
        f"{repository.refs()['refs/tags/v1'].tag_object}\trefs/tags/v1",
        f"{commit}\trefs/tags/v1^{{}}",
    ]


def test_faults_have_their_places(scope: ModelScopeHub) -> None:
    """The same faults aim at this hub's own endpoints, `git` among them."""
    refs = f"{scope.url}/org/model.git/info/refs?service=git-upload-pack"
    scope.faults.add(Status(503), at="git")
    scope.faults.add(Status(502), at="bytes", path="config.json")
    assert ask(refs).status == 503
    assert api(scope, "repo?Revision=master&FilePath=config.json").status == 502
    assert api(scope, "commits?Ref=master").status == 200


@pytest.mark.parametrize("path", ["/", "/api/v1/models/org/model", "/org/model/info/refs", "/%ff"])
def test_stray_paths(scope: ModelScopeHub, path: str) -> None:
    """What the hub does not have is 404."""
    assert ask(scope.url + path).status == 404
