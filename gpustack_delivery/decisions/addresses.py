"""Whether an address can be used at all: hub endpoints, proxies, repositories, object names.

Each check returns what is wrong, in words for the person who wrote the value, or "" when nothing
is. It never repeats the value: a proxy may hold a password.

Rules: OP-SET-01, NS-FR-01, AR-RES-04.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

_MAX_LENGTH: Final = 2048
_REPOSITORY_PART: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def endpoint_fault(url: str) -> str:
    """Say what keeps a URL from being a hub's endpoint."""
    fault = _url_fault(url)
    if fault:
        return fault
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        return "must not have a query or a fragment"
    return ""


def proxy_fault(url: str) -> str:
    """Say what keeps a URL from being a proxy."""
    return _url_fault(url)


def _url_fault(url: str) -> str:
    if len(url) > _MAX_LENGTH or not url.isprintable() or " " in url or "\\" in url:
        return "must be a URL without spaces, backslashes or control characters"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "must be a URL with a valid host and port"
    if parts.scheme not in {"http", "https"} or not host:
        return "must be an absolute http or https URL with a host"
    if "@" in parts.netloc:
        return "must not hold credentials"
    return ""


def object_name_fault(name: str) -> str:
    """Say what keeps a text from being a Kubernetes object's name."""
    if _OBJECT_NAME.fullmatch(name) and ".." not in name:
        return ""
    return "must be an object's name: lowercase letters, digits, '-' and '.'"


def listening_fault(host: str) -> str:
    """Say what keeps a text from being an address to listen on."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "must be an IPv4 or IPv6 address such as 0.0.0.0 or ::"
    return ""


def is_repository(name: str) -> bool:
    """Say whether a text names a hub's repository: `NAME` or `OWNER/NAME`."""
    parts = name.split("/")
    return len(parts) <= 2 and all(
        _REPOSITORY_PART.fullmatch(part) and "--" not in part and ".." not in part for part in parts
    )


def plain_text_fault(text: str) -> str:
    """Say what keeps a text from being one plain line."""
    if len(text) > _MAX_LENGTH or not text.isprintable() or "\N{REPLACEMENT CHARACTER}" in text:
        return "must be one line of plain text"
    return ""
