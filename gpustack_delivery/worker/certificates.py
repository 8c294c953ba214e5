"""The worker's serving certificate: where it comes from, and how it is replaced without a restart.

Three sources, the first that is configured: a directory with `tls.crt`, `tls.key` and perhaps
`ca.crt`, as certificate managers mount it; a Secret that the worker's replicas share, made by the
first of them; or one made in memory. `refresh` looks at the source again. A new certificate is
trusted before it is shown: the look that finds it has its authority trusted beside the others, and
the next one puts it in service, when API servers and replicas have heard of that.

What the worker makes is signed by an authority whose key is thrown away: it vouches for this one
certificate only. A shared certificate that lacks a name of what this replica serves is made anew,
for its names and ours together, so that replicas of two versions agree after one round; and with
the authority before it still trusted, so that nobody is refused while the others take it up.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from gpustack_delivery.errors import (
    AlreadyExists,
    ConfigurationFault,
    Conflict,
    DeliveryError,
    Forbidden,
    Invalid,
    NotFound,
)
from gpustack_delivery.httpd.certificates import (
    Authority,
    KeyPair,
    hosts_of,
    issuer_of,
    server_context,
)
from gpustack_delivery.ports import Kube
from gpustack_delivery.vocabulary.resources import SECRETS

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_CA: Final = "ca.crt"
_AUTHORITY: Final = "gpustack-delivery webhooks"
_END: Final = "-----END CERTIFICATE-----\n"
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
# Enough for replicas that are some replacements apart.
_KEPT: Final = 3
_ATTEMPTS: Final = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its key, and the CA certificates (PEM) that clients verify it by."""

    pair: KeyPair
    ca_pem: str


class Source(Protocol):
    """Where certificates come from."""

    def read(self) -> Identity:
        """Return the certificate as it is now.

        Raises:
            ConfigurationFault: there is none that could be used.
            ApiFault: the API server does not give it.
        """


class Directory:
    """A mounted directory; without a `ca.crt` the certificate must vouch for itself."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Identity:
        """Read the files."""
        try:
            certificate = (self._path / _CERTIFICATE).read_text()
            key = (self._path / _KEY).read_text()
            authority = self._path / _CA
            ca_pem = authority.read_text() if authority.exists() else certificate
        except (OSError, UnicodeDecodeError) as error:
            message = (
                f"the certificate directory {self._path} must hold readable tls.crt and tls.key"
            )
            raise ConfigurationFault(message, detail=str(error)) from None
        return Identity(KeyPair(certificate, key), ca_pem)


class SharedSecret:
    """A Secret of the operator namespace: the first replica makes it, every replica serves it."""

    def __init__(self, kube: Kube, namespace: str, name: str, hosts: Sequence[str]) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._hosts = hosts

    def read(self) -> Identity:
        """Read the Secret; make it, or make it anew, when nobody has for all that is served."""
        for _ in range(_ATTEMPTS):
            try:
                secret = self._kube.get(SECRETS, self._name, self._namespace)
            except NotFound:
                secret = None
            try:
                return self._made() if secret is None else self._covering(secret)
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: what it made is read
        message = f"the Secret {self._name} changes faster than it can be read"
        raise ConfigurationFault(message)

    def _made(self) -> Identity:
        made = made_in_memory(self._hosts)
        self._kube.create(SECRETS, self._encode(made), self._namespace)
        return made

    def _covering(self, secret: Mapping[str, Any]) -> Identity:
        """Return the Secret's certificate, made anew if it is ours and lacks a name."""
        held = self._decode(secret)
        names, issuer = self._described(held)
        missing = [host for host in self._hosts if host not in names]
        if not missing:
            return held
        if issuer != _AUTHORITY:
            _log.warning(
                "the certificate in the Secret %s is not the worker's own and lacks %s: "
                "issue it anew with these names",
                self._name,
                ", ".join(missing),
            )
            return held
        made = made_in_memory([*self._hosts, *sorted(names.difference(self._hosts))])
        before = held.ca_pem.partition(_END)[0] + _END
        made = Identity(made.pair, made.ca_pem + before)
        try:
            # Type and labels are whoever's they are; the version keeps two replicas apart.
            self._kube.update(SECRETS, {**secret, "data": self._encode(made)["data"]})
        except (Forbidden, Invalid):  # rights of an older chart, or a Secret that is immutable
            _log.warning(
                "the Secret %s cannot be updated, and its certificate lacks %s: upgrade the chart "
                "with the image, or delete the Secret",
                self._name,
                ", ".join(missing),
            )
            return held
        _log.info("made the certificate in the Secret %s anew for %s", self._name, missing)
        return made

    def _described(self, held: Identity) -> tuple[frozenset[str], str]:
        """Return a certificate's hosts and its issuer."""
        try:
            pem = held.pair.certificate_pem
            return hosts_of(pem), issuer_of(pem)
        except ValueError:
            raise self._unusable() from None

    def _encode(self, identity: Identity) -> dict[str, Any]:
        texts = {
            _CERTIFICATE: identity.pair.certificate_pem,
            _KEY: identity.pair.key_pem,
            _CA: identity.ca_pem,
        }
        return {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()},
        }

    def _decode(self, secret: Mapping[str, Any]) -> Identity:
        data = secret.get("data") or {}
        try:
            certificate, key, ca_pem = (
                base64.b64decode(data[key], validate=True).decode()
                for key in (_CERTIFICATE, _KEY, _CA)
            )
        except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
            raise self._unusable() from None
        return Identity(KeyPair(certificate, key), ca_pem)

    def _unusable(self) -> ConfigurationFault:
        return ConfigurationFault(
            f"the Secret {self._name} holds no certificate; delete it, and the worker makes one"
        )


