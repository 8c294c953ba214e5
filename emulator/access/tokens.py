"""Signed tokens: RS256 JSON web tokens, as the API server signs them for service accounts.

One key per signer, made at the first token: a cluster that signs none starts without it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import threading
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from emulator.contracts import Json

_MOST_CHECKED = 4096


class TokenFault(Exception):
    """A token is not accepted. `reason` is empty when it is not even one of ours."""

    def __init__(self, reason: str = "") -> None:
        """Keep the reason, worded as TokenReview shows it."""
        super().__init__(reason)
        self.reason = reason


class Signer:
    """Signs and checks tokens of one issuer. Thread-safe."""

    def __init__(self, issuer: str) -> None:
        """`issuer` is the `iss` of every token; one with another issuer is not ours."""
        self.issuer = issuer
        self._lock = threading.Lock()
        self._made: rsa.RSAPrivateKey | None = None
        self._checked: dict[str, Json] = {}

    def sign(self, claims: Json) -> str:
        """Return a token that carries the claims."""
        key = self._key()
        header = {"alg": "RS256", "kid": _key_id(key.public_key())}
        signed = f"{_encode(_compact(header))}.{_encode(_compact(claims))}"
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encode(signature)}"

    def claims(self, token: str) -> Json:
        """Return the claims of a token whose signature holds. Raises TokenFault.

        Times and audiences are for the caller to judge. A signature that held once holds for ever,
        so it is checked once: clients send the same token with every request.
        """
        with self._lock:
            known = self._checked.get(token)
        if known is None:
            known = self._verified(token)
            with self._lock:
                if len(self._checked) >= _MOST_CHECKED:
                    self._checked.clear()
                self._checked[token] = known
        return known

    def _verified(self, token: str) -> Json:
        claims = unverified_claims(token)
        if claims.get("iss") != self.issuer:
            raise TokenFault
        signed, _, signature = token.rpartition(".")
        try:
            self._key().public_key().verify(
                _decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except (InvalidSignature, binascii.Error):
            raise TokenFault("go-jose/go-jose: error in cryptographic primitive") from None
        return claims

    def key_set(self) -> Json:
        """Return the public key as a JSON web key set."""
        public = self._key().public_key()
        modulus = public.public_numbers().n
        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "RSA",
                    "kid": _key_id(public),
                    "alg": "RS256",
                    "n": _encode(modulus.to_bytes((modulus.bit_length() + 7) // 8, "big")),
                    "e": "AQAB",
                }
            ]
        }

    def _key(self) -> rsa.RSAPrivateKey:
        with self._lock:
            if self._made is None:
                self._made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            return self._made


def unverified_claims(token: str) -> Json:
    """Return what a token says of itself. Raises TokenFault when it is no token at all."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenFault
    try:
        claims: Any = json.loads(_decode(parts[1]))
    except ValueError:  # not base64, not UTF-8, not JSON
        raise TokenFault from None
    if not isinstance(claims, dict):
        raise TokenFault
    return claims


def _key_id(public: rsa.RSAPublicKey) -> str:
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _encode(hashlib.sha256(der).digest())


def _compact(content: Json) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
