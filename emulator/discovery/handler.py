"""What is served, and by whom: discovery, version, health, OpenAPI and the token issuer's public
side.

`Discovery.handle` answers the paths outside the resources; `api_server` asks it after
authentication and authorization of the path.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Protocol
from urllib.parse import parse_qs

import msgspec

from emulator.access.features import Features
from emulator.contracts import Caller, Json
from emulator.discovery.lists import resource_list
from emulator.discovery.merging import Group, RemoteVersion, Version, merged
from emulator.errors import ApiError, failure
from emulator.openapi import Catalogue, Documents
from gpustack_delivery.httpd import Request, Response

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_OPENAPI_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_TEXT = "text/plain; charset=utf-8"
_HEALTH_CHECKS = ("ping", "log", "etcd")


class Specifications(Protocol):
    """OpenAPI of servers behind this one; `aggregation.specifications` has it."""

    def index(self) -> Mapping[str, Json]:
        """Return their entries in the index of version 3."""

    def add_to(self, swagger: Json) -> None:
        """Add their documents of version 2 to ours."""


class KeySet(Protocol):
    """The public side of a token issuer; `access.tokens.Signer` has it."""

    issuer: str

    def key_set(self) -> Json:
        """Return the public keys as a JSON web key set."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """How the server presents itself: the version it plays, and host:port where it is reached."""

    kubernetes: str = "1.30"
    address: str = ""

    @property
    def git_version(self) -> str:
        """Return the full version, such as v1.30.0."""
        version = self.kubernetes.removeprefix("v")
        return f"v{version}" if version.count(".") > 1 else f"v{version}.0"


@dataclass(frozen=True, slots=True)
class _Media:
    """What an Accept header asks for, in its order."""

    types: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request) -> _Media:
        header = request.headers.get("Accept") or "*/*"
        return cls([part.strip().replace(" ", "") for part in header.split(",")])


class Discovery:
    """Answers everything about the server itself. Thread-safe."""

    def __init__(
        self,
        catalogue: Catalogue,
        info: ServerInfo,
        keys: KeySet,
        remotes: Callable[[], Iterable[RemoteVersion]] = tuple,
        specifications: Specifications | None = None,
    ) -> None:
        """`catalogue` says what is served here, the last two what elsewhere, at each request."""
        self._remotes = remotes
        self._specifications = specifications
        self._catalogue, self._info, self._keys = catalogue, info, keys
        self._documents = Documents(catalogue, info.git_version)
        self._lock = threading.Lock()
        self._index = b""
        self._changed = 0

    def handle(self, caller: Caller, request: Request) -> Response | None:
        """Return the answer to a GET of a path that is about the server; None for any other."""
        if request.method not in {"GET", "HEAD"}:
            return None
        head, *rest = request.path.strip("/").split("/")
        answer = {
            "": self._root,
            ".well-known": self._issuer,
            "api": self._core,
            "apis": self._groups,
            "healthz": self._health,
            "livez": self._health,
            "openapi": self._openapi,
            "openid": self._key_set,
            "readyz": self._health,
            "version": self._version,
        }.get(head)
        return answer(rest, request) if answer is not None else None

    def _root(self, rest: Sequence[str], request: Request) -> Response | None:
        paths = {"/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/"}
        for group in self._merged():
            paths |= {f"/apis/{group.name}"}
            paths |= {f"/apis/{group.name}/{version.name}" for version in group.versions}
        paths |= {f"/{kind}" for kind in ("healthz", "livez", "readyz")}
        paths |= {"/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openid/v1/jwks", "/version"}
        return _json({"paths": sorted(paths)})

    def _version(self, rest: Sequence[str], request: Request) -> Response | None:
        if rest:
            return None
        minor = Features.of(self._info.kubernetes).minor
        version: Json = {"major": "1", "minor": str(minor)}
        if minor >= 33:
            version |= {
                "emulationMajor": "1",
                "emulationMinor": str(minor),
                "minCompatibilityMajor": "1",
                "minCompatibilityMinor": str(minor - 1),
            }
        version |= {
            "gitVersion": self._info.git_version,
            "gitCommit": "0" * 40,
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "go1.26.6",
            "compiler": "gc",
            "platform": "linux/amd64",
        }
        return _json(version)

    def _health(self, rest: Sequence[str], request: Request) -> Response | None:
        kind, check = request.path.strip("/").split("/")[0], "/".join(rest)
        if check and check not in _HEALTH_CHECKS:
            return None
        text = "ok"
        if "verbose" in parse_qs(request.query, keep_blank_values=True) and not check:
            lines = [f"[+]{name} ok" for name in _HEALTH_CHECKS]
            text = "\n".join([*lines, f"{kind} check passed", ""])
        headers = [("Content-Type", _TEXT), *_COMMON_HEADERS, ("X-Content-Type-Options", "nosniff")]
        return Response(200, headers, text.encode())

    def _issuer(self, rest: Sequence[str], request: Request) -> Response | None:
        if rest != ["openid-configuration"]:
            return None
        return _json(
            {
                "issuer": self._keys.issuer,
                "jwks_uri": f"https://{self._info.address}/openid/v1/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    def _key_set(self, rest: Sequence[str], request: Request) -> Response | None:
        if rest != ["v1", "jwks"]:
            return None
        media_type = "application/jwk-set+json"
        if not {media_type, "*/*", "application/*"} & set(_Media.of(request).types):
            raise _not_acceptable(media_type)
        return _json(self._keys.key_set(), media_type)

    def _openapi(self, rest: Sequence[str], request: Request) -> Response | None:
        if rest == ["v2"]:
            if _OPENAPI_V2_PROTOBUF in _Media.of(request).types:
                return _cacheable(self._documents.swagger_protobuf(), _OPENAPI_V2_PROTOBUF, request)
            swagger = self._documents.swagger()
            if self._specifications is not None:
                self._specifications.add_to(swagger)
            return _cacheable(msgspec.json.encode(swagger), "application/json", request)
        if rest[:1] != ["v3"]:
            return None
        if len(rest) == 1:
            index = self._documents.index()
            if self._specifications is not None:
                index |= self._specifications.index()
            listed = {"paths": dict(sorted(index.items()))}
            return self._dated(msgspec.json.encode(listed), request)
        document = self._documents.group("/".join(rest[1:]))
        if document is None:
            return None
        return _cacheable(document.content, "application/json", request, document.hash)

    def _dated(self, content: bytes, request: Request) -> Response:
        """Return content under the time of its last change, or 304 when the client has it."""
        with self._lock:
            if content != self._index:
                # Two changes within a second are a second apart, so that no client misses one.
                now = int(self._catalogue.clock.now())
                self._index, self._changed = content, max(now, self._changed + 1)
            changed = formatdate(self._changed, usegmt=True)
        headers = [("Accept-Ranges", "bytes"), ("Last-Modified", changed), *_COMMON_HEADERS]
        if request.headers.get("If-Modified-Since") == changed:
            return Response(304, headers)
        return Response(200, [("Content-Type", _TEXT), *headers], content)

    def _core(self, rest: Sequence[str], request: Request) -> Response | None:
        core = [resource for resource in self._catalogue.resources() if not resource.group]
        if not rest:
            aggregated = _aggregated(request, [Group("", [Version("v1", core)])])
            if aggregated is not None:
                return aggregated
            address = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._info.address}
            return _json(
                {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
            )
        if rest != ["v1"]:
            return None
        listed = {"kind": "APIResourceList", "groupVersion": "v1", "resources": resource_list(core)}
        return _json(listed)

    def _groups(self, rest: Sequence[str], request: Request) -> Response | None:
        groups = self._merged()
        if not rest:
            aggregated = _aggregated(request, groups)
            if aggregated is not None:
                return aggregated
            listed = [group.entry() for group in groups]
            return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        found = next((group for group in groups if group.name == rest[0]), None)
        if found is None:
            return None
        if len(rest) == 1:
            return _json({"kind": "APIGroup", "apiVersion": "v1", **found.entry()})
        served = next((one.resources for one in found.versions if one.name == rest[1]), ())
        if not served or len(rest) > 2:
            return None
        return _json(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": served[0].api_version,
                "resources": resource_list(served),
            }
        )

    def _merged(self) -> list[Group]:
        return merged(self._catalogue.resources(), self._remotes())


_COMMON_HEADERS = (("Cache-Control", "no-cache, private"),)


def _json(content: Json, media_type: str = "application/json") -> Response:
    headers = [("Content-Type", media_type), *_COMMON_HEADERS]
    return Response(200, headers, msgspec.json.encode(content))


def _cacheable(content: bytes, media_type: str, request: Request, etag: str = "") -> Response:
    """Return content under an ETag, or 304 when the client has it already."""
    tag = f'"{etag or hashlib.sha512(content).hexdigest().upper()}"'
    headers = [("Cache-Control", "public"), ("Etag", tag), ("Vary", "Accept")]
    if request.headers.get("If-None-Match") == tag:
        return Response(304, headers)
    return Response(200, [("Content-Type", media_type), *headers], content)


def _not_acceptable(media_type: str) -> ApiError:
    message = f"406: Not Acceptable\n\nAvailable representations: {media_type}"
    return failure(406, "NotAcceptable", message, {})


def _aggregated(request: Request, groups: Sequence[Group]) -> Response | None:
    """Return aggregated discovery when the client asks for it before anything else."""
    for asked in _Media.of(request).types:
        for version in ("v2", "v2beta1"):
            media_type = _AGGREGATED.format(version=version)
            if asked == media_type:
                listed = [group.discovered() for group in groups]
                content = {
                    "kind": "APIGroupDiscoveryList",
                    "apiVersion": f"apidiscovery.k8s.io/{version}",
                    "metadata": {},
                    "items": listed,
                }
                return _cacheable(msgspec.json.encode(content), media_type, request)
        if asked.partition(";")[0] in {"application/json", "*/*"} and "as=" not in asked:
            return None
    return None
