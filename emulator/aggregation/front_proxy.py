"""Who the API server is to the servers behind it, and how it tells them who asked.

A server behind the aggregator believes the X-Remote-* headers of a request because it came with a
client certificate of the request-header CA. CA, names and header names are public in the ConfigMap
`kube-system/extension-apiserver-authentication`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

from emulator.access.features import Features
from emulator.contracts import Caller, Json
from gpustack_delivery.httpd.certificates import Authority

CLIENT_NAME = "front-proxy-client"
CONFIGURATION = "extension-apiserver-authentication"
READER = "extension-apiserver-authentication-reader"
CHECKER = Caller("system:kube-aggregator", ("system:masters",))
"""As whom availability is checked and discovery is read."""

_REMOTE = "x-remote-"
_KEPT_IN_NAMES = "!#$&'*+-.^_`|~"
_WORD = re.compile(r"[^-]+")


class FrontProxy:
    """The request-header CA, the certificate it issued to the API server, and the headers."""

    def __init__(self, features: Features, client_ca_pem: str) -> None:
        """`client_ca_pem` signs the clients' own certificates; it is published as well."""
        authority = Authority("front-proxy-ca")
        self.authority_pem = authority.certificate_pem
        self.pair = authority.issue(CLIENT_NAME, client=True)
        self._client_ca_pem = client_ca_pem
        self._tells_uid = features.minor >= 33

    def headers(self, caller: Caller) -> Iterator[tuple[str, str]]:
        """Yield the headers that say who asks."""
        yield "X-Remote-User", caller.name
        if self._tells_uid and caller.uid:
            yield "X-Remote-Uid", caller.uid
        for group in caller.groups:
            yield "X-Remote-Group", group
        for key, values in caller.extra.items():
            for value in values:
                yield _canonical(f"X-Remote-Extra-{quote(key, safe=_KEPT_IN_NAMES)}"), value

    def objects(self) -> Iterator[Json]:
        """Yield the ConfigMap that publishes all this, and the Role that may read it."""
        meta = {"namespace": "kube-system"}
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "name": CONFIGURATION},
            "data": {
                "client-ca-file": self._client_ca_pem,
                "requestheader-allowed-names": json.dumps([CLIENT_NAME]),
                "requestheader-client-ca-file": self.authority_pem,
                "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
                "requestheader-group-headers": '["X-Remote-Group"]',
                **({"requestheader-uid-headers": '["X-Remote-Uid"]'} if self._tells_uid else {}),
                "requestheader-username-headers": '["X-Remote-User"]',
            },
        }
        rule = {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [CONFIGURATION],
            "verbs": ["get", "list", "watch"],
        }
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {
                **meta,
                "name": READER,
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            },
            "rules": [rule],
        }


def names_somebody(header: str) -> bool:
    """Say whether a header claims an identity, and so never passes the front from outside."""
    lower = header.lower()
    return lower == "authorization" or lower.startswith((_REMOTE, "impersonate-"))


def _canonical(name: str) -> str:
    """Return a header name as a Go program writes it: a capital letter after each hyphen."""
    return _WORD.sub(lambda word: word[0][:1].upper() + word[0][1:].lower(), name)
