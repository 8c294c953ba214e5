"""HTTPS, the certificates for it, and clients that speak something else."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from gpustack_delivery.httpd import FileSlice, Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, KeyPair, self_signed, server_context
from tests.unit.httpd.conftest import PATIENCE_SECONDS, hear


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Return one authority for the module."""
    return Authority("test-ca")


def whoami(request: Request) -> Response:
    """Answer with the common name and organizations of the client's certificate."""
    if request.client_certificate is None:
        return Response(200, [], b"anonymous")
    subject = [pair for part in request.client_certificate["subject"] for pair in part]
    return Response(200, [], ",".join(value for _, value in subject).encode())


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    """Serve `whoami` over TLS, client certificates welcome."""
    pair = authority.issue("server", ["127.0.0.1", "localhost"])
    tls = server_context(pair, client_ca=authority.certificate_pem)
    with Server(whoami, name="tls", tls=tls) as running:
        yield running


def get(server: Server, context: ssl.SSLContext) -> bytes:
    """Return the body of `GET /`."""
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=PATIENCE_SECONDS, context=context
    )
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def client_context(authority: Authority, pair: KeyPair | None = None) -> ssl.SSLContext:
    """Return a client's context that trusts the authority, with a certificate if given."""
    context = ssl.create_default_context(cadata=authority.certificate_pem)
    if pair is not None:
        with tempfile.TemporaryDirectory() as directory:
            both = Path(directory, "pem")
            both.write_text(pair.certificate_pem + pair.key_pem)
            context.load_cert_chain(both)
    return context


def test_client_certificate_is_verified_and_optional(server: Server, authority: Authority) -> None:
    """A verified certificate reaches the handler; without one the client is anonymous."""
    assert server.url == f"https://127.0.0.1:{server.port}"
    assert get(server, client_context(authority)) == b"anonymous"
    pair = authority.issue("ann", organizations=["dev", "ops"], client=True)
    assert get(server, client_context(authority, pair)) == b"dev,ops,ann"


def test_foreign_client_certificate_is_refused(server: Server, authority: Authority) -> None:
    """A certificate of another authority does not get in, and does not count as none."""
    foreign = Authority("other").issue("ann", client=True)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        get(server, client_context(authority, foreign))
    assert get(server, client_context(authority)) == b"anonymous"


def test_server_certificate_is_not_a_clients(server: Server, authority: Authority) -> None:
    """A certificate issued for servers does not authenticate a client."""
    wrong = authority.issue("ann", ["localhost"])
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        get(server, client_context(authority, wrong))


def test_self_signed_is_trusted_as_itself() -> None:
    """A self-signed certificate verifies against its own PEM, and only for its hosts."""
    pair = self_signed(["127.0.0.1"])
    with Server(whoami, name="self", tls=server_context(pair)) as server:
        assert get(server, ssl.create_default_context(cadata=pair.certificate_pem)) == b"anonymous"
        other = self_signed(["localhost"])
        with pytest.raises(ssl.SSLCertVerificationError):
            get(server, ssl.create_default_context(cadata=other.certificate_pem))
    with pytest.raises(ValueError, match="at least one host"):
        self_signed([])


def test_hosts_are_told_apart(authority: Authority) -> None:
    """Addresses and names stand in the certificate as what they are."""
    pair = authority.issue("server", ["10.0.0.1", "::1", "*.svc", "localhost"])
    certificate = x509.load_pem_x509_certificate(pair.certificate_pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["*.svc", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("10.0.0.1"),
        ipaddress.ip_address("::1"),
    ]


def test_keys_leave_no_trace(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key does not print, and no file of it outlives the making of a context."""
    pair = authority.issue("server", ["localhost"])
    assert "PRIVATE" not in repr(pair)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server_context(pair)
    assert list(tmp_path.iterdir()) == []


def test_old_tls_is_refused(server: Server, authority: Authority) -> None:
    """A client that insists on a version before 1.2 does not get in."""
    context = client_context(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        get(server, context)


def test_only_http_1_1_is_negotiated(server: Server, authority: Authority) -> None:
    """A client that would rather speak HTTP/2 is told that this server does not."""
    context = client_context(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as secure,
    ):
        assert secure.selected_alpn_protocol() == "http/1.1"


def test_plain_http_to_a_tls_port_is_told(server: Server) -> None:
    """A client that forgot the s in https reads why it fails."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = hear(sock)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"this port speaks HTTPS\n")


def test_silent_handshakes_block_nobody(server: Server, authority: Authority) -> None:
    """Clients that connect and never shake hands delay neither others nor the stop."""
    silent = [
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) for _ in range(30)
    ]
    try:
        silent[0].sendall(b"\x16\x03\x01")  # the beginning of a handshake, and no more
        assert get(server, client_context(authority)) == b"anonymous"
        server.stop(drain_seconds=PATIENCE_SECONDS * 100)
        for sock in silent:
            hear(sock)
    finally:
        for sock in silent:
            sock.close()


def test_garbage_instead_of_a_handshake(server: Server, authority: Authority) -> None:
    """Bytes that are no handshake end their own connection only."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"\x00" * 600)
        hear(sock)
    assert get(server, client_context(authority)) == b"anonymous"


def test_files_over_tls(authority: Authority, tmp_path: Path) -> None:
    """A file slice arrives whole through TLS as well."""
    path = tmp_path / "file"
    content = bytes(range(256)) * 5000
    path.write_bytes(content)
    tls = server_context(authority.issue("server", ["127.0.0.1"]))
    size = len(content)

    def handler(_: Request) -> Response:
        return Response(200, [], FileSlice(path.open("rb"), 7, size - 9))

    with Server(handler, name="tls", tls=tls) as server:
        assert get(server, client_context(authority)) == content[7:-2]