class InMemory:
    """A certificate of this very process."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._identity = made_in_memory(hosts)

    def read(self) -> Identity:
        """Return the certificate."""
        return self._identity


def made_in_memory(hosts: Sequence[str]) -> Identity:
    """Make a certificate for hosts, and the authority that vouches for it."""
    authority = Authority(_AUTHORITY)
    return Identity(authority.issue(hosts[0][:64], hosts), authority.certificate_pem)


def trusting(bundle: str, ca_pem: str) -> str:
    """Return a `caBundle` that trusts CA certificates (PEM), too; one that does stays as it is.

    What was trusted before stays so: other replicas show their certificates for some looks more.
    """
    held = _certificates(base64.b64decode(bundle).decode("ascii", "replace"))
    ours = _certificates(ca_pem)
    if ours and set(ours) <= set(held):
        return bundle
    before = [each for each in held if each not in ours][:_KEPT]
    return base64.b64encode("".join([ca_pem, *before]).encode()).decode()


def _certificates(pem: str) -> list[str]:
    return [f"{found}\n" for found in _PEM.findall(pem)]


class ServingCertificate:
    """The certificate a server shows, kept up to date by `refresh`.

    Args:
        source: where it comes from.
        trust: has those who call the server trust CA certificates (PEM), too, before it shows one
            of theirs; it may be told of the same ones again.
        client_ca: PEM of the CA that clients' certificates must be of, None to ask for none.

    Raises:
        ConfigurationFault: the source has none that could be used.
        ApiFault: the API server does not give it, or nobody can be told to trust it.
    """

    def __init__(
        self,
        source: Source,
        trust: Callable[[str], None] = lambda _: None,
        client_ca: str | None = None,
    ) -> None:
        self._source = source
        self._trust = trust
        self._identity = self._trusted = source.read()
        self._client_ca = client_ca
        try:
            self._context = server_context(self._identity.pair, client_ca)
        except (ssl.SSLError, ValueError) as error:
            message = "the webhook certificate and its key cannot be used together"
            raise ConfigurationFault(message, detail=str(error)) from None
        trust(self._identity.ca_pem)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context that a new connection begins with."""
        return self._context

    @property
    def ca_pem(self) -> str:
        """The CA certificates that clients verify the server by."""
        return self._identity.ca_pem

    def refresh(self) -> None:
        """Take a replaced certificate into service; one that cannot be used changes nothing."""
        try:
            identity = self._source.read()
            if identity == self._identity:
                self._trusted = identity
                return
            context = server_context(identity.pair, self._client_ca)
            self._trust(identity.ca_pem)
            before, self._trusted = self._trusted, identity
            if identity != before:
                _log.info("a replaced certificate is trusted, and served from the next look on")
                return
        except (DeliveryError, ssl.SSLError, OSError, ValueError) as error:
            detail = error.detail if isinstance(error, DeliveryError) else ""
            _log.warning("the certificate stays as it is: %s %s", error, detail)
            return
        self._context, self._identity = context, identity
        _log.info("the replaced certificate is in service")
