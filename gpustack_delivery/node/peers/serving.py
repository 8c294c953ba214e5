"""What a node lets other plugins read: the listings and the files of its published trees.

    GET /peer/v1/trees/{hex}                  the listing, as it was stored at publication
    GET /peer/v1/trees/{hex}/files/{path}     one file, or one range of it

A path is looked up in the listing, letter by letter after one decoding: what is not listed does not
exist, and so no spelling of `..` leads anywhere. The file is then opened one directory after the
other without following a symlink, should somebody have put one into the tree.

At most so many file answers run at once; the next ones wait. A tree that is collected while it is
being read stays readable to its end. Several ranges in one request are answered with the whole
file, as HTTP allows.

Rules: PS-SRV-01, PS-SRV-02, PS-SRV-03.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from gpustack_delivery.errors import ApiFault
from gpustack_delivery.httpd import FileSlice, Limits, Request, Response, Server
from gpustack_delivery.httpd.certificates import self_signed, server_context
from gpustack_delivery.node.cache import digest_of
from gpustack_delivery.node.trees import Trees
from gpustack_delivery.ports import Clock
from gpustack_delivery.redaction import Token

PREFIX: Final = "/peer/v1/trees/"
HEADER_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 10.0
STANDING_PLACES: Final = 256  # for those who ask for a listing, wait for a seat, or keep alive
_BEARER: Final = re.compile(r"Bearer +([!-~]+) *", re.IGNORECASE)
_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
_log = logging.getLogger(__name__)


class _Answered(Exception):
    """The request is answered without content.

    Args:
        status: the HTTP status.
        words: the `error` of the body.
        headers: what the answer says besides.
    """

    def __init__(self, status: int, words: str, *headers: tuple[str, str]) -> None:
        super().__init__(words)
        self.status = status
        self.headers = headers


class Seats:
    """The file answers that may run at once. Thread-safe."""

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self.count = count
        self._free = count
        self._closed = False

    def take(self) -> bool:
        """Wait for a seat; False when serving ends meanwhile."""
        with self._changed:
            while self._free == 0 and not self._closed:
                self._clock.wait(self._changed, None)
            if self._closed:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        """Free a seat."""
        with self._changed:
            self._free += 1
            self._changed.notify()

    def close(self) -> None:
        """Send everyone away who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class PeerServer:
    """The listener for other plugins, from `start` to `stop`.

    Args:
        address: host and port to listen on; port 0 takes a free one.
        trees: what is served.
        seats: how many file answers run at once.
        admits: judges a bearer token, may raise ApiFault; None admits everybody.
    """

    def __init__(
        self,
        address: tuple[str, int],
        trees: Trees,
        seats: Seats,
        admits: Callable[[Token], bool] | None,
    ) -> None:
        host, port = address
        self._trees = trees
        self._seats = seats
        self._admits = admits
        # Peers do not verify it: what they receive is proven by its digest.
        context = server_context(self_signed(["localhost", "127.0.0.1"]))
        limits = Limits(
            header_seconds=HEADER_SECONDS,
            body_bytes=0,
            connections=seats.count + STANDING_PLACES,
        )
        self._server = Server(
            self._handle, name="peers", host=host, port=port, tls=context, limits=limits
        )

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._server.port

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._server.start()

    def stop(self) -> None:
        """Close; answers that run get some seconds to end. Safe twice."""
        self._seats.close()
        self._server.stop(drain_seconds=DRAIN_SECONDS)

    def _handle(self, request: Request) -> Response:
        try:
            self._check_caller(request)
            if request.method not in ("GET", "HEAD"):
                raise _Answered(405, "only GET is answered", ("Allow", "GET, HEAD"))
            return self._answer(request)
        except _Answered as refusal:
            return _refusal(refusal)

    def _check_caller(self, request: Request) -> None:
        if self._admits is None:
            return
        found = _BEARER.fullmatch(request.headers.get("Authorization") or "")
        try:
            if found is not None and self._admits(Token(found[1])):
                return
        except ApiFault as fault:
            _log.warning("a peer's token could not be reviewed: %s (%s)", fault, fault.detail)
            raise _Answered(503, "the token cannot be reviewed now, ask again") from None
        raise _Answered(401, "a plugin's token is required", ("WWW-Authenticate", "Bearer"))

    def _answer(self, request: Request) -> Response:
        if not request.path.startswith(PREFIX):
            raise _Answered(404, "there is nothing here")
        name, slash, rest = request.path.removeprefix(PREFIX).partition("/")
        digest = digest_of(name)
        if digest is None:
            raise _Answered(400, "a tree is named by the 64 hex digits of its digest")
        if slash and not rest.startswith("files/"):
            raise _Answered(404, "there is nothing here")
        directory = self._trees.directory(digest)
        if directory is None:
            raise _Answered(404, "the tree is not published on this node")
        if not slash:
            return self._listing(digest, directory)
        return self._file(request, digest, directory / "tree", rest.removeprefix("files/"))

    def _listing(self, digest: str, directory: Path) -> Response:
        manifest = self._trees.manifest(digest)
        if manifest is None:
            if (directory / "manifest.json").exists():
                raise _Answered(500, "the stored listing is damaged")
            raise _Answered(404, "the tree has no stored listing")
        entries = [
            {"path": entry.path, "size": entry.size_bytes, "digest": entry.digest}
            for entry in manifest.entries
        ]
        body = msgspec.json.encode({"digest": digest, "entries": entries})
        return Response(200, [("Content-Type", "application/json")], body)

    def _file(self, request: Request, digest: str, tree: Path, encoded: str) -> Response:
        manifest = self._trees.manifest(digest)
        path = unquote_to_bytes(encoded).decode("utf-8", "surrogateescape")
        entry = None if manifest is None else manifest.by_path.get(path)
        if entry is None:
            raise _Answered(404, "the tree has no such file")
        wanted = _wanted(request, entry.size_bytes)
        start, end = wanted or (0, entry.size_bytes)
        headers = [("Content-Type", "application/octet-stream"), ("Accept-Ranges", "bytes")]
        if wanted:
            headers.append(("Content-Range", f"bytes {start}-{end - 1}/{entry.size_bytes}"))
        if not self._seats.take():
            raise _Answered(503, "the plugin is stopping")
        try:
            file = os.fdopen(_open(tree, path, entry.size_bytes), "rb")
        except OSError as error:
            self._seats.give_back()
            _log.error("a published file cannot be read: digest=%s error=%s", digest, error)
            raise _Answered(500, "the file cannot be read") from None
        except BaseException:
            self._seats.give_back()
            raise
        return Response(
            206 if wanted else 200,
            headers,
            FileSlice(file, start, end - start),
            done=lambda _sent: self._seats.give_back(),
        )


