"""Bytes on the wire: ranges, signed URLs, very large files, and the request log."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emulator.clock import ManualClock
from emulator.hubs import Delay, HuggingFaceHub, Stall, Virtual
from gpustack_delivery.httpd.certificates import Authority
from tests.emulator.hubs.conftest import PATIENCE_SECONDS, Answer, ask, eventually

DATA = bytes(range(256)) * 40
SIZE = len(DATA)


@pytest.fixture(params=["model.bin", "config.json"])
def file_url(hub: HuggingFaceHub, request: pytest.FixtureRequest) -> str:
    """Return where a file's bytes are served: by the content host or by the hub."""
    hub.add_repository("org/model", {"model.bin": DATA, "config.json": DATA})
    url = f"{hub.url}/org/model/resolve/main/{request.param}"
    return ask(url, "HEAD").headers.get("location", url)


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-1023", 0, 1024),
        ("bytes=512-1023", 512, 1024),
        (f"bytes={SIZE - 1}-{SIZE - 1}", SIZE - 1, SIZE),
        ("bytes=100-", 100, SIZE),
        ("bytes=100-99999999999", 100, SIZE),
        ("bytes=-100", SIZE - 100, SIZE),
        ("bytes=-99999999999", 0, SIZE),
        ("bytes=0-", 0, SIZE),
    ],
)
def test_range(file_url: str, asked: str, start: int, end: int) -> None:
    """A range is answered 206 with exactly its bytes and their place in the file."""
    answer = ask(file_url, Range=asked)
    assert answer.status == 206
    assert answer.body == DATA[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=5-2", "bytes=0--1", "bytes=a-b", "bytes=-", "lines=0-1", "bytes=0-1,4-5",
        "bytes 0-1", "bytes=" + "9" * 400 + "-", "",
    ],
)  # fmt: skip
def test_range_that_makes_no_sense_is_ignored(file_url: str, asked: str) -> None:
    """A malformed or multiple range is answered with everything, as the standard allows."""
    answer = ask(file_url, Range=asked)
    assert (answer.status, answer.body) == (200, DATA)


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", f"bytes={SIZE + 5}-{SIZE + 9}", "bytes=-0"])
def test_range_beyond_the_end(file_url: str, asked: str) -> None:
    """A range without bytes is 416, which names the size."""
    answer = ask(file_url, Range=asked)
    assert answer.status == 416
    assert answer.headers["content-range"] == f"bytes */{SIZE}"


def test_if_range(file_url: str) -> None:
    """A range holds only for the content it was meant for."""
    etag = ask(file_url, "HEAD").headers["etag"]
    assert ask(file_url, Range="bytes=0-1", If_Range=etag).status == 206
    other = ask(file_url, Range="bytes=0-1", If_Range='"other"')
    assert (other.status, other.body) == (200, DATA)


def test_head_ignores_ranges(file_url: str) -> None:
    """HEAD tells of the whole file."""
    answer = ask(file_url, "HEAD", Range="bytes=0-1")
    assert (answer.status, answer.headers["content-length"]) == (200, str(SIZE))


@pytest.mark.parametrize("name", ["empty.bin", "empty.txt"])
def test_empty_files(hub: HuggingFaceHub, name: str) -> None:
    """An empty file is served whole and has no range at all."""
    hub.add_repository("org/model", {name: b""})
    url = f"{hub.url}/org/model/resolve/main/{name}"
    url = ask(url, "HEAD").headers.get("location", url)
    whole = ask(url)
    assert (whole.status, whole.body, whole.headers["content-length"]) == (200, b"", "0")
    assert ask(url, Range="bytes=0-0").status == 416


def test_huge_file_is_given_out_in_ranges_only(hub: HuggingFaceHub) -> None:
    """60 GB that exist nowhere: all at once is refused, any part of it is served."""
    size = 60_000_000_000
    block = bytes(range(251))
    hub.add_repository("org/huge", {"model.safetensors": Virtual(size, block, sha256="ab" * 32)})
    head = ask(f"{hub.url}/org/huge/resolve/main/model.safetensors", "HEAD")
    assert head.headers["x-linked-size"] == str(size)
    url = head.headers["location"]
    assert ask(url, "HEAD").headers["content-length"] == str(size)
    assert ask(url).status == 400
    start = 59_999_990_000
    answer = ask(url, Range=f"bytes={start}-")
    assert answer.headers["content-range"] == f"bytes {start}-{size - 1}/{size}"
    phase = start % 251
    assert answer.body == (block * 42)[phase : phase + 10_000]


