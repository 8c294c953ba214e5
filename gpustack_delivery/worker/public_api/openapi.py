"""`/openapi/v3` and `/openapi/v2`: what kubectl explains and validates by, for whoever may ask.

The cluster's aggregator fetches the index about once a minute and passes requests for a document
on. Documents are made anew when the API server says that its own has changed, so a CRD with a new
field is explained by a worker that has never heard of it.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Final

import msgspec

from gpustack_delivery.errors import ApiFault
from gpustack_delivery.httpd import Request, Response
from gpustack_delivery.ports import Errand, Passage
from gpustack_delivery.vocabulary.resources import GROUP, STORED_VERSION
from gpustack_delivery.worker.public_api.documents import documents
from gpustack_delivery.worker.public_api.statuses import Refused, no_such_path
from gpustack_delivery.worker.public_api.swagger import swagger

ROOT: Final = "/openapi/"
STORED_PATH: Final = f"/openapi/v3/apis/{GROUP}/{STORED_VERSION}"
_FETCH_SECONDS: Final = 5.0
_INDEX: Final = "v3"
_SWAGGER: Final = "v2"


@dataclass(frozen=True, slots=True)
class _Page:
    """One document as it is sent, and its hash, under which clients keep it."""

    content: bytes
    hash: str


@dataclass(frozen=True, slots=True)
class _Edition:
    """Everything that was made of one version of the stored document, by path below the root."""

    etag: str
    pages: dict[str, _Page]


class OpenApi:
    """Answers requests for OpenAPI; safe on any number of threads."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._lock = threading.Lock()
        self._edition = _Edition("", {})

    def answer(self, request: Request) -> Response:
        """Return a document.

        Raises:
            Refused: there is none at the path, or the API server does not say what it stores.
        """
        page = self._current().pages.get(request.path.removeprefix(ROOT).rstrip("/"))
        if page is None or request.method != "GET":
            raise no_such_path()
        tag = f'"{page.hash}"'
        headers = [("Etag", tag), ("Vary", "Accept")]
        if request.headers.get("If-None-Match") == tag:
            return Response(304, headers)
        return Response(200, [("Content-Type", "application/json"), *headers], page.content)

    def _current(self) -> _Edition:
        with self._lock:
            known = self._edition
        headers = {"Accept": "application/json"}
        if known.etag:
            headers["If-None-Match"] = known.etag
        try:
            errand = Errand("GET", STORED_PATH, headers)
            reply = self._passage.pass_on(errand, timeout_seconds=_FETCH_SECONDS)
            raw, status, etag = reply.read(), reply.status, reply.header("Etag")
        except ApiFault as fault:
            raise _unknown() from fault
        if status == 304 and known.etag:
            return known
        if status != 200:
            raise _unknown()
        edition = _made(raw, etag or "")
        with self._lock:
            self._edition = edition
        return edition


def _made(raw: bytes, etag: str) -> _Edition:
    try:
        found = documents(msgspec.json.decode(raw))
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        raise _unknown() from error
    pages = {f"{_INDEX}/{key}": _page(document) for key, document in found.items()}
    index = {
        key: {"serverRelativeURL": f"{ROOT}{_INDEX}/{key}?hash={pages[f'{_INDEX}/{key}'].hash}"}
        for key in found
    }
    pages[_INDEX] = _page({"paths": index})
    pages[_SWAGGER] = _page(swagger(found.values()))
    return _Edition(etag, pages)


def _page(document: object) -> _Page:
    content = msgspec.json.encode(document)
    return _Page(content, hashlib.sha512(content).hexdigest().upper())


def _unknown() -> Refused:
    message = "the API server does not say what it stores right now; try again"
    return Refused(503, "ServiceUnavailable", message)
