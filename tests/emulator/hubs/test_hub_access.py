"""Who may see what: tokens, private and gated repositories, and what strangers are told."""

from __future__ import annotations

import re

import pytest

from emulator.hubs import HuggingFaceHub
from tests.emulator.hubs.conftest import ask

FILES = {"config.json": b"{}", "model.bin": b"weights"}


@pytest.fixture
def hub(hub: HuggingFaceHub) -> HuggingFaceHub:
    """Give the hub two users and a repository of each kind, which ann may read."""
    hub.add_token("hf_ann", "ann")
    hub.add_token("hf_bob", "bob")
    hub.add_repository("org/public", FILES)
    hub.add_repository("org/private", FILES, private=True, readers=["ann"])
    hub.add_repository("org/gated", FILES, gated=True, readers=["ann"])
    hub.add_repository("org/both", FILES, private=True, gated=True, readers=["ann"])
    return hub


# repository, token -> status and X-Error-Code of the API and of resolve
TABLE = [
    ("org/public", "", 200, "", 200, ""),
    ("org/public", "hf_bob", 200, "", 200, ""),
    ("org/public", "hf_forged", 401, "", 401, ""),
    ("org/private", "", 401, "", 401, ""),
    ("org/private", "hf_bob", 404, "RepoNotFound", 404, "RepoNotFound"),
    ("org/private", "hf_ann", 200, "", 200, ""),
    ("org/gated", "", 200, "", 401, "GatedRepo"),
    ("org/gated", "hf_bob", 200, "", 403, "GatedRepo"),
    ("org/gated", "hf_forged", 401, "", 401, "GatedRepo"),
    ("org/gated", "hf_ann", 200, "", 200, ""),
    ("org/both", "", 401, "", 401, ""),
    ("org/both", "hf_bob", 404, "RepoNotFound", 404, "RepoNotFound"),
    ("org/both", "hf_ann", 200, "", 200, ""),
    ("org/none", "", 401, "", 401, ""),
    ("org/none", "hf_bob", 404, "RepoNotFound", 404, "RepoNotFound"),
]


@pytest.mark.parametrize(
    "row", TABLE, ids=[f"{repository}-{token}" for repository, token, *_ in TABLE]
)
def test_who_sees_what(hub: HuggingFaceHub, row: tuple[str, str, int, str, int, str]) -> None:
    """Each kind of repository answers each kind of caller as the real hub does."""
    repository, token, api_status, api_code, file_status, file_code = row
    for path in ("revision/main", "tree/main", ""):
        answer = ask(f"{hub.url}/api/models/{repository}/{path}".rstrip("/"), token=token)
        assert (answer.status, answer.headers.get("x-error-code", "")) == (api_status, api_code)
    for method in ("GET", "HEAD"):
        answer = ask(f"{hub.url}/{repository}/resolve/main/config.json", method, token=token)
        assert (answer.status, answer.headers.get("x-error-code", "")) == (file_status, file_code)
        assert ("x-error-message" in answer.headers) == (file_status >= 400)


def test_strangers_see_masked_digests(hub: HuggingFaceHub) -> None:
    """A gated listing shows LFS digests to readers only; git's ids show to all."""

    def digest(token: str) -> str:
        listing = ask(f"{hub.url}/api/models/org/gated/tree/main", token=token).json
        (weights,) = (entry for entry in listing if entry["path"] == "model.bin")
        assert re.fullmatch(r"[0-9a-f]{40}", weights["oid"])
        oid = weights["lfs"]["oid"]
        assert isinstance(oid, str)
        return oid

    assert digest("") == digest("hf_bob") == "*" * 64
    assert "*" not in digest("hf_ann")


def test_readers_change_while_serving(hub: HuggingFaceHub) -> None:
    """Access granted or withdrawn holds from the next request on."""
    repository = hub.add_repository("org/late", FILES, gated=True)
    url = f"{hub.url}/org/late/resolve/main/config.json"
    assert ask(url, token="hf_bob").status == 403
    repository.readers.add("bob")
    assert ask(url, token="hf_bob").status == 200
    hub.remove_token("hf_bob")
    assert ask(url, token="hf_bob").status == 401


def test_whoami(hub: HuggingFaceHub) -> None:
    """A known token names its user; none, a forged one and another scheme are 401."""
    url = f"{hub.url}/api/whoami-v2"
    answer = ask(url, token="hf_ann")
    assert (answer.status, answer.json["name"]) == (200, "ann")
    assert ask(url).status == 401
    assert ask(url, token="hf_forged").status == 401
    assert ask(url, Authorization="Basic YW5uOmhmX2Fubg==").status == 401
    assert ask(url, Authorization="bearer hf_ann").status == 200


def test_error_message_is_one_header_line(hub: HuggingFaceHub) -> None:
    """A revision with a line break in it cannot add headers of its own."""
    answer = ask(f"{hub.url}/api/models/org/public/revision/a%0D%0AX-Evil:%20b%00%C3%A9")
    assert answer.headers["x-error-message"] == "Invalid rev id: a??X-Evil: b??"
    assert "x-evil" not in answer.headers
