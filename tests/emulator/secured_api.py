"""An API with access control in the same process, and a few people and things in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emulator.access import Security, SecurityOptions
from emulator.api import Api, Steps
from emulator.client import Client
from emulator.clock import ManualClock
from emulator.contracts import Access, Caller, Json, Outcome, Target, WriteOptions
from emulator.patches import FieldPatcher
from gpustack_delivery.httpd import Headers, Request

EXTRA = "authentication.kubernetes.io/"
AGENT = "system:serviceaccount:t1:agent"


class Rig:
    """An API with access control, a namespace, a node, an account and a Pod that runs as it."""

    def __init__(self, kubernetes: str = "1.36") -> None:
        self.clock = ManualClock()
        patcher = FieldPatcher()
        self.security = Security(self.clock, patcher, SecurityOptions(kubernetes))
        steps = Steps(authorizer=self.security.authorizer, patcher=patcher)
        self.api = Api(self.clock, steps)
        self.security.install(self.api)
        self.client = Client(self.api)
        for document in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t1"}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}},
            namespaced("ServiceAccount", "agent"),
            pod("agent-a", "agent", "node-a"),
        ):
            self.client.create(document)

    def uid(self, kind: str, name: str, namespace: str = "t1") -> str:
        """Return the uid of an object."""
        found: str = self.client.get("v1", kind, name, namespace=namespace)["metadata"]["uid"]
        return found

    def token_request(self, spec: Json, account: str = "agent") -> Json:
        """Ask for a token of an account."""
        target = Target(self.api.resource("", "v1", "serviceaccounts"), "t1", account, "token")
        return self._create(target, {"spec": spec}).object

    def review(self, group: str, plural: str, spec: Json, caller: Caller | None = None) -> Json:
        """Post a review and return it."""
        resource = self.api.resource(group, "v1", plural)
        target = Target(resource, "t1" if resource.namespaced else "")
        return self._create(target, {"spec": spec}, caller).object

    def token_review(self, token: str, *audiences: str) -> Json:
        """Return the status of a TokenReview."""
        spec: Json = {"token": token, "audiences": list(audiences)}
        status: Json = self.review("authentication.k8s.io", "tokenreviews", spec)["status"]
        return status

    def _create(self, target: Target, body: Json, caller: Caller | None = None) -> Outcome:
        outcome = self.api.create(caller or self.client.caller, target, body, WriteOptions())
        assert outcome.code == 201
        return outcome

    def authenticate(self, **headers: str) -> Caller:
        """Return who a request with these headers comes from; _ stands for - in their names."""
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = Request("GET", "/", "/", "", Headers(pairs))
        return self.security.authenticator.authenticate(request)

    def allow(self, subject: Json, *rules: Json, namespace: str = "") -> None:
        """Bind rules to a subject, cluster-wide or in a namespace."""
        scope = "" if namespace else "Cluster"
        metadata: Json = {"name": "test"} | ({"namespace": namespace} if namespace else {})
        version = "rbac.authorization.k8s.io/v1"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{scope}Role", "name": "test"}
        self.client.create(
            {"apiVersion": version, "kind": f"{scope}Role", "metadata": metadata, "rules": rules}
        )
        self.client.create(
            {
                "apiVersion": version,
                "kind": f"{scope}RoleBinding",
                "metadata": dict(metadata),
                "roleRef": role,
                "subjects": [subject],
            }
        )

    def decide(self, caller: Caller, verb: str, plural: str, **more: Any) -> tuple[bool, str]:
        """Return the authorizer's answer and its reason."""
        decision = self.security.authorizer.decide(Access(caller, verb, plural=plural, **more))
        return decision.allowed, decision.reason


def namespaced(kind: str, name: str) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "t1"}}


def pod(name: str, account: str, node: str, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "i"}]
    content = {"serviceAccountName": account, "nodeName": node, "containers": containers, **spec}
    return {**namespaced("Pod", name), "spec": content}


@contextmanager
def secured_api(kubernetes: str = "1.36") -> Iterator[Rig]:
    """Run one for the length of a block."""
    made = Rig(kubernetes)
    try:
        yield made
    finally:
        made.api.close()


def claims(token: str) -> Json:
    """Return what a token says."""
    body = token.split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found
