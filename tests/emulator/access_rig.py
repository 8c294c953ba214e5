"""The server that recordings about identity are played on: with tokens, RBAC, node rules, webhooks.

Recorded client certificates come in as a header that the rig turns into what TLS would have found.
Recorded tokens are placeholders: each token that is issued takes the next one, and a request says
by a hook which one it carries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.access import Security, SecurityOptions
from emulator.admission import Chain, NodeRestriction, Policies, Webhooks
from emulator.api import Api, Steps
from emulator.api_server import ApiServer, Doors
from emulator.contracts import Caller, Clock
from emulator.discovery import Discovery, ServerInfo
from emulator.patches import FieldPatcher
from gpustack_delivery.httpd import Request, Response
from tests.emulator.replay import FOLDER, Hook, Json, Session, SteppingClock
from tests.emulator.rig import DEFINITIONS

VERSION = "1.36.2"
ADDRESS = "192.0.2.2:6443"
RBAC = "rbac.authorization.k8s.io"
CERTIFICATE = "X-Client-Certificate"
_JWT = re.compile(r"^[\w-]+\.[\w-]+\.[\w-]+$")
_KEY_IDS = {"kid": "<kid>", "n": "<n>"}


def certificate(user: str, *groups: str) -> dict[str, str]:
    """Return the header of a caller with a client certificate."""
    return {CERTIFICATE: json.dumps([user, *groups])}


ADMIN = certificate("kubernetes-admin", "system:masters")
CALLERS: Mapping[str, Mapping[str, str]] = {
    "": ADMIN,
    "anonymous": {},
    "client certificate: alice": certificate("alice", "dev"),
    "client certificate: node-a": certificate("system:node:node-a", "system:nodes"),
    "client certificate: node-b": certificate("system:node:node-b", "system:nodes"),
}


class Certified:
    """The cluster's own authenticator, behind TLS that has checked the rig's certificates."""

    def __init__(self, security: Security) -> None:
        self._security = security

    def authenticate(self, request: Request) -> Caller:
        """Return the caller."""
        header = request.headers.get(CERTIFICATE)
        if header:
            user, *groups = json.loads(header)
            organizations = [(("organizationName", group),) for group in groups]
            subject = (*organizations, (("commonName", user),))
            request = replace(request, client_certificate={"subject": subject})
        return self._security.authenticator.authenticate(request)


@dataclass
class SecuredSession(Session):
    """A session whose own requests are the admin's, and which knows the tokens it was given."""

    security: Security = field(kw_only=True)
    webhooks: Webhooks = field(kw_only=True)
    clock: Clock = field(kw_only=True)
    tokens: dict[str, str] = field(default_factory=dict)  # placeholder -> token
    _kind_alone: bool = False  # the recording kept nothing but the kind of an answer
    _no_body: bool = False

    def make(self, method: str, path: str, body: Any = None, content_type: str = "") -> Json:
        """Send one request as the admin; it has to succeed."""
        headers = dict(ADMIN) | ({"Content-Type": content_type} if content_type else {})
        response = self.send(method, path, body, headers)
        assert isinstance(response.body, bytes)
        assert response.status < 300, response.body
        found: Json = json.loads(response.body)
        return found

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send one request; what the recordings left out of it was this."""
        return super().send(method, path, body, {"Accept": "application/json", **(headers or {})})

    def carry(self, token: str) -> None:
        """Let requests with a bearer token carry this one from now on."""
        assert isinstance(self.callers, dict)
        self.callers["bearer token"] = {"Authorization": f"Bearer {token}"}

    def _exchange(self, exchange: Json, hook: Hook) -> list[str]:
        recorded = exchange["response"].get("body")
        self._kind_alone = isinstance(recorded, dict) and recorded.keys() == {"kind"}
        self._no_body = exchange["request"]["method"] == "HEAD"  # what the HTTP server sees to
        return super()._exchange(exchange, hook)

    def _body(self, request: Json) -> Any:
        body = super()._body(request)
        if not isinstance(body, dict):
            return body
        text = json.dumps(body)
        for placeholder, token in self.tokens.items():
            text = text.replace(placeholder, token)
        return json.loads(text)

    def _expected(self, recorded: Json) -> Json:
        found: Json = _opened(super()._expected(recorded))
        return found

    def _received(self, response: Response) -> Json:
        received = super()._received(response)
        if self._kind_alone:
            received["body"] = {"kind": received["body"]["kind"]}
        if self._no_body:
            received.pop("body", None)
        token = _issued(received.get("body"))
        if token:
            self.tokens.setdefault(f"<jwt-{len(self.tokens) + 1}>", token)
        text = json.dumps(received)
        for placeholder, known in self.tokens.items():
            text = text.replace(known, placeholder)
        found: Json = _opened(json.loads(text))
        return found


def _issued(body: Any) -> str:
    status = body.get("status") if isinstance(body, dict) else None
    token = status.get("token") if isinstance(status, dict) else None
    return token if isinstance(token, str) and _JWT.match(token) else ""


def _opened(value: Any) -> Any:
    """Bring an answer into a form that can be compared.

    The uid in a credential id is compared as the uid it is; rules come in the order of a cache.
    """
    if isinstance(value, dict):
        opened = {name: _KEY_IDS.get(name) or _opened(held) for name, held in value.items()}
        for name in opened.keys() & {"resourceRules", "nonResourceRules"}:
            opened[name] = sorted(opened[name], key=_sorted_text)
        return opened
    if isinstance(value, list):
        return [_opened(held) for held in value]
    if isinstance(value, str) and value.startswith("JTI="):
        return {"JTI": value.removeprefix("JTI=")}
    if isinstance(value, str) and value.startswith("X509SHA256="):
        return "X509SHA256"
    return value


def _sorted_text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


@contextmanager
def secured(
    kind: type[SecuredSession] = SecuredSession, clock: Clock | None = None, **more: Any
) -> Iterator[SecuredSession]:
    """Open a session with access control on a fresh server with the recordings' CRD."""
    clock, patcher = clock or SteppingClock(), FieldPatcher()
    webhooks, restriction, policies = Webhooks(), NodeRestriction(), Policies()
    admission = Chain(restriction, policies, webhooks)
    security = Security(clock, patcher, SecurityOptions(VERSION), admission)
    api = Api(clock, Steps(security.authorizer, admission, patcher))
    try:
        webhooks.bind(api.store, api)
        policies.bind(api.store, api)
        restriction.bind(api.store)
        security.install(api)
        discovery = Discovery(api, ServerInfo(VERSION, ADDRESS), security.signer)
        server = ApiServer(api, Doors(Certified(security), (discovery,)))
        opened = kind(
            api,
            server,
            callers=dict(CALLERS),
            security=security,
            webhooks=webhooks,
            clock=clock,
            **more,
        )
        for name in ("t1", "t2"):
            opened.make("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        crd = json.loads((FOLDER / "golden" / "widgets.json").read_text("utf-8"))
        opened.make("POST", DEFINITIONS, crd)
        yield opened
    finally:
        api.close()


def pod(name: str, account: str, node: str, **spec: Any) -> Json:
    """Return a Pod of namespace t1."""
    content: Json = {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}
    content |= {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": content | spec}


def core(opened: Session, plural: str, document: Json, *, namespace: str = "t1") -> str:
    """Create a core object; return its uid."""
    place = f"namespaces/{namespace}/{plural}" if namespace else plural
    found: str = opened.make("POST", f"/api/v1/{place}", document)["metadata"]["uid"]
    return found


def allow_agent(opened: Session) -> None:
    """Give the recordings' service account its rights, by the names that answers mention."""
    rule = {
        "apiGroups": ["rig.example.io"], "resources": ["widgets", "widgets/status"], "verbs": ["*"],
    }  # fmt: skip
    root = f"/apis/{RBAC}/v1"
    role = {"metadata": {"name": "rig-agent"}, "rules": [rule]}
    opened.make("POST", f"{root}/clusterroles", role)
    binding = {
        "metadata": {"name": "rig-agent"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "rig-agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": "t1"}],
    }
    opened.make("POST", f"{root}/clusterrolebindings", binding)


def as_token(placeholder: str) -> Callable[[Session], None]:
    """Return a hook after which bearer requests carry a token that was issued earlier."""

    def before(opened: Session) -> None:
        assert isinstance(opened, SecuredSession)
        opened.carry(opened.tokens[placeholder])

    return before
