"""What the hubs' adapters share: one request, its failures as verdicts, and the shape of answers.

`huggingface` and `modelscope` build on it. Nothing is retried here: whoever asked decides when to
ask again. Rules: NS-FR-01, NS-FR-02, NS-FR-03.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from gpustack_delivery.adapters.http import Answer, CredentialFault, Http, TransportFault
from gpustack_delivery.errors import ConfigurationFault, HubFault, Verdict
from gpustack_delivery.redaction import Token

MAX_ENTRIES: Final = 100_000
INACCESSIBLE: Final = "the repository does not exist or is not accessible with this credential"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def checked_endpoint(endpoint: str) -> str:
    """Return a hub's endpoint without a trailing slash.

    Raises:
        ConfigurationFault: it is no http or https URL with a host, or it carries more than that.
    """
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationFault(
            "the hub's endpoint must be an http or https URL with a host and no credentials"
        )
    return endpoint.rstrip("/")


def call(
    http: Http,
    method: str,
    url: str,
    token: Token | None,
    *,
    follow: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Make one request of a hub's API.

    Raises:
        HubFault: `SourceUnavailable` when no usable answer came, `AccessDenied` when the credential
            cannot even be sent.
    """
    try:
        return http.call(method, url, token=token, follow=follow, headers=headers)
    except CredentialFault as fault:
        raise HubFault(Verdict.ACCESS_DENIED, str(fault)) from fault
    except TransportFault as fault:
        raise HubFault(Verdict.SOURCE_UNAVAILABLE, str(fault), detail=fault.detail) from fault


def decode(answer: Answer, shape: type) -> Any:
    """Return the JSON of an answer, which must be a list or an object as `shape` says.

    Raises:
        HubFault: `SourceUnavailable` when it is anything else.
    """
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, shape):
        raise unavailable("the hub's answer cannot be read; a proxy may have answered in its place")
    return value


def is_commit(text: object) -> bool:
    """Say whether a value is a full commit: 40 lowercase hex digits."""
    return isinstance(text, str) and _COMMIT.fullmatch(text) is not None


def escaped_repository(repository: str) -> str:
    """Return `owner/name` for a URL's path: the one separator kept, each half escaped."""
    return "/".join(quote(half, safe="") for half in repository.split("/", 1))


def unavailable(message: str) -> HubFault:
    """Return the fault of a hub that answers, but not with anything usable."""
    return HubFault(Verdict.SOURCE_UNAVAILABLE, message)


def invalid(message: str) -> HubFault:
    """Return the fault of a listing that cannot be a manifest."""
    return HubFault(Verdict.INVALID_MANIFEST, message)


def too_large() -> HubFault:
    """Return the fault of a listing over the cap."""
    return HubFault(Verdict.MANIFEST_TOO_LARGE, f"the repository has over {MAX_ENTRIES} entries")
