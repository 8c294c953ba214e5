"""Which requests take the proxy, case by case as Go programs decide it."""

from __future__ import annotations

import pytest

from gpustack_delivery.adapters.proxies import ProxyRule
from gpustack_delivery.errors import ConfigurationFault

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("", "https://hub.example/x", False),
        ("*", "https://hub.example/x", True),
        ("other,*", "https://hub.example/x", True),
        ("hub.example", "https://hub.example/x", True),
        ("hub.example", "https://cdn.hub.example/x", True),
        ("hub.example", "https://nothub.example/x", False),
        (" HUB.example ", "https://Hub.Example/x", True),
        (".hub.example", "https://hub.example/x", False),
        (".hub.example", "https://cdn.hub.example/x", True),
        ("*.hub.example", "https://hub.example/x", False),
        ("*.hub.example", "https://a.b.hub.example/x", True),
        ("hub.example:443", "https://hub.example/x", True),
        ("hub.example:8443", "https://hub.example/x", False),
        ("hub.example:8443", "https://hub.example:8443/x", True),
        ("10.0.0.7", "https://10.0.0.7/x", True),
        ("10.0.0.7:443", "https://10.0.0.7:444/x", False),
        ("10.0.0.0/8", "https://10.200.3.4/x", True),
        ("10.0.0.0/8", "https://11.0.0.1/x", False),
        ("10.0.0.0/8", "https://ten.example/x", False),
        ("fd00::/8", "https://[fd12::1]/x", True),
        ("fd12::1", "https://[fd12::1]/x", True),
        ("[fd12::1]:443", "https://[fd12::1]/x", True),
        ("[fd12::1]:444", "https://[fd12::1]/x", False),
        (":443,,", "https://hub.example/x", False),
        ("bücher.example", "https://xn--bcher-kva.example/x", True),
        ("", "https://localhost/x", True),
        ("", "https://127.0.0.9/x", True),
        ("", "https://[::1]/x", True),
    ],
)
def test_no_proxy_list(no_proxy: str, url: str, *, direct: bool) -> None:
    """Each form of an entry excepts what it excepts in Go, and loopback is always direct."""
    rule = ProxyRule.configured(PROXY, no_proxy)
    assert rule.proxy_for(url) == ("" if direct else PROXY)


def test_configured_proxy_is_for_https_alone() -> None:
    """A target in plain http goes directly, whatever the configured proxy."""
    assert ProxyRule.configured(PROXY, "").proxy_for("http://hub.example/x") == ""


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://p:1",
        "p:3128",
        "//p",
        "http://",
        "https://:80",
        "ftp://p",
        "http://p:x",
        "http://[p",
    ],
)
def test_proxy_that_cannot_be_used_is_refused(proxy: str) -> None:
    """A proxy of another scheme, without a host or unreadable is a fault of the configuration."""
    with pytest.raises(ConfigurationFault, match="must be an http or https URL with a host"):
        ProxyRule.configured(proxy, "")


def test_credentials_in_the_proxy_are_refused_unsaid() -> None:
    """A configured proxy with a password is refused, and the password is not repeated."""
    with pytest.raises(ConfigurationFault, match="must not carry") as caught:
        ProxyRule.configured("http://user:hunter2@p:1", "")
    assert "hunter2" not in f"{caught.value}{caught.value.detail}"


def test_environment_decides_without_a_configured_proxy() -> None:
    """Each scheme has its variable, upper case first, without a scheme meaning http."""
    rule = ProxyRule.of_environment(
        {
            "HTTPS_PROXY": "proxy.example:1",
            "https_proxy": "http://lower.example",
            "http_proxy": "https://plain.example",
            "no_proxy": "direct.example",
        }
    )
    assert rule.proxy_for("https://hub.example/") == "http://proxy.example:1"
    assert rule.proxy_for("http://hub.example/") == "https://plain.example"
    assert rule.proxy_for("https://direct.example/") == ""
    assert ProxyRule.of_environment({}).proxy_for("https://hub.example/") == ""


def test_cgi_header_is_not_taken_for_a_variable() -> None:
    """HTTP_PROXY of a CGI program came from its client and is not obeyed."""
    rule = ProxyRule.of_environment({"HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"})
    assert rule.proxy_for("http://hub.example/") == ""


def test_bad_environment_names_the_variable() -> None:
    """A variable that cannot be used is named; its value, which may hold a password, is not."""
    with pytest.raises(ConfigurationFault, match="HTTPS_PROXY") as caught:
        ProxyRule.of_environment({"HTTPS_PROXY": "socks5://user:hunter2@p:1"})
    assert "hunter2" not in str(caught.value)
