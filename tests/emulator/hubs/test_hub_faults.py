"""Which requests a fault strikes, and answers that are wrong as a whole."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from emulator.clock import ManualClock
from emulator.hubs import (
    EXPIRED_URL,
    After,
    Gzip,
    HtmlPage,
    HuggingFaceHub,
    IgnoreRange,
    NextLink,
    Options,
    Redirect,
    Resize,
    Rewrite,
    Status,
    Unmeasured,
    WrongRange,
    mask_digests,
)
from tests.emulator.hubs.conftest import DATA, ask, content_url, tree_url, with_model

SIZE = len(DATA)


@pytest.fixture
def hub(hub: HuggingFaceHub) -> HuggingFaceHub:
    """Serve one large and one small file."""
    return with_model(hub)


def test_rule_picks_place_path_method_and_count(hub: HuggingFaceHub) -> None:
    """A rule strikes only what it names, lets some pass first, and stops after its count."""
    rule = hub.faults.add(Status(503), at="resolve", path="*.json", method="GET", skip=1, times=2)
    url = f"{hub.url}/org/model/resolve/main"
    assert ask(f"{url}/sub/a.txt").status == 200
    assert ask(f"{url}/config.json", "HEAD").status == 200
    assert ask(tree_url(hub)).status == 200
    assert [ask(f"{url}/config.json").status for _ in range(4)] == [200, 503, 503, 200]
    assert rule.hits == 2


def test_first_matching_rule_decides(hub: HuggingFaceHub) -> None:
    """Rules are tried in their order; one that is taken away no longer counts."""
    first = hub.faults.add(Status(500), at="any")
    hub.faults.add(Status(502), at="any")
    assert ask(hub.url).status == 500
    hub.faults.remove(first)
    assert ask(hub.url).status == 502
    hub.faults.clear()
    assert ask(tree_url(hub)).status == 200


@pytest.mark.parametrize(
    ("at", "statuses"),
    [
        ("info", (418, 200, 200, 302, 200)),
        ("tree", (200, 418, 200, 302, 200)),
        ("resolve", (200, 200, 418, 418, 200)),
        ("bytes", (200, 200, 418, 302, 418)),
        ("cdn", (200, 200, 200, 302, 418)),
        ("whoami", (200, 200, 200, 302, 200)),
        ("any", (418, 418, 418, 418, 418)),
    ],
)
def test_places(hub: HuggingFaceHub, at: str, statuses: tuple[int, ...]) -> None:
    """Each place is the endpoint it says; `bytes` is wherever a file's content comes from."""
    content = content_url(hub)
    hub.faults.add(Status(418), at=at)
    urls = [
        f"{hub.url}/api/models/org/model",
        tree_url(hub),
        f"{hub.url}/org/model/resolve/main/config.json",
        f"{hub.url}/org/model/resolve/main/model.bin",
        content,
    ]
    assert tuple(ask(url).status for url in urls) == statuses
    assert ask(f"{hub.url}/api/whoami-v2").status == (418 if at in {"whoami", "any"} else 401)


def test_status_with_retry_after(hub: HuggingFaceHub) -> None:
    """Retry-After comes as seconds, as a date, or as anything; other headers as they are."""
    when = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
    for value in (120, when, "soon", None):
        hub.faults.add(
            Status(429, "slow down", retry_after=value, headers=[("RateLimit", '"api";r=0;t=9')]),
            at="tree",
            times=1,
        )
    seconds, date, text, none = (ask(tree_url(hub)) for _ in range(4))
    assert {answer.status for answer in (seconds, date, text, none)} == {429}
    assert seconds.headers["retry-after"] == "120"
    assert parsedate_to_datetime(date.headers["retry-after"]) == when
    assert text.headers["retry-after"] == "soon"
    assert "retry-after" not in none.headers
    assert none.headers["ratelimit"] == '"api";r=0;t=9'
    assert none.body == b"slow down"


def test_html_page(hub: HuggingFaceHub) -> None:
    """A captive portal answers 200 with a page of 635 bytes, for files and listings alike."""
    hub.faults.add(HtmlPage(), at="any")
    for url in (tree_url(hub), f"{hub.url}/org/model/resolve/main/config.json"):
        page = ask(url)
        assert (page.status, len(page.body)) == (200, 635)
        assert page.headers["content-type"].startswith("text/html")
        assert "x-repo-commit" not in page.headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect(hub: HuggingFaceHub, status: int) -> None:
    """A redirect leads anywhere with any status; without a place it leads in circles."""
    hub.faults.add(Redirect("https://elsewhere.invalid:8443/x", status), at="tree", times=1)
    answer = ask(tree_url(hub))
    assert answer.status == status
    assert answer.headers["location"] == "https://elsewhere.invalid:8443/x"
    hub.faults.add(Redirect(status=status), at="tree", times=1)
    assert hub.url + ask(tree_url(hub)).headers["location"] == tree_url(hub)


def test_range_ignored(hub: HuggingFaceHub) -> None:
    """200 and the whole file for a range; a request for the whole file is not struck."""
    url = content_url(hub)
    rule = hub.faults.add(IgnoreRange())
    answer = ask(url, Range="bytes=100-199")
    assert (answer.status, answer.body) == (200, DATA)
    assert "content-range" not in answer.headers
    assert ask(url).status == 200
    assert rule.hits == 1


