"""Servers that tests run: the one that recordings are played on, and plain models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emulator.api import Api, Steps
from emulator.api_server import ApiServer, Doors
from emulator.client import Client
from emulator.contracts import Attributes, Caller
from emulator.errors import failure
from emulator.patches import FieldPatcher
from gpustack_delivery.httpd import Request
from tests.emulator.replay import FOLDER, Session, SteppingClock

ROOT_CA = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
MERGE = "application/merge-patch+json"
WIDGETS = "/apis/rig.example.io/v1/namespaces/{}/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Json = dict[str, Any]
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Everybody:
    """Lets everyone in as the recordings' admin."""

    def authenticate(self, request: Request) -> Caller:
        """Return the admin, with the agent that the request names."""
        agent = request.headers.get("User-Agent") or ""
        return Caller("admin", ("system:masters", "system:authenticated"), user_agent=agent)


@contextmanager
def session(*, controllers: bool = False) -> Iterator[Session]:
    """Open a session on a fresh server with the recordings' namespaces and its first CRD.

    Most recordings were made of an API server alone; those of its controllers ask for them.
    """
    api = Api(
        SteppingClock(),
        Steps(patcher=FieldPatcher()),
        root_ca=ROOT_CA if controllers else "",
        controllers=controllers,
    )
    try:
        opened = Session(api, ApiServer(api, Doors(authenticator=Everybody())))
        for name in ("t1", "t2"):
            opened.make("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        opened.make(
            "POST", DEFINITIONS, json.loads((FOLDER / "golden" / "widgets.json").read_text("utf-8"))
        )
        yield opened
    finally:
        api.close()


def definition(plural: str, kind: str, *, status: bool = True) -> dict[str, Any]:
    """Return a CRD of the recordings' group that takes any spec and status."""
    schema = {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}
    version: dict[str, Any] = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    if status:
        version["subresources"] = {"status": {}}
    names = {
        "plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List",
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.rig.example.io"},
        "spec": {
            "group": "rig.example.io",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def widget(name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a widget."""
    return {
        "apiVersion": "rig.example.io/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": spec or {"size": 2},
    }


def elsewhere(opened: Session) -> None:
    """Write something that no recording looks at: the version moves on."""
    body = {"metadata": {"generateName": "elsewhere-"}}
    opened.make("POST", "/api/v1/namespaces/kube-public/configmaps", body)


def made(namespace: str, *objects: dict[str, Any]) -> Callable[[Session], None]:
    """Return a hook that creates widgets in a namespace."""

    def before(opened: Session) -> None:
        for object_ in objects:
            opened.make("POST", WIDGETS.format(namespace), object_)

    return before


@contextmanager
def running(steps: Steps | None = None, **options: Any) -> Iterator[Client]:
    """Run one server; give its admin's client."""
    api = Api(SteppingClock(), steps or Steps(patcher=FieldPatcher()), **options)
    try:
        yield Client(api)
    finally:
        api.close()


def config_map(name: str, **data: str) -> Json:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


class Gatekeeper:
    """Admission that notes what it is asked, adds a label, and refuses some deletions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.refusals = 0  # deletions of "dependent" yet to be refused
        self.code = 403

    def mutate(self, attributes: Attributes, warn: Callable[[str], None]) -> Json | None:
        """Label ConfigMaps."""
        self._note("mutate", attributes)
        if attributes.target.resource.plural != "configmaps" or attributes.object is None:
            return None
        attributes.object["metadata"].setdefault("labels", {})["seen"] = "true"
        warn("labelled")
        return attributes.object

    def validate(self, attributes: Attributes, warn: Callable[[str], None]) -> None:
        """Refuse deletions of the dependent, as often as asked."""
        self._note("validate", attributes)
        old = attributes.old_object or {"metadata": {}}
        dependent = old["metadata"].get("name") == "dependent"
        if self.refusals and dependent and attributes.operation == "DELETE":
            self.refusals -= 1
            raise failure(self.code, "Forbidden", "closed")

    def _note(self, step: str, attributes: Attributes) -> None:
        if attributes.target.resource.plural == "configmaps":
            self.asked.append((step, attributes.operation, attributes.target.name))
