"""From an HTTP request to a caller: bearer tokens, client certificates, nobody, and impersonation.

A credential that is there must hold: a bad token is 401, also where anonymous would be let in. A
request without any is system:anonymous.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from emulator.access.accounts import (
    AUTHENTICATED,
    PREFIX,
    Accepted,
    ServiceAccounts,
    account_groups,
)
from emulator.access.features import Features
from emulator.access.tokens import TokenFault
from emulator.contracts import Access, Authorizer, Caller
from emulator.errors import ApiError, access_denied, bad_request, internal, unauthorized
from emulator.routes import parse
from gpustack_delivery.httpd import Headers, Request

ANONYMOUS = Caller("system:anonymous", ("system:unauthenticated",))
_CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_IMPERSONATE_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


class Credentials:
    """Who a credential belongs to: users with a fixed token, and service accounts."""

    def __init__(self, accounts: ServiceAccounts, audiences: Sequence[str]) -> None:
        """`audiences` are the API server's own: what a token must be for to be used against it."""
        self._accounts = accounts
        self.audiences = tuple(audiences)
        self._lock = threading.Lock()
        self._users: dict[str, Caller] = {}
        self._revoked: set[str] = set()

    def revoke(self, token: str) -> None:
        """Let a token hold no longer, as if its time had come."""
        with self._lock:
            self._revoked.add(token)

    def add(self, token: str, caller: Caller) -> None:
        """Let a token stand for a user; one it stood for before is replaced."""
        with self._lock:
            self._users[token] = caller

    def judge(self, token: str, audiences: Sequence[str] = ()) -> Accepted:
        """Return whose token this is; no audiences means the API server's. Raises TokenFault."""
        with self._lock:
            user = self._users.get(token)
            revoked = token in self._revoked
        if revoked:
            raise TokenFault("service account token has expired")
        if user is not None:
            return Accepted(user, tuple(audiences or self.audiences))
        return self._accounts.judge(token, audiences or self.audiences)


class RequestAuthenticator:
    """Finds out who sent a request."""

    def __init__(
        self, credentials: Credentials, authorizer: Authorizer, features: Features
    ) -> None:
        """The authorizer is asked whether a caller may impersonate."""
        self._credentials, self._authorizer = credentials, authorizer
        self._features = features

    def authenticate(self, request: Request) -> Caller:
        """Return the caller, impersonation applied.

        Raises:
            ApiError: 401 for a credential that does not hold, 403 for impersonation that is not
                allowed, 500 for impersonation headers that name no user.
        """
        agent = request.headers.get("User-Agent") or ""
        caller = self._sender(request)
        if caller.user_agent != agent:
            caller = replace(caller, user_agent=agent)
        return self._impersonated(caller, request)

    def _sender(self, request: Request) -> Caller:
        if request.client_certificate:
            return certificate_caller(request.client_certificate, self._features)
        header = request.headers.get("Authorization") or ""
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        try:
            return self._credentials.judge(token).caller
        except TokenFault:
            raise unauthorized() from None

    def _impersonated(self, caller: Caller, request: Request) -> Caller:
        headers = request.headers
        name = headers.get("Impersonate-User") or ""
        groups = tuple(headers.get_all("Impersonate-Group"))
        uid = headers.get("Impersonate-Uid") or ""
        extra = _impersonated_extra(headers)
        if not name:
            if groups or uid or extra:
                raise internal("Internal error occurred: requested impersonation without a user")
            return caller
        for access in _impersonations(caller, Caller(name, groups, uid, extra)):
            decision = self._authorizer.decide(access)
            if not decision.allowed:
                raise self._impersonation_denied(caller, access, decision.reason, request)
        if name.startswith(PREFIX) and not groups:
            groups = account_groups(name.removeprefix(PREFIX).partition(":")[0])
        everyone = "system:unauthenticated" if name == ANONYMOUS.name else AUTHENTICATED
        if everyone not in groups:
            groups = (*groups, everyone)
        return Caller(name, groups, uid, extra, caller.user_agent)

    def _impersonation_denied(
        self, caller: Caller, access: Access, reason: str, request: Request
    ) -> ApiError:
        """Return the refusal: newer servers name the verb that the impersonated user was meant for.

        They try the right to impersonate for this one verb last, so that is what they report.
        """
        if not self._features.constrained_impersonation:
            return access_denied(access, reason)
        route = parse(request.method, request.path, request.query)
        mode = {"serviceaccounts": "serviceaccount"}.get(access.plural, "user-info")
        asked = Access(
            caller,
            f"impersonate-on:{mode}:{route.verb}",
            route.group,
            route.version,
            route.plural,
            route.subresource,
            route.namespace,
            route.name,
            "" if route.plural else route.path,
        )
        return access_denied(asked, reason)


def _impersonated_extra(headers: Headers) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        if name.lower().startswith(_IMPERSONATE_EXTRA):
            key = unquote(name.lower().removeprefix(_IMPERSONATE_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    return extra


def _impersonations(caller: Caller, wanted: Caller) -> list[Access]:
    """Return what a caller must be allowed to do to become someone else."""
    account = wanted.name.removeprefix(PREFIX)
    if account != wanted.name:
        namespace, colon, name = account.partition(":")
        if not colon:
            raise bad_request(f"{wanted.name} is not the name of a service account")
        asked = [
            Access(caller, "impersonate", plural="serviceaccounts", namespace=namespace, name=name)
        ]
    else:
        asked = [Access(caller, "impersonate", plural="users", name=wanted.name)]
    for group in wanted.groups:
        asked.append(Access(caller, "impersonate", plural="groups", name=group))
    if wanted.uid:
        uid = Access(caller, "impersonate", _AUTHENTICATION, "v1", "uids", name=wanted.uid)
        asked.append(uid)
    for key, values in wanted.extra.items():
        for value in values:
            asked.append(
                Access(
                    caller,
                    "impersonate",
                    _AUTHENTICATION,
                    "v1",
                    "userextras",
                    subresource=key,
                    name=value,
                )
            )
    return asked


def certificate_caller(certificate: Mapping[str, Any], features: Features) -> Caller:
    """Return the user that a verified client certificate names: common name and organizations."""
    names: dict[str, list[str]] = {}
    for relative in certificate.get("subject", ()):
        for key, value in relative:
            names.setdefault(key, []).append(value)
    groups = (*names.get("organizationName", ()), AUTHENTICATED)
    extra: dict[str, tuple[str, ...]] = {}
    if features.certificate_has_id:
        # The real id is the digest of the DER form, which the TLS layer does not hand out here;
        # this one is as unique to the certificate.
        content = json.dumps(dict(certificate), sort_keys=True, default=str).encode()
        extra[_CREDENTIAL_ID] = (f"X509SHA256={hashlib.sha256(content).hexdigest()}",)
    return Caller(next(iter(names.get("commonName", ())), ""), groups, "", extra)