def test_signed_url_expires(hub: HuggingFaceHub, clock: ManualClock) -> None:
    """A signed URL works for its time and is then refused; the next redirect works again."""
    hub.add_repository("org/model", {"model.bin": DATA})
    resolve = f"{hub.url}/org/model/resolve/main/model.bin"
    url = ask(resolve).headers["location"]
    clock.advance(3600)
    assert ask(url).body == DATA
    clock.advance(1)
    expired = ask(url)
    assert expired.status == 403
    assert b"Request has expired" in expired.body
    assert ask(ask(resolve).headers["location"]).body == DATA


def test_signature_is_checked(hub: HuggingFaceHub) -> None:
    """Neither another file, nor another time, nor no signature gets anything."""
    hub.add_repository("org/model", {"model.bin": DATA, "other.bin": DATA[:9]})
    mine, other = (
        ask(f"{hub.url}/org/model/resolve/main/{name}.bin").headers["location"]
        for name in ("model", "other")
    )
    path, _, query = mine.partition("?")
    forged = [
        path,
        f"{other.partition('?')[0]}?{query}",
        mine.replace("Expires=", "Expires=9"),
        mine.replace("Expires=", "Expires=x"),
        mine.replace("Signature=", "Signature=%C3%A9"),
        f"{hub.content_url}/lfs/none",
        f"{hub.content_url}/",
    ]
    assert [ask(url).status for url in forged] == [403] * len(forged)


def test_serving_over_tls(clock: ManualClock) -> None:
    """Both hosts speak TLS, and links and redirects say so."""
    authority = Authority("hub-ca")
    context = ssl.create_default_context(cadata=authority.certificate_pem)
    with HuggingFaceHub(clock=clock, authority=authority) as hub:
        hub.add_repository("org/model", {"model.bin": DATA})
        redirect = ask(f"{hub.url}/org/model/resolve/main/model.bin", context=context)
        assert redirect.headers["location"].startswith("https://127.0.0.2:")
        answer = ask(redirect.headers["location"], context=context, Range="bytes=7-")
        assert answer.body == DATA[7:]


def test_log_tells_what_was_asked(hub: HuggingFaceHub, clock: ManualClock) -> None:
    """Each request is an entry with host, path, range, status, bytes and times."""
    hub.add_repository("org/model", {"model.bin": DATA})
    url = ask(f"{hub.url}/org/model/resolve/main/model.bin?download=true").headers["location"]
    clock.advance(5)
    ask(url, Range="bytes=10-19")
    eventually(lambda: hub.requests.in_flight == 0)
    redirect, content = hub.requests.entries()
    assert (redirect.host, redirect.method, redirect.status) == ("hub", "GET", 302)
    assert redirect.path == "/org/model/resolve/main/model.bin"
    assert (content.host, content.range, content.status) == ("cdn", "bytes=10-19", 206)
    assert content.path.endswith("/model.bin")
    assert content.sent_bytes == hub.requests.sent_bytes(host="cdn") == 10
    assert content.started == content.ended == redirect.started + 5
    assert hub.requests.entries("*nothing*") == []
    assert hub.requests.entries(method="HEAD") == []
    hub.requests.clear()
    assert hub.requests.entries() == []


