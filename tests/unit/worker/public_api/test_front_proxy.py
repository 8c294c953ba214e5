"""Whom the public API believes: the front proxy's certificate, and nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.worker.public_api.front_proxy import Caller, FrontProxy
from gpustack_delivery.worker.public_api.statuses import Refused

HEADERS = (
    ("X-Remote-User", "ada"),
    ("X-Remote-Group", "team"),
    ("x-remote-group", "system:authenticated"),
    ("X-Remote-Extra-Authentication.kubernetes.io%2fnode-Name", "node-a"),
    ("X-Remote-Extra-Scopes", "a"),
    ("X-Remote-Extra-Scopes", "b"),
)


def config_map(**changes: Any) -> dict[str, Any]:
    """Return the ConfigMap as an API server publishes it, with changes."""
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return {"data": {**data, **changes}}


def request(name: str | None, headers: tuple[tuple[str, str], ...] = HEADERS) -> Request:
    """Return a request with the certificate of a name, None for one without a certificate."""
    subject = ((("organizationName", "o"),), (("commonName", name),))
    certificate = None if name is None else {"subject": subject}
    return Request("GET", "/", "/", "", Headers(headers), client_certificate=certificate)


def test_reads_who_asked() -> None:
    """User, groups and extras come from the headers, an extra's key unescaped and in lower case."""
    caller = FrontProxy.from_wire(config_map()).caller(request("front-proxy-client"))
    assert caller == Caller(
        "ada",
        ("team", "system:authenticated"),
        "",
        {"authentication.kubernetes.io/node-name": ("node-a",), "scopes": ("a", "b")},
    )


@pytest.mark.parametrize("name", [None, "somebody", ""])
def test_headers_alone_are_nobody(name: str | None) -> None:
    """Without the certificate, or with another name in it, the headers count for nothing."""
    with pytest.raises(Refused) as refused:
        FrontProxy.from_wire(config_map()).caller(request(name))
    assert refused.value.code == 401


def test_no_names_allow_every_certificate_of_the_ca() -> None:
    """An empty list of names leaves the CA alone to decide; a user must still be named."""
    proxy = FrontProxy.from_wire(config_map(**{"requestheader-allowed-names": "[]"}))
    assert proxy.caller(request("anything")).username == "ada"
    with pytest.raises(Refused):
        proxy.caller(request("anything", headers=()))


@pytest.mark.parametrize(
    "changes",
    [
        {"requestheader-client-ca-file": ""},
        {"requestheader-username-headers": "[]"},
        {"requestheader-allowed-names": "front-proxy-client"},
        {"requestheader-allowed-names": json.dumps([1])},
    ],
)
def test_a_cluster_without_front_proxy_is_said(changes: dict[str, str]) -> None:
    """What cannot be believed is a fault of the configuration, never an open door."""
    with pytest.raises(ConfigurationFault):
        FrontProxy.from_wire(config_map(**changes))
