"""The serving certificate: its three sources, and its replacement in service."""

from __future__ import annotations

import base64
import itertools
import socket
import ssl
import threading
from pathlib import Path

import pytest

from gpustack_delivery.errors import (
    ApiFault,
    ConfigurationFault,
    Forbidden,
    Invalid,
    Unreachable,
)
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, hosts_of
from gpustack_delivery.vocabulary.resources import SECRETS
from gpustack_delivery.worker.certificates import (
    Directory,
    Identity,
    InMemory,
    ServingCertificate,
    SharedSecret,
    made_in_memory,
)
from tests.unit.worker.world import NAMESPACE, ClusterKube

HOSTS = ["worker.gpustack-system.svc", "127.0.0.1"]


def shared(kube: ClusterKube, *more: str) -> SharedSecret:
    """Return the source that replicas share, of one that serves more hosts."""
    return SharedSecret(kube, NAMESPACE, "webhook", [*HOSTS, *more])


def write(directory: Path, identity: Identity, *, with_ca: bool = True) -> None:
    """Mount an identity."""
    (directory / "tls.crt").write_text(identity.pair.certificate_pem)
    (directory / "tls.key").write_text(identity.pair.key_pem)
    if with_ca:
        (directory / "ca.crt").write_text(identity.ca_pem)


def test_first_replica_makes_it_and_all_share_it() -> None:
    """Whoever comes second serves what the first made."""
    kube = ClusterKube()
    first, second = shared(kube).read(), shared(kube).read()
    assert first == second
    (secret,) = kube.all(SECRETS)
    assert secret["type"] == "kubernetes.io/tls"


def test_two_replicas_at_once() -> None:
    """The one that loses the race serves the other's."""
    kube = ClusterKube()
    winner = shared(kube).read()
    held = kube.objects.copy()
    kube.objects.clear()
    create = kube.create

    def late(*args: object, **kwargs: object) -> object:
        kube.objects.update(held)
        return create(*args, **kwargs)  # type: ignore[arg-type]

    kube.create = late  # type: ignore[method-assign, assignment]
    assert shared(kube).read() == winner


@pytest.mark.parametrize(
    "data",
    [
        {},
        None,
        {"tls.crt": "!", "tls.key": "", "ca.crt": ""},
        {"tls.crt": "/w=="},
        {"tls.crt": "bm9uZQ==", "tls.key": "bm9uZQ==", "ca.crt": "bm9uZQ=="},
    ],
)
def test_broken_secret_says_what_to_do(data: dict[str, str] | None) -> None:
    """A Secret without a certificate is not overwritten: a person decides."""
    kube = ClusterKube()
    metadata = {"name": "webhook", "namespace": NAMESPACE}
    kube.put(SECRETS, {"metadata": metadata, "data": data})
    with pytest.raises(ConfigurationFault, match="delete it"):
        shared(kube).read()


def test_a_right_that_was_taken_away_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate stays in service, and the log says what the worker may not."""
    source = shared(ClusterKube())
    serving = ServingCertificate(source)

    def refused() -> Identity:
        raise Forbidden("answered 403 Forbidden", detail='cannot get resource "secrets"')

    monkeypatch.setattr(source, "read", refused)
    serving.refresh()
    assert 'cannot get resource "secrets"' in caplog.text


def test_a_certificate_that_lacks_a_served_name_is_made_anew() -> None:
    """The new one is for the old names too, and the authority before it stays trusted."""
    kube = ClusterKube()
    before = shared(kube).read()
    made = shared(kube, "public-api.svc").read()
    assert hosts_of(made.pair.certificate_pem) == {*HOSTS, "public-api.svc"}
    assert made.ca_pem.endswith(before.ca_pem)
    assert made.ca_pem.count("BEGIN CERTIFICATE") == 2
    again = shared(kube, "another.svc").read()
    assert again.ca_pem.count("BEGIN CERTIFICATE") == 2
    assert again.ca_pem.endswith(
        made.ca_pem.partition("-----END CERTIFICATE-----\n")[0] + "-----END CERTIFICATE-----\n"
    )


def test_replicas_that_serve_different_hosts_agree_after_one_round() -> None:
    """Each name is added once; then nobody writes, whoever reads and however often."""
    kube = ClusterKube()
    one, other = shared(kube, "one.svc"), shared(kube, "other.svc")
    one.read()
    agreed = other.read()
    writes = [call for call in kube.calls if call.startswith(("create", "update"))]
    for source in (one, other, shared(kube), one, other):
        assert source.read() == agreed
    assert [call for call in kube.calls if call.startswith(("create", "update"))] == writes


def test_the_slower_of_two_that_make_it_anew_serves_what_the_faster_made() -> None:
    """A conflict is answered by reading again."""
    kube = ClusterKube()
    shared(kube).read()
    update = kube.update
    faster: list[Identity] = []

    def late(*args: object, **kwargs: object) -> object:
        kube.update = update  # type: ignore[method-assign]
        faster.append(shared(kube, "public-api.svc").read())
        return update(*args, **kwargs)  # type: ignore[arg-type]

    kube.update = late  # type: ignore[method-assign, assignment]
    assert [shared(kube, "public-api.svc").read()] == faster


def test_a_certificate_of_somebody_elses_is_served_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker replaces only what it made; the missing names are said."""
    kube = ClusterKube()
    held = shared(kube).read()
    foreign = Authority("cert-manager").issue("worker", HOSTS)
    (secret,) = kube.all(SECRETS)
    texts = (foreign.certificate_pem, foreign.key_pem, held.ca_pem)
    data = {
        key: base64.b64encode(text.encode()).decode()
        for key, text in zip(("tls.crt", "tls.key", "ca.crt"), texts, strict=True)
    }
    kube.put(SECRETS, {**secret, "data": data})
    assert shared(kube, "public-api.svc").read().pair == foreign
    assert "lacks public-api.svc" in caplog.text


