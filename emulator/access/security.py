"""The access room put together: one object that a cluster makes, hands to its API server, and asks
for tokens.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

from emulator.access import bootstrap
from emulator.access.accounts import (
    AUTHENTICATED,
    PREFIX,
    Grant,
    Objects,
    Reference,
    ServiceAccounts,
)
from emulator.access.answers import Stamp
from emulator.access.authentication import Credentials, RequestAuthenticator
from emulator.access.features import Features
from emulator.access.node import NodeAuthorizer
from emulator.access.rbac import Rbac
from emulator.access.reviews import Reviews
from emulator.access.token_request import TokenRequests
from emulator.access.tokens import Signer
from emulator.contracts import (
    ADMIN,
    Admission,
    Authorizer,
    Caller,
    Clock,
    Json,
    Outcome,
    Patcher,
    Resource,
    Target,
    Virtual,
    WriteOptions,
)

ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Which version is played, and under which name tokens are issued."""

    kubernetes: str = "1.30"
    issuer: str = ISSUER


class Served(Protocol):
    """What of the API this room needs; `api.Api` has it."""

    @property
    def store(self) -> Objects:
        """Return read access to what is stored."""

    def resource(self, group: str, version: str, plural: str) -> Resource:
        """Return a served resource."""

    def register(self, resource: Resource, subresource: str, virtual: Virtual) -> None:
        """Answer creates by a function."""

    def create(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions = ...
    ) -> Outcome:
        """Create an object."""


class Security:
    """Authentication, authorization, tokens and reviews of one cluster. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        patcher: Patcher,
        options: SecurityOptions = SecurityOptions(),
        admission: Admission | None = None,
    ) -> None:
        """`patcher` writes managedFields into reviews; `admission` sees token requests."""
        self.features = Features.of(options.kubernetes)
        self.signer = Signer(options.issuer)
        self.audiences = (options.issuer,)
        self.accounts = ServiceAccounts(self.signer, clock, self.features)
        self.credentials = Credentials(self.accounts, self.audiences)
        self.rbac = Rbac()
        self.nodes = NodeAuthorizer(self.rbac)
        self.authorizer: Authorizer = self.nodes
        self.authenticator = RequestAuthenticator(self.credentials, self.authorizer, self.features)
        self._stamp = Stamp(patcher, clock)
        self._admission = admission
        self._objects: Objects | None = None

    def install(self, api: Served) -> None:
        """Bind to an API: read its objects, answer its reviews and create the first roles."""
        self._objects = api.store
        for reader in (self.accounts, self.rbac, self.nodes):
            reader.bind(api.store)
        reviews = Reviews(self.credentials, self.authorizer, self.rbac, self._stamp)
        for (group, plural), virtual in reviews.virtuals().items():
            api.register(api.resource(group, "v1", plural), "", virtual)
        tokens = TokenRequests(
            self.accounts, api.store, self._stamp, self.audiences, self.features, self._admission
        )
        api.register(api.resource("", "v1", "serviceaccounts"), "token", tokens)
        for document in bootstrap.objects():
            plural = document["kind"].lower() + "s"
            resource = api.resource("rbac.authorization.k8s.io", "v1", plural)
            api.create(ADMIN, Target(resource, "", document["metadata"]["name"]), document)

    def add_user(self, name: str, *groups: str) -> str:
        """Return a new token that stands for a user until the cluster ends."""
        token = secrets.token_urlsafe(32)
        self.credentials.add(token, Caller(name, (*groups, AUTHENTICATED)))
        return token

    def account_token(
        self,
        namespace: str,
        name: str,
        *,
        pod: str = "",
        audiences: tuple[str, ...] = (),
        seconds: int = 3600,
    ) -> str:
        """Return a token of a service account, bound to one of its Pods when `pod` names it.

        Raises:
            LookupError: the account, or the Pod, does not exist.
        """
        account = self._found("serviceaccounts", namespace, name)
        bound = {}
        if pod:
            found = self._found("pods", namespace, pod)
            bound["pod"] = Reference(pod, found["metadata"]["uid"])
            node = found["spec"].get("nodeName", "")
            if node and self.features.token_names_node:
                bound["node"] = Reference(node, self._found("nodes", "", node)["metadata"]["uid"])
        owner = Reference(name, account["metadata"]["uid"])
        grant = Grant(namespace, owner, audiences or self.audiences, seconds, bound)
        return self.accounts.issue(grant)[0]

    def user_token(self, user: str, pod: tuple[str, str] | None = None) -> str:
        """Return a token for a user name: an account's when it is one, else a new user's.

        `admin` is the cluster administrator. Raises LookupError for an account that is not there.
        """
        if user.startswith(PREFIX):
            namespace, _, name = user.removeprefix(PREFIX).partition(":")
            return self.account_token(namespace, name, pod=pod[1] if pod else "")
        if user == "admin":
            return self.add_user(ADMIN.name, "system:masters")
        return self.add_user(user)

    def _found(self, plural: str, namespace: str, name: str) -> Json:
        found = self._objects.get(("", plural), namespace, name) if self._objects else None
        if found is None:
            place = f" in namespace {namespace}" if namespace else ""
            raise LookupError(
                f"there is no {plural.removesuffix('s')} {name}{place}: create it first"
            )
        return found
