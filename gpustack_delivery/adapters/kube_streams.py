"""Answers of the Kubernetes API as they come in: whole, line by line, or piece by piece.

`kube` opens them. What a socket does when it is closed under its reader is understood here, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ssl import SSLCertVerificationError
from typing import Any, Final

from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as TransportTimeout

from gpustack_delivery.adapters.kube_answers import read_change
from gpustack_delivery.errors import Silent, Unreachable
from gpustack_delivery.ports import Change

# The library's transport lets its own errors through unwrapped.
TRANSPORT_ERRORS: Final = (HTTPError, OSError)
_CHUNK_BYTES: Final = 1 << 16


class Stream:
    """An open watch: one JSON object a line; silence past the read timeout ends it."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._reading = False
        self._closed = False

    def __iter__(self) -> Iterator[Change]:
        self._reading = True
        try:
            for line in _lines(self._response):
                yield read_change(line)
        except TransportTimeout:
            return  # nothing happened: whether anybody is there, the next watch finds out
        except (*TRANSPORT_ERRORS, ValueError) as error:
            # A read on a socket that `close` has just shut down fails in many ways, all of them
            # meant.
            if not self._closed:
                raise unreachable(error) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """Wake the reader and end the watch; the reader closes the connection, if there is one."""
        self._closed = True
        with suppress(ValueError, RuntimeError, OSError):  # it had ended by itself
            self._response.shutdown()
        if not self._reading:
            self._response.close()


class PassedOn:
    """The answer to a request that was passed on; satisfies `ports.Reply`."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._reading = False
        self._closed = False
        self.status = int(response.status)

    def header(self, name: str) -> str:
        """Return a header's value, empty when there is none."""
        return str(self._response.headers.get(name, ""))

    def read(self) -> bytes:
        """Return the whole body and end the exchange."""
        return drain(self._response)

    def lines(self) -> Iterator[bytes]:
        """Yield the body's lines as they come."""
        self._reading = True
        try:
            yield from _lines(self._response)
        except TransportTimeout:
            if not self._closed:
                raise Silent("the Kubernetes API has nothing to tell") from None
        except (*TRANSPORT_ERRORS, ValueError) as error:
            if not self._closed:
                raise unreachable(error) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """End the exchange; a reader in another thread wakes and closes the connection."""
        self._closed = True
        with suppress(ValueError, RuntimeError, OSError):  # it had ended by itself
            self._response.shutdown()
        if not self._reading:
            self._response.close()


def drain(response: Any) -> bytes:
    """Return a response's body and give its connection back."""
    try:
        raw: bytes = response.read()
    except TRANSPORT_ERRORS as error:
        raise unreachable(error) from None
    response.release_conn()
    return raw


def unreachable(error: Exception, address: str = "") -> Unreachable:
    """Return the fault that a transport's error is; `address` is the host and port asked."""
    who = f"the Kubernetes API at {address}" if address else "the Kubernetes API"
    why = _reason(error)
    return Unreachable(
        f"{who} does not answer" + (f": {why}" if why else ""),
        detail=f"{type(error).__name__}: {error}",
    )


def _reason(error: BaseException) -> str:
    """Return the system's own words for a transport's error, "" if it has none."""
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        seen.append(found)
        if isinstance(found, SSLCertVerificationError):
            return f"its certificate is not trusted, {found.verify_message}"
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
        inside = (getattr(found, "reason", None), *found.args)
        found = next((e for e in inside if isinstance(e, BaseException)), found.__cause__)
    # Asked last: a refused connection is one of this class too.
    timed_out = any(isinstance(one, TransportTimeout) for one in seen)
    return "no answer in time" if timed_out else ""


def _lines(response: Any) -> Iterator[bytes]:
    rest_of_line = b""
    for chunk in response.stream(_CHUNK_BYTES):
        *whole, rest_of_line = (rest_of_line + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
