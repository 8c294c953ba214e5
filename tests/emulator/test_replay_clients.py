"""What kubectl, Helm and kubelet were seen to read is served, in every form they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpustack_delivery.httpd import Response
from tests.emulator.access_rig import SecuredSession, certificate, secured
from tests.emulator.replay import Json, cases, exchanges
from tests.emulator.rig import WIDGETS, widget

RECORDING = "45-client-request-patterns"
_BY_NAME = {exchange["name"]: exchange for exchange in exchanges(RECORDING)}


@pytest.fixture(scope="module")
def opened() -> Iterator[SecuredSession]:
    """A server with the recordings' widget."""
    with secured() as session:
        session.make("POST", WIDGETS.format("t1"), widget("k1"))
        yield session


def _served(response: Response) -> bool:
    """Say whether there is such a resource, be there such an object or not."""
    if response.status in {200, 304}:
        return True
    assert isinstance(response.body, bytes)
    body: Any = json.loads(response.body) if response.body.startswith(b"{") else {}
    return response.status == 404 and bool(body.get("details", {}).get("name"))


@pytest.mark.parametrize("name", cases(RECORDING))
def test_reads_of_real_clients_are_served(opened: SecuredSession, name: str) -> None:
    """Each read that a real server answered is one that this server knows."""
    recorded: Json = _BY_NAME[name]
    for read in recorded["reads"]:
        headers = {**certificate("kubernetes-admin", "system:masters")}
        if "accept" in read:
            headers["Accept"] = read["accept"]
        response = opened.send("GET", read["path"], headers=headers)
        if not isinstance(response.body, bytes):
            body: Any = response.body
            body.close()
        assert _served(response), (read["path"], response.status, response.body)