def test_wrong_content_range(hub: HuggingFaceHub) -> None:
    """The right bytes under a Content-Range with another start or another total."""
    url = content_url(hub)
    hub.faults.add(WrongRange(start_by=10), times=1)
    hub.faults.add(WrongRange(total_by=-5), times=1)
    start, total = (ask(url, Range="bytes=100-199") for _ in range(2))
    assert start.headers["content-range"] == f"bytes 110-209/{SIZE}"
    assert total.headers["content-range"] == f"bytes 100-199/{SIZE - 5}"
    assert start.body == total.body == DATA[100:200]


@pytest.mark.parametrize("by", [-1, -30, 1, 500])
def test_resized_body(hub: HuggingFaceHub, by: int) -> None:
    """More or fewer bytes than the range says, in an answer that is whole as such."""
    url = content_url(hub)
    hub.faults.add(Resize(by))
    answer = ask(url, Range="bytes=100-199")
    assert (answer.status, answer.error) == (206, "")
    assert answer.headers["content-range"] == f"bytes 100-199/{SIZE}"
    assert answer.body == (DATA[100:200] + bytes(max(by, 0)))[: 100 + by]


def test_cut_page(hub: HuggingFaceHub) -> None:
    """A page of the listing that ends in the middle of its JSON."""
    hub.faults.add(Resize(-10), at="tree")
    with pytest.raises(json.JSONDecodeError):
        _ = ask(tree_url(hub)).json


def test_gzip(hub: HuggingFaceHub) -> None:
    """Compressed content, and no word of the length it has when it is not."""
    url = content_url(hub)
    hub.faults.add(Gzip())
    answer = ask(url, Range="bytes=0-9999")
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == DATA[:10000]


def test_unmeasured(hub: HuggingFaceHub) -> None:
    """Content in chunks, its length not told."""
    url = content_url(hub)
    hub.faults.add(Unmeasured())
    answer = ask(url)
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in answer.headers
    assert answer.body == DATA


def test_something_happens_in_between(hub: HuggingFaceHub) -> None:
    """A branch moves right after the listing was made: the answer is the old one, the next new."""
    repository = hub.find_repository("org/model")
    assert repository is not None
    move = After(lambda: repository.commit({"other.txt": b"new"}))
    rule = hub.faults.add(move, at="tree", times=1)
    before, after = ask(tree_url(hub)), ask(tree_url(hub))
    assert "model.bin" in {entry["path"] for entry in before.json}
    assert {entry["path"] for entry in after.json} == {"other.txt"}
    assert rule.hits == 1


def test_hub_goes_down_while_it_answers(hub: HuggingFaceHub) -> None:
    """The hub is gone within a request, which is never answered, and comes back."""
    url = tree_url(hub)
    hub.faults.add(After(hub.stop), at="tree", times=1)
    with pytest.raises(OSError, match=r"closed connection|reset"):
        ask(url)
    hub.start()
    assert ask(url).status == 200


def test_expired_url(hub: HuggingFaceHub) -> None:
    """The content host refuses a signed URL whose time is up."""
    url = content_url(hub)
    hub.faults.add(EXPIRED_URL, at="cdn", times=1)
    expired = ask(url)
    assert (expired.status, b"expired" in expired.body) == (403, True)
    assert ask(url).status == 200


def test_third_page_fails(clock: ManualClock) -> None:
    """Pages before the one that fails are as they should be."""
    with HuggingFaceHub(clock=clock, options=Options(page_entries=2)) as hub:
        hub.add_repository("org/model", dict.fromkeys("abcdefgh", b"x"))
        hub.faults.add(Status(500), at="tree", skip=2, times=1)
        url, statuses = tree_url(hub), []
        while url:
            answer = ask(url)
            statuses.append(answer.status)
            url = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
        assert statuses == [200, 200, 500]


def test_listing_that_lies(hub: HuggingFaceHub) -> None:
    """A listing can be rewritten at will: masked, shortened, another next page."""
    hub.faults.add(Rewrite(mask_digests), at="tree", times=1)
    hub.faults.add(Rewrite(lambda entries: entries[:-1]), at="tree", times=1)
    hub.faults.add(NextLink("http://other.invalid/page"), at="tree", times=1)
    hub.faults.add(NextLink("<broken"), at="tree", times=1)
    masked, shortened, elsewhere, broken = (ask(tree_url(hub)) for _ in range(4))
    oids = {entry["path"]: entry.get("lfs", {}).get("oid") for entry in masked.json}
    assert oids == {"config.json": None, "model.bin": "*" * 64, "sub": None, "sub/a.txt": None}
    assert [entry["path"] for entry in shortened.json] == ["config.json", "model.bin", "sub"]
    assert elsewhere.headers["link"] == '<http://other.invalid/page>; rel="next"'
    assert broken.headers["link"] == "<broken"
    assert ask(f"{hub.url}/org/model/resolve/main/config.json").body == b"{}"
