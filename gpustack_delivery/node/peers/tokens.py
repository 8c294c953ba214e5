"""Whose requests a peer answers: those that bring a plugin's own token, made for this purpose.

The API server judges every token (TokenReview). A yes is remembered for two minutes at most, and
never past the token's own expiry, so that a pull of ten thousand ranges asks once in a while; a no
is never remembered. What is remembered is a hash: the tokens of others are not kept.

Rules: PS-SRV-02.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import threading
from typing import Final

from gpustack_delivery.ports import Clock, Kube
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.resources import TOKEN_REVIEWS

AUDIENCE: Final = "gpustack-model-peer"
REMEMBERED_SECONDS: Final = 120.0
_MOST_REMEMBERED: Final = 8192
_LONGEST_TOKEN: Final = 16 << 10


class TokenGate:
    """Judges bearer tokens. Thread-safe.

    Args:
        username: the only one whose tokens count, `system:serviceaccount:NAMESPACE:NAME`.
    """

    def __init__(self, kube: Kube, clock: Clock, username: str) -> None:
        self._kube = kube
        self._clock = clock
        self._username = username
        self._lock = threading.Lock()
        self._until: dict[bytes, float] = {}

    def admits(self, token: Token) -> bool:
        """Say whether a token is a plugin's.

        Raises:
            ApiFault: the API server could not be asked.
        """
        text = token.reveal()
        if not text or len(text) > _LONGEST_TOKEN:
            return False
        key = hashlib.sha256(text.encode()).digest()
        with self._lock:
            if self._clock.monotonic() < self._until.get(key, 0.0):
                return True
        if not self._review(text):
            return False
        # Only the expiry is a date; a clock that is set back must not make two minutes longer.
        now, left = self._clock.monotonic(), _expiry(text) - self._clock.now()
        with self._lock:
            self._until = {k: u for k, u in self._until.items() if u > now}
            if len(self._until) < _MOST_REMEMBERED:
                self._until[key] = now + min(REMEMBERED_SECONDS, left)
        return True

    def _review(self, text: str) -> bool:
        spec = {"token": text, "audiences": [AUDIENCE]}
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": spec,
        }
        status = self._kube.create(TOKEN_REVIEWS, body).get("status") or {}
        return (
            status.get("authenticated") is True
            and AUDIENCE in (status.get("audiences") or ())
            and (status.get("user") or {}).get("username") == self._username
        )


def _expiry(text: str) -> float:
    """Return when a reviewed token expires, seconds since the epoch.

    One whose expiry cannot be read is as good as expired: it is reviewed again every time.
    """
    payload = text.split(".")[1] if text.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError):
        return 0.0
