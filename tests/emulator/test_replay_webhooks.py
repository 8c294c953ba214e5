"""What webhooks are sent and what their answers do, as recorded on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpustack_delivery.httpd import Response
from tests.emulator.access_rig import SecuredSession, allow_agent, core, pod, secured
from tests.emulator.comparison import differences
from tests.emulator.replay import Hook, Json, Session, cases, exchanges
from tests.emulator.webhook_rig import RecordedHook, recorded_hook

REQUESTS, OUTCOMES = "22-admission-review-requests", "23-webhook-outcomes"
WIDGETS = "/apis/rig.example.io/v1/namespaces/t1/widgets"
GROUP = "/apis/admissionregistration.k8s.io/v1"
_EXPECTED_UID = re.compile(r'expected response\.uid="([0-9a-f-]{36})"')


@dataclass
class HookedSession(SecuredSession):
    """A session whose server has webhooks; what they were sent is compared too."""

    hook: RecordedHook = field(kw_only=True)

    def configure(self, kind: str, webhook: Json) -> None:
        """Leave this webhook alone in the server."""
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            self.make("DELETE", f"{GROUP}/{plural}")
        document = {"metadata": {"name": "rig-wh"}, "webhooks": [webhook]}
        self.make("POST", f"{GROUP}/{kind}webhookconfigurations", document)

    def _exchange(self, exchange: Json, hook: Hook) -> list[str]:
        self.hook.requests.clear()
        found = super()._exchange(exchange, hook)
        if "admissionReviews" in exchange:
            recorded = [_comparable(one) for one in exchange["admissionReviews"]]
            ours = [_comparable(one) for one in self.hook.received()]
            found += differences(recorded, ours, self.bindings)
        return found

    def _body(self, request: Json) -> Any:
        body = super()._body(request)
        if not isinstance(body, dict):
            return body
        return json.loads(
            json.dumps(body).replace("<base64-pem>", self.hook.config({})["caBundle"])
        )

    def _received(self, response: Response) -> Json:
        received = super()._received(response)
        text = self.hook.as_recorded(json.dumps(received))
        opened: Json = json.loads(text.replace(self.hook.config({})["caBundle"], "<base64-pem>"))
        body = opened.get("body")
        if isinstance(body, dict) and isinstance(body.get("message"), str):
            uid = _EXPECTED_UID.search(body["message"])
            if uid:
                self.bindings.uid("<uid-14>", uid[1])
        return opened


def _comparable(review: Json) -> Json:
    """Leave out the length, which depends on how long versions and names happen to be."""
    headers = {k: v for k, v in review["httpHeaders"].items() if k != "Content-Length"}
    opened: Json = _without_ids({**review, "httpHeaders": headers})
    return opened


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_ids(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_without_ids(held) for held in value]
    if isinstance(value, str) and value.startswith(("JTI=", "X509SHA256=")):
        return value.partition("=")[0]
    return value


def _stored_webhook() -> Json:
    """Return the webhook of recording 22, as it was stored."""
    stored = next(one for one in exchanges(REQUESTS) if one["name"].startswith("the configuration"))
    webhook: Json = stored["response"]["body"]["webhooks"][0]
    return webhook


def _hooked(opened: Session) -> HookedSession:
    assert isinstance(opened, HookedSession)
    return opened


def _watching(*resources: str) -> Hook:
    """Return a hook that points the webhook at core resources, everywhere."""

    def before(opened: Session) -> None:
        rule = {
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
            "resources": list(resources), "scope": "*",
        }  # fmt: skip
        session = _hooked(opened)
        webhook = _stored_webhook()
        webhook |= {"clientConfig": session.hook.config(webhook["clientConfig"]), "rules": [rule]}
        session.configure("validating", webhook)

    return Hook(before=before)


def _begin_requests(opened: Session) -> None:
    session = _hooked(opened)
    core(opened, "serviceaccounts", {"metadata": {"name": "agent"}})
    core(opened, "nodes", {"metadata": {"name": "node-a"}}, namespace="")
    core(opened, "pods", pod("agent-a", "agent", "node-a"))
    allow_agent(opened)
    session.carry(session.security.account_token("t1", "agent", pod="agent-a"))
    webhook = _stored_webhook()
    session.configure(
        "validating", webhook | {"clientConfig": session.hook.config(webhook["clientConfig"])}
    )


REQUEST_HOOKS = {
    "CREATE by the pod-bound service account token": Hook(before=_begin_requests),
    "Pod CREATE": _watching("pods", "pods/binding", "pods/eviction"),
    "TokenRequest": _watching("serviceaccounts/token"),
}


def _before_outcome(exchange: Json) -> Hook:
    """Return the hook that configures the webhook as it was for one recorded outcome."""

    def before(opened: Session) -> None:
        session = _hooked(opened)
        recorded = exchange["webhook"]
        kind = "mutating" if "mutating" in exchange["name"] else "validating"
        trusted = "not signed" not in exchange["name"]
        client = session.hook.config(recorded["clientConfig"], trusted=trusted)
        session.configure(kind, recorded["configuration"] | {"clientConfig": client})

    return Hook(before=before)


def _outcome_hooks() -> dict[str, Hook]:
    found = {
        exchange["name"]: _before_outcome(exchange)
        for exchange in exchanges(OUTCOMES)
        if "webhook" in exchange
    }

    def denying(opened: Session) -> None:
        session = _hooked(opened)
        denial = exchanges(OUTCOMES)[0]
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            opened.make("DELETE", f"{GROUP}/{plural}")
        widget = {"apiVersion": "rig.example.io/v1", "kind": "Widget", "metadata": {"name": "a"}}
        opened.make("POST", WIDGETS, {**widget, "spec": {"size": 2}})
        client = session.hook.config(denial["webhook"]["clientConfig"])
        session.configure(
            "validating", denial["webhook"]["configuration"] | {"clientConfig": client}
        )

    found["denied UPDATE of /status (merge-patch)"] = Hook(before=denying)
    return found


def _played(recording: str, hooks: Mapping[str, Hook]) -> Iterator[Session]:
    with recorded_hook() as hook, secured(HookedSession, hook=hook) as opened:
        yield opened.play(recording, hooks)


@pytest.fixture(scope="module")
def requests() -> Iterator[Session]:
    """The recording of requests, played once."""
    yield from _played(REQUESTS, REQUEST_HOOKS)


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Session]:
    """The recording of outcomes, played once."""
    yield from _played(OUTCOMES, _outcome_hooks())


@pytest.mark.parametrize("name", cases(REQUESTS))
def test_reviews_as_recorded(requests: Session, name: str) -> None:
    """One write has the recorded answer, and its webhook got the recorded requests."""
    requests.check(name)


@pytest.mark.parametrize("name", cases(OUTCOMES))
def test_outcomes_as_recorded(outcomes: Session, name: str) -> None:
    """One outcome of a webhook gives the recorded answer."""
    outcomes.check(name)
