"""Service account tokens: what goes into one, and what still has to be true when it comes back.

A token names its account and, when bound, a Pod, Secret or Node by uid. It is good while all of
them exist with those uids: deleting a Pod ends its tokens. The real server caches for some seconds;
here it ends at once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from emulator.access.features import Features
from emulator.access.tokens import Signer, TokenFault
from emulator.contracts import Caller, Clock, Json

PREFIX = "system:serviceaccount:"
AUTHENTICATED = "system:authenticated"
_EXTRA = "authentication.kubernetes.io/"


class Objects(Protocol):
    """Read access to stored objects; `objects.Store` is one."""

    def get(self, key: tuple[str, str], namespace: str, name: str) -> Json | None:
        """Return a stored object of the collection (group, plural), or None."""

    def all(self, key: tuple[str, str], namespace: str = "") -> list[Json]:
        """Return every object of a collection, or of one namespace in it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Something a token is bound to."""

    name: str
    uid: str

    def to_claim(self) -> Json:
        """Return the reference as a claim."""
        return {"name": self.name, "uid": self.uid}


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new token shall say. `bound` goes by claim name: pod, node, secret."""

    namespace: str
    account: Reference
    audiences: Sequence[str]
    seconds: int
    bound: dict[str, Reference] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A token that holds: whose it is, and which of the asked audiences it is for."""

    caller: Caller
    audiences: tuple[str, ...]


class ServiceAccounts:
    """Issues tokens and judges them."""

    def __init__(self, signer: Signer, clock: Clock, features: Features) -> None:
        """Start without objects; `bind` before judging."""
        self._signer, self._clock, self._features = signer, clock, features
        self._objects: Objects | None = None

    def bind(self, objects: Objects) -> None:
        """Say where accounts, Pods, Secrets and Nodes are read."""
        self._objects = objects

    def issue(self, grant: Grant) -> tuple[str, float]:
        """Return a signed token and when it expires, in seconds since the epoch."""
        now = int(self._clock.now())
        private: Json = {"namespace": grant.namespace}
        private |= {kind: reference.to_claim() for kind, reference in sorted(grant.bound.items())}
        private["serviceaccount"] = grant.account.to_claim()
        claims: Json = {
            "aud": list(grant.audiences),
            "exp": now + grant.seconds,
            "iat": now,
            "iss": self._signer.issuer,
        }
        if self._features.token_has_id:
            claims["jti"] = str(uuid.uuid4())
        claims |= {
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"{PREFIX}{grant.namespace}:{grant.account.name}",
        }
        return self._signer.sign(claims), float(now + grant.seconds)

    def judge(self, token: str, audiences: Sequence[str]) -> Accepted:
        """Return whose token this is. Raises TokenFault when it does not hold for any audience."""
        claims = self._signer.claims(token)
        now = self._clock.now()
        if now >= claims["exp"]:
            raise TokenFault("service account token has expired")
        if now < claims["nbf"]:
            raise TokenFault("service account token is not valid yet")
        matching = tuple(audience for audience in audiences if audience in claims["aud"])
        if not matching:
            raise TokenFault(
                f"token audiences {_listed(claims['aud'])} is invalid "
                f"for the target audiences {_listed(audiences)}"
            )
        private = claims["kubernetes.io"]
        self._check(private)
        return Accepted(_caller(claims, private), matching)

    def _check(self, private: Json) -> None:
        namespace, account = private["namespace"], private["serviceaccount"]
        self._require(("", "serviceaccounts"), namespace, account)
        if "pod" in private:
            self._require(("", "pods"), namespace, private["pod"])
        elif "secret" in private:
            self._require(("", "secrets"), namespace, private["secret"])
        elif "node" in private:
            self._require(("", "nodes"), "", private["node"])

    def _require(self, key: tuple[str, str], namespace: str, reference: Json) -> None:
        found = self._objects.get(key, namespace, reference["name"]) if self._objects else None
        if found is None or found["metadata"]["uid"] != reference["uid"]:
            raise TokenFault("service account token has been invalidated")


def _listed(audiences: Sequence[str]) -> str:
    return "[" + " ".join(json.dumps(audience) for audience in audiences) + "]"


def _caller(claims: Json, private: Json) -> Caller:
    extra: dict[str, tuple[str, ...]] = {}
    if "jti" in claims:
        extra[f"{_EXTRA}credential-id"] = (f"JTI={claims['jti']}",)
    for kind in ("node", "pod"):
        if kind in private:
            extra[f"{_EXTRA}{kind}-name"] = (private[kind]["name"],)
            if private[kind]["uid"]:
                extra[f"{_EXTRA}{kind}-uid"] = (private[kind]["uid"],)
    namespace, account = private["namespace"], private["serviceaccount"]
    return Caller(
        f"{PREFIX}{namespace}:{account['name']}",
        (*account_groups(namespace), AUTHENTICATED),
        account["uid"],
        extra,
    )


def account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups that every service account of a namespace is in."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
