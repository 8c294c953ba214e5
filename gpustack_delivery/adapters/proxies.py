"""Which proxy a request takes: the specification's rule, in the meaning Go programs give it.

A proxy from the configuration serves https targets only; without one the process environment
decides (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, upper case before lower). In both cases the
noProxy list is read as Go's `httpproxy` reads it: `*`, addresses, networks, `name` (with its
subdomains), `.name` and `*.name` (subdomains alone), each with an optional port; `localhost` and
loopback addresses never take a proxy.

`adapters/http.py` asks it for every hop. Rules: NS-DL-11, NS-FR-01.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

from gpustack_delivery.errors import ConfigurationFault

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_PORTS: Final = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class _Exception:
    """One entry of a noProxy list; exactly one of its first three parts is set."""

    network: _Network | None = None
    address: _Address | None = None
    suffix: str = ""  # begins with a dot
    itself: bool = False  # the name without the dot matches too
    port: str = ""

    def matches(self, host: str, port: str, address: _Address | None) -> bool:
        if self.network is not None:
            return address is not None and address in self.network
        if self.port and self.port != port:
            return False
        if self.address is not None:
            return address == self.address
        return host.endswith(self.suffix) or (self.itself and host == self.suffix[1:])


class ProxyRule:
    """Chooses the proxy of a URL; build one with `configured` or `of_environment`."""

    def __init__(self, proxies: Mapping[str, str], no_proxy: str) -> None:
        self._proxies = dict(proxies)
        entries = [entry.strip().lower() for entry in no_proxy.split(",")]
        self._never = "*" in entries
        self._exceptions = tuple(
            parsed for entry in entries if entry and (parsed := _parse_exception(entry)) is not None
        )

    @classmethod
    def configured(cls, proxy: str, no_proxy: str) -> Self:
        """Build the rule of a configured proxy.

        Raises:
            ConfigurationFault: it is no http or https URL with a host, or it carries credentials.
        """
        checked = _checked(proxy, "the configured proxy")
        if "@" in urlsplit(checked).netloc:
            raise ConfigurationFault("the configured proxy must not carry a user or a password")
        return cls({"https": checked}, no_proxy)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self:
        """Build the rule of the process environment.

        Raises:
            ConfigurationFault: a variable holds no http or https URL with a host.
        """
        proxies = {}
        for scheme in ("http", "https"):
            name = f"{scheme}_proxy"
            value = environment.get(name.upper()) or environment.get(name, "")
            # In a CGI program HTTP_PROXY is a header that the client of the program chose.
            if value and not (scheme == "http" and "REQUEST_METHOD" in environment):
                full = value if "://" in value else f"http://{value}"
                proxies[scheme] = _checked(full, f"the environment's {name.upper()}")
        return cls(proxies, environment.get("NO_PROXY") or environment.get("no_proxy", ""))

    def proxy_for(self, url: str) -> str:
        """Return the proxy's URL for a target, or "" to go there directly."""
        parts = urlsplit(url)
        proxy = self._proxies.get(parts.scheme, "")
        if not proxy or self._never:
            return ""
        host = _ascii((parts.hostname or "").lower())
        port = str(parts.port or _PORTS[parts.scheme])
        address = _address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return ""
        excepted = any(entry.matches(host, port, address) for entry in self._exceptions)
        return "" if excepted else proxy


def _checked(proxy: str, name: str) -> str:
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationFault(f"{name} must be an http or https URL with a host")
    return proxy


def _parse_exception(entry: str) -> _Exception | None:
    """Read one entry in lower case; one that means nothing is left out, as Go leaves it out."""
    if "/" in entry:
        try:
            return _Exception(network=ipaddress.ip_network(entry, strict=False))
        except ValueError:
            pass
    host, port = _split_port(entry)
    if not host:
        return None
    address = _address(host)
    if address is not None:
        return _Exception(address=address, port=port)
    name = host.removeprefix("*") if host.startswith("*.") else host
    suffix = "." + _ascii(name.removeprefix("."))
    return _Exception(suffix=suffix, itself=not name.startswith("."), port=port)


def _split_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""  # a name, or an IPv6 address without brackets


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host