@pytest.mark.parametrize("refusal", [Forbidden("no right", code=403), Invalid("fixed", code=422)])
def test_a_secret_that_cannot_be_updated_is_served_as_it_is(refusal: ApiFault) -> None:
    """An image that is newer than its chart goes on, and so does one with a Secret made fast."""
    kube = ClusterKube()
    held = shared(kube).read()
    update = kube.update

    def refused(*args: object, **kwargs: object) -> object:
        raise refusal

    kube.update = refused  # type: ignore[method-assign, assignment]
    assert shared(kube, "public-api.svc").read() == held
    kube.update = update  # type: ignore[method-assign]
    assert shared(kube, "public-api.svc").read() != held


def test_directory(tmp_path: Path) -> None:
    """A mounted pair is served with its CA, or vouches for itself without one."""
    identity = made_in_memory(HOSTS)
    with pytest.raises(ConfigurationFault, match=r"tls\.crt"):
        Directory(tmp_path).read()
    write(tmp_path, identity, with_ca=False)
    assert Directory(tmp_path).read().ca_pem == identity.pair.certificate_pem
    write(tmp_path, identity)
    assert Directory(tmp_path).read() == identity


def test_mismatched_pair_is_refused(tmp_path: Path) -> None:
    """A key of another certificate is noticed at the start."""
    write(tmp_path, made_in_memory(HOSTS))
    (tmp_path / "tls.key").write_text(made_in_memory(HOSTS).pair.key_pem)
    with pytest.raises(ConfigurationFault, match="cannot be used together"):
        ServingCertificate(Directory(tmp_path))


def shown(server: Server, ca_pem: str) -> bytes:
    """Return the certificate that a server shows a client who trusts a CA."""
    context = ssl.create_default_context(cadata=ca_pem)
    with (
        socket.create_connection(("127.0.0.1", server.port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


class Alternating:
    """A source that gives one of some certificates, until it is turned to the next."""

    def __init__(self, identities: list[Identity]) -> None:
        self._identities = itertools.cycle(identities)
        self.turn()

    def turn(self) -> None:
        """Give the next one from now on."""
        self._identity = next(self._identities)

    def read(self) -> Identity:
        """Return the certificate."""
        return self._identity


def answer(_request: Request) -> Response:
    """Answer anything."""
    return Response()


def test_replaced_without_a_restart(tmp_path: Path) -> None:
    """New connections see the new certificate; a bad replacement changes nothing."""
    write(tmp_path, made_in_memory(HOSTS))
    certificate = ServingCertificate(Directory(tmp_path))
    with Server(answer, name="test", tls=certificate.context) as server:
        first = shown(server, certificate.ca_pem)
        certificate.refresh()
        assert shown(server, certificate.ca_pem) == first
        (tmp_path / "tls.crt").write_text("not a certificate")
        for _ in range(3):
            certificate.refresh()
        assert shown(server, certificate.ca_pem) == first
        write(tmp_path, made_in_memory(HOSTS))
        for _ in range(2):
            certificate.refresh()
        assert shown(server, certificate.ca_pem) != first


def test_trusted_before_it_is_shown(tmp_path: Path) -> None:
    """A certificate is served from the look on that comes after its authority was trusted."""
    write(tmp_path, made_in_memory(HOSTS))
    trusted: list[str] = []
    down = [False, True, False, False]

    def trust(ca_pem: str) -> None:
        if down.pop(0):
            raise Unreachable("away")
        trusted.append(ca_pem)

    certificate = ServingCertificate(Directory(tmp_path), trust)
    assert trusted == [certificate.ca_pem]
    new = made_in_memory(HOSTS)
    write(tmp_path, new)
    with Server(answer, name="test", tls=certificate.context) as server:
        for told in (1, 2):
            certificate.refresh()
            assert len(trusted) == told
            assert shown(server, trusted[0])
        certificate.refresh()
        assert trusted[1:] == [new.ca_pem, new.ca_pem]
        assert shown(server, new.ca_pem)


def test_no_handshake_fails_at_the_moment_of_the_replacement() -> None:
    """Whoever connects meanwhile is shown one certificate or the other, and each with its key."""
    identities = [made_in_memory(HOSTS) for _ in range(2)]
    bundle = "".join(each.ca_pem for each in identities)
    source = Alternating(identities)
    certificate = ServingCertificate(source)
    over, seen = threading.Event(), set()

    def replace() -> None:
        while not over.is_set():
            source.turn()
            for _ in range(2):
                certificate.refresh()

    with Server(answer, name="test", tls=certificate.context) as server:
        replacing = threading.Thread(target=replace)
        replacing.start()
        try:
            for _ in range(150):
                seen.add(shown(server, bundle))
        finally:
            over.set()
            replacing.join()
    assert len(seen) <= 2


def test_an_outage_keeps_the_certificate() -> None:
    """While the API server is away the certificate in service stays."""
    kube = ClusterKube()
    certificate = ServingCertificate(shared(kube))
    before = certificate.ca_pem
    kube.trouble = [Unreachable("away")]
    certificate.refresh()
    assert certificate.ca_pem == before
    kube.remove(SECRETS, "webhook", NAMESPACE)
    for _ in range(2):
        certificate.refresh()
    assert certificate.ca_pem != before


def test_in_memory() -> None:
    """Without any source the process vouches for itself, with one certificate."""
    source = InMemory(HOSTS)
    assert source.read() == source.read()
