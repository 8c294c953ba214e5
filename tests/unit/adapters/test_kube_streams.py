"""How an open watch ends: quietly in silence, with a fault when its connection breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError
from urllib3.poolmanager import PoolManager

from gpustack_delivery.adapters.kube_streams import PassedOn, Stream
from gpustack_delivery.errors import Silent, Unreachable

EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}\n'


class Answer:
    """An answer that tells of one change and then fails as the transport fails."""

    def __init__(self, error: HTTPError) -> None:
        self._error = error
        self.status = 200
        self.closed = False

    def stream(self, _size: int) -> Iterator[bytes]:
        """Yield the change, then raise."""
        yield EVENT
        raise self._error

    def close(self) -> None:
        """Note it."""
        self.closed = True


def test_a_watch_of_a_kind_at_rest_just_ends() -> None:
    """A server may send no bookmark of a kind in which nothing happens; that is no fault."""
    with PoolManager() as pools:
        pool = pools.connection_from_url("https://api.test")
        answer = Answer(ReadTimeoutError(pool, "/api/v1/nodes", "Read timed out."))
        assert [change.type for change in Stream(answer)] == ["ADDED"]
    assert answer.closed


def test_the_silence_of_a_request_passed_on_has_a_name() -> None:
    """Whoever passes a watch on can tell that nothing happened from a broken connection."""
    with PoolManager() as pools:
        silence = ReadTimeoutError(pools.connection_from_url("https://api.test"), "/", "late")
    for error, fault in ((silence, Silent), (ProtocolError("broke"), Unreachable)):
        answer = Answer(error)
        lines = PassedOn(answer).lines()
        assert next(lines) == EVENT.strip()
        with pytest.raises(Unreachable) as raised:
            next(lines)
        assert (type(raised.value), answer.closed) == (fault, True)


def test_a_watch_whose_connection_breaks_is_a_fault() -> None:
    """What the server said until then is told first."""
    answer = Answer(ProtocolError("Response ended prematurely"))
    watch = iter(Stream(answer))
    assert next(watch).type == "ADDED"
    with pytest.raises(Unreachable):
        next(watch)
    assert answer.closed