def test_log_counts_what_is_under_way(hub: HuggingFaceHub) -> None:
    """Requests at the same time are seen as such, and bytes of a broken answer are counted."""
    hub.add_repository("org/model", {"a.txt": DATA})
    hub.faults.add(Delay(), at="resolve")
    url = f"{hub.url}/org/model/resolve/main/a.txt"
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(url))) for _ in range(5)]
    for thread in threads:
        thread.start()
    eventually(lambda: hub.faults.gate.waiting == 5)
    assert hub.requests.in_flight == hub.requests.peak() == 5
    first, *others = hub.requests.entries()
    assert all(first.overlaps(other) and other.overlaps(first) for other in others)
    hub.faults.clear()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert [answer.body for answer in answers] == [DATA] * 5
    eventually(lambda: hub.requests.in_flight == 0)
    assert hub.requests.sent_bytes() == 5 * SIZE
    assert all(first.overlaps(other) and other.overlaps(first) for other in others)
    ask(url)
    eventually(lambda: hub.requests.in_flight == 0)
    assert not any(entry.overlaps(hub.requests.entries()[-1]) for entry in (first, *others))


def test_dump_withholds_secrets(hub: HuggingFaceHub) -> None:
    """Neither tokens nor signatures nor control characters leave the log as text."""
    hub.add_token("hf_canary", "ann")
    hub.add_repository("org/model", {"model.bin": DATA})
    url = ask(f"{hub.url}/org/model/resolve/main/model.bin", token="hf_canary").headers["location"]
    ask(url)
    ask(f"{hub.url}/a%0Ab%1B[31m")
    signature = url.partition("Signature=")[2].partition("&")[0]
    entries = hub.requests.entries()
    for text in (hub.requests.dump(), repr(entries)):
        assert "hf_canary" not in text
        assert signature not in text
    assert len(hub.requests.dump().splitlines()) == 3
    assert "\x1b" not in hub.requests.dump()
    assert [entry.carries("hf_canary") for entry in entries] == [True, False, False]
    assert [entry.carries(signature) for entry in entries] == [False, True, False]
    assert [entry.authorized for entry in entries] == [True, False, False]


def test_hub_that_is_down_and_up_again(hub: HuggingFaceHub) -> None:
    """A stopped hub refuses connections and comes back under the same address; so does one host."""
    hub.add_repository("org/model", {"model.bin": DATA})
    resolve = f"{hub.url}/org/model/resolve/main/model.bin"
    url = ask(resolve).headers["location"]
    hub.stop_content_host()
    with pytest.raises(ConnectionRefusedError):
        ask(url)
    assert ask(resolve).status == 302
    hub.start_content_host()
    assert ask(url).body == DATA
    hub.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(resolve)
    hub.start()
    assert ask(url).body == DATA


def test_stop_lets_nothing_hang(hub: HuggingFaceHub) -> None:
    """Stalled and delayed answers do not outlive the hub."""
    hub.add_repository("org/model", {"a.txt": DATA, "b.txt": DATA})
    hub.faults.add(Stall(offset=100), path="a.txt")
    hub.faults.add(Delay(), at="any", path="b.txt")
    answers: list[Answer | None] = []

    def fetch(name: str) -> None:
        try:
            answers.append(ask(f"{hub.url}/org/model/resolve/main/{name}"))
        except OSError:
            answers.append(None)

    threads = [threading.Thread(target=fetch, args=(name,)) for name in ("a.txt", "b.txt")]
    for thread in threads:
        thread.start()
    eventually(lambda: hub.faults.gate.waiting == 2)
    hub.stop()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(answers) == 2
    assert hub.requests.in_flight == 0


def test_hub_whose_port_is_taken(clock: ManualClock) -> None:
    """A hub that cannot listen leaves its content host closed as well."""
    with HuggingFaceHub(clock=clock) as first:
        second = HuggingFaceHub(clock=clock, content_host="127.0.0.3")
        second.start()
        second.stop()
        port = urlsplit(second.url).port
        with socket.create_server(("127.0.0.1", port or 0)), pytest.raises(OSError, match="in use"):
            second.start()
        with pytest.raises(ConnectionRefusedError):
            ask(second.content_url)
        assert ask(first.url).status == 404


def test_file_that_vanished(
    hub: HuggingFaceHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A served file that is gone is the hub's own failure, and no request is left open."""
    (tmp_path / "a.txt").write_bytes(b"a")
    hub.add_repository("org/model", tmp_path)
    (tmp_path / "a.txt").unlink()
    assert ask(f"{hub.url}/org/model/resolve/main/a.txt").status == 500
    assert hub.requests.in_flight == 0
    assert "FileNotFoundError" in caplog.text