def _wanted(request: Request, size: int) -> tuple[int, int] | None:
    """Return where the one range that is asked for begins and has ended; None for the whole file.

    What is no single byte range is answered with the whole file, as RFC 9110 allows: several at
    once, other units, and what is no range at all. So is `If-Range`: nothing here has a validator.

    Raises:
        _Answered: the file ends before the range begins.
    """
    found = _RANGE.fullmatch((request.headers.get("Range") or "").strip())
    if found is None or request.method != "GET" or "If-Range" in request.headers:
        return None
    first, last = found.groups()
    if not (first or last) or (first and last and int(last) < int(first)):
        return None
    if first:
        start, end = int(first), min(size, int(last) + 1 if last else size)
    else:
        start, end = max(0, size - int(last)), size
    if start >= end:
        raise _Answered(416, "the file ends before that", ("Content-Range", f"bytes */{size}"))
    return start, end


def _open(tree: Path, path: str, size_bytes: int) -> int:
    """Open a tree's file without following a symlink.

    Raises:
        OSError: something else than that file stands there.
    """
    *folders, name = path.split("/")
    folder = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        for segment in folders:
            below = os.open(segment, flags | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != size_bytes:
        os.close(descriptor)
        raise OSError(f"it is not the file that was published: {path!r}")
    return descriptor


def _refusal(answered: _Answered) -> Response:
    body = msgspec.json.encode({"error": str(answered)})
    headers = [("Content-Type", "application/json"), *answered.headers]
    return Response(answered.status, headers, body)
