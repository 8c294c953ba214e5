"""What the recording of discovery shows of health, versions and a definition that is new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.access_rig import ADMIN, secured
from tests.emulator.replay import Json, Session, cases, exchanges
from tests.emulator.rig import DEFINITIONS

RECORDING = "01-discovery"
CACHED = "aggregated discovery with If-None-Match"
PLAYED = (
    "healthz",
    "livez",
    "readyz verbose",
    "readyz anonymous",
    "root paths",
    "create the CRD",
    "resource list straight after CRD create (may still be 404)",
    "CRD after Established",
    "timing",
    "openapi v3 index (trimmed)",
)
"""What is compared as it is; the rest of the recording is in test_discovery."""


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """Play those exchanges on a server that lacks the CRD at first."""
    recorded = {exchange["name"]: exchange for exchange in exchanges(RECORDING)}
    with secured() as session:
        session.send("DELETE", f"{DEFINITIONS}/widgets.rig.example.io", None, dict(ADMIN))
        session.api.settle()
        for name in PLAYED:
            session.play_one(recorded[name])
        yield session


@pytest.mark.parametrize("name", [case for case in cases(RECORDING) if case.id in PLAYED])
def test_exchange(played: Session, name: str) -> None:
    """Each exchange is answered as recorded."""
    played.check(name)


@pytest.mark.parametrize("path", ["/apis", "/openapi/v3"])
def test_a_client_is_not_sent_what_it_has(path: str) -> None:
    """304 answers a client that shows what it was given, until a definition changes that."""
    asked = next(one for one in exchanges(RECORDING) if one["name"] == CACHED)["request"]
    with secured() as session:
        headers = {**ADMIN, "Accept": asked["headers"]["Accept"] if path == "/apis" else "*/*"}
        shown = unless_changed(session.send("GET", path, None, headers))
        assert session.send("GET", path, None, {**headers, **shown}).status == 304
        gone = session.send("DELETE", f"{DEFINITIONS}/widgets.rig.example.io", None, dict(ADMIN))
        assert gone.status == 200
        session.api.settle()
        assert session.send("GET", path, None, {**headers, **shown}).status == 200


def unless_changed(response: Any) -> Json:
    """Return the header with which a client asks for what is newer than an answer."""
    headers = {name.lower(): value for name, value in response.headers}
    if "etag" in headers:
        return {"If-None-Match": headers["etag"]}
    return {"If-Modified-Since": headers["last-modified"]}
