"""A hub per test, and clients of the standard library that show an answer as it is."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from emulator.clock import ManualClock
from emulator.hubs import HuggingFaceHub

PATIENCE_SECONDS = 10.0
DATA = bytes(range(256)) * 4000


@dataclass(frozen=True)
class Answer:
    """One answer, whole; `error` tells how the body broke off."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    error: str = ""

    @property
    def json(self) -> Any:
        """The body as a JSON value."""
        return json.loads(self.body)


def ask(
    url: str,
    method: str = "GET",
    *,
    token: str = "",
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> Answer:
    """Send one request and return the answer; redirects are not followed.

    Args:
        headers: further header fields, underscores for hyphens.
    """
    parts = urlsplit(url)
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        fields["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_SECONDS)
    if context:
        connection = http.client.HTTPSConnection(
            parts.netloc, timeout=PATIENCE_SECONDS, context=context
        )
    try:
        connection.request(method, url.partition(parts.netloc)[2], headers=fields)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        body, error = b"", ""
        try:
            body = response.read()
        except http.client.IncompleteRead as broken:
            body, error = broken.partial, "incomplete"
        except ConnectionResetError:
            error = "reset"
        return Answer(response.status, names, body, error)
    finally:
        connection.close()


def eventually(condition: Callable[[], bool]) -> None:
    """Return once a condition holds; other threads need a moment of real time for it.

    Raises:
        AssertionError: it did not within ten seconds.
    """
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS * 200)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("what was waited for did not happen")


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still unless moved."""
    return ManualClock()


@pytest.fixture
def hub(clock: ManualClock) -> Iterator[HuggingFaceHub]:
    """Serve an empty hub over plain HTTP, on the test's clock."""
    with ExitStack() as stack:
        yield stack.enter_context(HuggingFaceHub(clock=clock))


def with_model(hub: HuggingFaceHub) -> HuggingFaceHub:
    """Give a hub one repository with a large file, which is `DATA`, and two small ones."""
    hub.add_repository("org/model", {"model.bin": DATA, "config.json": b"{}", "sub/a.txt": b"a"})
    return hub


def content_url(hub: HuggingFaceHub) -> str:
    """Return a signed URL of the large file."""
    url = f"{hub.url}/org/model/resolve/main/model.bin"
    return ask(url, "HEAD").headers["location"]


def tree_url(hub: HuggingFaceHub) -> str:
    """Return the listing's URL."""
    return f"{hub.url}/api/models/org/model/tree/main?recursive=true"
