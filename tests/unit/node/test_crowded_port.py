"""The plugin's HTTPS port answers probes, whoever else holds connections to it open."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack

import pytest

from tests.unit.fakes import eventually
from tests.unit.node.stage import Stage

MANY = 150  # more than the port has places
_ASKING = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("said", [_ASKING, _ASKING[:9]], ids=["idle", "slow"])
def test_probes_are_answered_while_every_connection_is_taken(stage: Stage, said: bytes) -> None:
    """Idle and slow clients cost a bounded number of threads, and keep no probe out."""
    stage.start()
    assert stage.plugin is not None
    address = ("127.0.0.1", stage.plugin.secure_port)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def threads() -> int:
        return sum(thread.name.startswith("endpoints:") for thread in threading.enumerate())

    with ExitStack() as stack:
        for _ in range(MANY):
            client = stack.enter_context(socket.create_connection(address, timeout=20))
            stack.enter_context(context.wrap_socket(client)).sendall(said)
        for path in ("/livez", "/readyz", "/metrics"):
            assert stage.https(path)[0] == 200
        eventually(lambda: threads() < MANY, "the end of those that gave way")
