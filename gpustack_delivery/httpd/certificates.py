"""Certificates for loopback and cluster-internal servers, made in memory.

An `Authority` signs what its owner asks for: a server's certificate for hosts, or a client's
whose common name and organizations are a Kubernetes user and groups. Keys exist as PEM text in
memory; the one moment a key lies in a file is while a context is handed it for OpenSSL, in a
private directory that is gone when it returns.

Validity is a fixed span, because what is issued here lives no longer than the process that trusts
it.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NOT_BEFORE = datetime(2020, 1, 1, tzinfo=UTC)
_NOT_AFTER = datetime(2099, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; the key does not print."""

    certificate_pem: str
    key_pem: str = field(repr=False)


class Authority:
    """A certificate authority with a key of its own."""

    def __init__(self, common_name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate_pem(self) -> str:
        """The authority's own certificate: what a client trusts."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        common_name: str,
        hosts: Sequence[str] = (),
        organizations: Sequence[str] = (),
        *,
        client: bool = False,
    ) -> KeyPair:
        """Issue a certificate.

        Args:
            common_name: the subject's name, at most 64 characters; a Kubernetes user for a client.
            hosts: DNS names and IP addresses a server answers to.
            organizations: Kubernetes groups of a client.
            client: for TLS client authentication instead of a server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(authority, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return _key_pair(builder.sign(self._key, hashes.SHA256()), key)


def self_signed(hosts: Sequence[str]) -> KeyPair:
    """Return a server's certificate that vouches for itself: the client trusts the very one.

    Args:
        hosts: DNS names and IP addresses; the first is also the common name.

    Raises:
        ValueError: no host is given.
    """
    if not hosts:
        raise ValueError("a server certificate names at least one host")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    builder = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    )
    return _key_pair(builder.sign(key, hashes.SHA256()), key)


def hosts_of(certificate_pem: str) -> frozenset[str]:
    """Return the DNS names and IP addresses that a server's certificate is for.

    Raises:
        ValueError: it is no PEM of a certificate.
    """
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    names = found.value.get_values_for_type(x509.DNSName)
    addresses = found.value.get_values_for_type(x509.IPAddress)
    return frozenset([*names, *map(str, addresses)])


def issuer_of(certificate_pem: str) -> str:
    """Return the common name of whoever signed a certificate, "" if it has none.

    Raises:
        ValueError: it is no PEM of a certificate.
    """
    issuer = x509.load_pem_x509_certificate(certificate_pem.encode()).issuer
    named = issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(named[0].value) if named else ""


def server_context(pair: KeyPair, client_ca: str | None = None) -> ssl.SSLContext:
    """Return a server's TLS context: TLS 1.2 or later, HTTP/1.1 only.

    Args:
        pair: certificate and key.
        client_ca: PEM; with it a client may present a certificate, and one that does is verified.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _present(context, pair)
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(authorities: str, pair: KeyPair | None = None) -> ssl.SSLContext:
    """Return a client's TLS context: TLS 1.2 or later, host names checked.

    Args:
        authorities: PEM of what a server's certificate must be signed by; "" trusts anyone.
        pair: the certificate that the client presents.

    Raises:
        ssl.SSLError: `authorities` is no PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authorities:
        context.load_verify_locations(cadata=authorities)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        _present(context, pair)
    return context


def _present(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Give a context its certificate; the key lies in a file for a moment, mode 0700 around it."""
    with tempfile.TemporaryDirectory(prefix="gpustack-tls-") as private:
        certificate, key = Path(private, "tls.crt"), Path(private, "tls.key")
        certificate.write_text(pair.certificate_pem)
        key.write_text(pair.key_pem)
        context.load_cert_chain(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(identifier, critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    )
