"""The forward proxy between real clients and the hub."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from emulator.clock import ManualClock
from emulator.hubs import HuggingFaceHub, Proxy, Reset
from gpustack_delivery.httpd.certificates import Authority
from tests.emulator.hubs.conftest import PATIENCE_SECONDS, ask, eventually

DATA = bytes(range(256)) * 4000


@pytest.fixture
def proxy(clock: ManualClock) -> Iterator[Proxy]:
    """Serve a proxy that knows no special names."""
    with Proxy(clock=clock) as running:
        yield running


@pytest.fixture
def session(proxy: Proxy) -> Iterator[requests.Session]:
    """Return a client that uses the proxy for everything."""
    with requests.Session() as client:
        client.trust_env = False
        client.proxies = {"http": proxy.url, "https": proxy.url}
        yield client


def test_plain_requests_are_forwarded(
    hub: HuggingFaceHub, proxy: Proxy, session: requests.Session
) -> None:
    """An http:// download goes through the proxy whole, redirects and ranges included."""
    hub.add_repository("org/model", {"model.bin": DATA})
    url = f"{hub.url}/org/model/resolve/main/model.bin"
    answer = session.get(url, headers={"Range": "bytes=5-"}, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, answer.content) == (206, DATA[5:])
    assert session.head(url, timeout=PATIENCE_SECONDS).headers["X-Linked-Size"] == str(len(DATA))
    first, second, third = proxy.requests.entries()
    assert (first.method, first.path, first.status) == ("GET", url, 302)
    assert second.path.startswith(hub.content_url)
    assert (second.range, second.status) == ("bytes=5-", 206)
    eventually(lambda: proxy.requests.in_flight == 0)
    assert second.sent_bytes == len(DATA) - 5
    assert third.method == "HEAD"
    assert "Signature" not in proxy.requests.dump()


def test_bodies_go_up_too(hub: HuggingFaceHub, proxy: Proxy, session: requests.Session) -> None:
    """A request with a body arrives with it, and the hub's own refusal comes back."""
    answer = session.post(f"{hub.url}/api/models", data=b"body", timeout=PATIENCE_SECONDS)
    assert answer.status_code == 405
    assert proxy.requests.entries(method="POST")


def test_broken_answer_stays_broken(
    hub: HuggingFaceHub, proxy: Proxy, session: requests.Session
) -> None:
    """What the origin cuts short does not look whole behind the proxy."""
    hub.add_repository("org/model", {"a.txt": DATA})
    hub.faults.add(Reset(offset=500_000))
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        session.get(f"{hub.url}/org/model/resolve/main/a.txt", timeout=PATIENCE_SECONDS)
    eventually(lambda: proxy.requests.in_flight == 0)


def test_tls_is_tunnelled_under_real_names(clock: ManualClock, tmp_path: Path) -> None:
    """A client that uses the proxy reaches the hub under a name that exists nowhere."""
    authority = Authority("ca")
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.certificate_pem)
    with HuggingFaceHub(clock=clock, authority=authority) as hub:
        hub.add_repository("org/model", {"config.json": b"{}"})
        routes = {"localhost:443": ("127.0.0.1", int(hub.url.rpartition(":")[2]))}
        with Proxy(clock=clock, routes=routes) as proxy, requests.Session() as session:
            session.trust_env = False
            answer = session.get(
                "https://localhost/org/model/resolve/main/config.json",
                proxies={"https": proxy.url},
                headers={"Authorization": "Bearer hf_canary"},
                verify=os.fspath(ca),
                timeout=PATIENCE_SECONDS,
            )
            assert answer.status_code == 401  # the hub's own word: it does not know the token
            assert answer.headers["X-Error-Message"].startswith("Invalid credentials")
            (entry,) = proxy.requests.entries()
            assert (entry.method, entry.path) == ("CONNECT", "localhost:443")
            assert not entry.carries("hf_canary")


def test_unreachable_origins(proxy: Proxy, session: requests.Session) -> None:
    """A place that cannot be reached is 502, on both ways."""
    with socket.socket() as taken:  # bound and not listening: nobody else can take the port
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        answer = session.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SECONDS)
        assert answer.status_code == 502
        with pytest.raises(requests.exceptions.ProxyError):
            session.get(f"https://127.0.0.1:{port}/", timeout=PATIENCE_SECONDS)
    assert [entry.status for entry in proxy.requests.entries()] == [502, 502]


def test_requests_that_are_not_for_a_proxy(proxy: Proxy) -> None:
    """A client that takes the proxy for a server, or names no port that is one, is told."""
    assert ask(f"{proxy.url}/path").status == 400
    parts = urlsplit(proxy.url)
    with socket.create_connection((parts.hostname, parts.port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"CONNECT host:port HTTP/1.1\r\nHost: host\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 502 ")


def test_tunnels_end_with_the_proxy(hub: HuggingFaceHub, proxy: Proxy) -> None:
    """Stopping the proxy ends open tunnels, and the log knows what went through."""
    parts = urlsplit(proxy.url)
    target = urlsplit(hub.url).netloc
    with socket.create_connection((parts.hostname, parts.port), PATIENCE_SECONDS) as sock:
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert sock.recv(1000) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        sock.sendall(b"GET /api/whoami-v2 HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = sock.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 401 ")
        proxy.stop()
        assert sock.recv(1000) == b""
    (entry,) = proxy.requests.entries()
    assert (entry.path, entry.status) == (target, 200)
    eventually(lambda: entry.ended is not None)
    assert entry.sent_bytes == len(answer)
