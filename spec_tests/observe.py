"""How the suite looks at an implementation, one observer a boundary, and none of them from inside.

- csi: `CsiSocket` calls the plugin as kubelet does and keeps code and message.
- api: `ApiAs` speaks to the API server over HTTP as somebody in particular.
- http: `read_metrics` and `fetch` ask the plugin's own port.
- log: `LogTail` keeps what the implementation wrote while a world stood.
- disk: `listing` and `holds_secret` read the cache root as files, and never ask what they are for.

The hub's request log and, for the cluster's admin, the emulator's client are used as they are.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import stat
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import grpc
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpustack_delivery.csi_wire import csi_pb2, csi_pb2_grpc

_DEADLINE_SECONDS: Final = 30.0
_MOUNT: Final = "mount"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a CSI call came back with: the gRPC code's name and the message, empty for OK."""

    code: str
    message: str = ""

    @property
    def ok(self) -> bool:
        """Say whether the call succeeded."""
        return self.code == "OK"


@dataclass(frozen=True, slots=True)
class PublishCall:
    """One NodePublishVolume, in kubelet's words.

    `capability` is `mount`, `block`, `unstated` for one that names neither, or empty for none at
    all.
    """

    volume_id: str
    target: Path
    context: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = True
    capability: str = _MOUNT


class CsiChannel:
    """A CSI client with one connection to a running plugin, until it is closed."""

    def __init__(self, socket: Path) -> None:
        """Connect with the first call."""
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._stub = csi_pb2_grpc.NodeStub(self._channel)

    def publish(self, call: PublishCall) -> Answer:
        """Call NodePublishVolume."""
        request = csi_pb2.NodePublishVolumeRequest(
            volume_id=call.volume_id,
            target_path=str(call.target),
            volume_context=call.context,
            secrets=call.secrets,
            readonly=call.read_only,
        )
        if call.capability == _MOUNT:
            request.volume_capability.mount.SetInParent()
        elif call.capability == "block":
            request.volume_capability.block.SetInParent()
        if call.capability:
            writer = csi_pb2.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
            request.volume_capability.access_mode.mode = writer
        return self._call("NodePublishVolume", request)

    def unpublish(self, volume_id: str, target: Path) -> Answer:
        """Call NodeUnpublishVolume."""
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume_id, target_path=str(target))
        return self._call("NodeUnpublishVolume", request)

    def close(self) -> None:
        """Give the connection up."""
        self._channel.close()

    def _call(self, method: str, request: Any) -> Answer:
        try:
            getattr(self._stub, method)(request, timeout=_DEADLINE_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details() or "")
        return Answer("OK")


class CsiSocket:
    """A CSI client on a node's socket, which may come and go while it lives.

    A channel a call: a restarted plugin has a new socket under the old name.
    """

    def __init__(self, socket: Path) -> None:
        """Remember the socket; nothing is opened before the first call."""
        self._socket = socket

    def publish(self, call: PublishCall) -> Answer:
        """Call NodePublishVolume."""
        with closing(CsiChannel(self._socket)) as channel:
            return channel.publish(call)

    def unpublish(self, volume_id: str, target: Path) -> Answer:
        """Call NodeUnpublishVolume."""
        with closing(CsiChannel(self._socket)) as channel:
            return channel.unpublish(volume_id, target)


def fetch(url: str) -> tuple[int, bytes]:
    """Return status and body of a GET at a port whose certificate is self-signed by contract."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(url)  # noqa: S310 - the plugin's own port
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _AnyStatus()
    )
    with opener.open(request, timeout=_DEADLINE_SECONDS) as response:
        return response.status, response.read()


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Lets every status be an answer."""

    def http_response(self, request: Any, response: Any) -> Any:
        """Return the response as it is."""
        return response

    https_response = http_response


class ApiAs:
    """The API server, spoken to over HTTP by the cluster's admin as if somebody else were asking.

    Impersonation lets a test choose every word of the requester's identity, the extras of a bound
    token included, as a real cluster lets its admin do.
    """

    def __init__(self, kubeconfig: Path, user: str, extra: Mapping[str, str]) -> None:
        """Read the admin's kubeconfig; an empty `user` is the admin, who has no extras."""
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._headers = {
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        }
        if user:
            self._headers["Impersonate-User"] = user
            for key, value in extra.items():
                self._headers[f"Impersonate-Extra-{quote(key, safe='')}"] = value

    def put(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Replace an object; return the HTTP status, and the Status message of a refusal."""
        status, answer = self._ask("PUT", path, self._headers, json.dumps(body).encode())
        return status, str(answer.get("message", ""))

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, or ask a review, and return the answer."""
        status, answer = self._ask("POST", path, self._headers, json.dumps(body).encode())
        assert status == 201, f"POST {path} answered {status}: {answer}"
        return answer

    def read(self, path: str, accept: str = "application/json") -> dict[str, Any]:
        """Return what a path answers to a GET, in the form that `accept` asks for."""
        status, answer = self._ask("GET", path, {**self._headers, "Accept": accept})
        assert status == 200, f"GET {path} answered {status}: {answer}"
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
    ) -> tuple[int, dict[str, Any]]:
        """Return status and body of any request; nothing is expected of either."""
        headers = {**self._headers, "Content-Type": content_type}
        return self._ask(method, path, headers, None if body is None else json.dumps(body).encode())

    def watched(self, path: str, count: int) -> list[dict[str, Any]]:
        """Return the first events of a watch; the query that makes it one is the caller's."""
        request = urllib.request.Request(self._server + path, headers=self._headers)  # noqa: S310 - the emulated API server
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )
        with opener.open(request, timeout=_DEADLINE_SECONDS) as response:
            return [json.loads(response.readline()) for _ in range(count)]

    def table(self, path: str) -> dict[str, Any]:
        """Return a collection as the table that kubectl prints."""
        return self.read(path, "application/json;as=Table;v=v1;g=meta.k8s.io")

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(  # noqa: S310 - the emulated API server
            self._server + path, body, dict(headers), method=method
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=self._context),
            _AnyStatus(),
        )
        with opener.open(request, timeout=_DEADLINE_SECONDS) as response:
            return response.status, _decoded(response.read())


def _decoded(body: bytes) -> dict[str, Any]:
    """Return an answer's object; plain text, as for an API that nobody serves, is a message."""
    try:
        found: dict[str, Any] = json.loads(body)
    except ValueError:
        return {"message": body.decode("utf-8", "replace").strip()}
    return found


@dataclass(frozen=True, slots=True)
class Metrics:
    """One reading of a metrics page."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """Return a sample; 0.0 for a counter's child that nobody has touched yet."""
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def names(self) -> set[str]:
        """Return the names of all samples."""
        return {name for name, _ in self.samples}

    def labels(self) -> Iterator[tuple[str, str, str]]:
        """Yield every label as sample name, label name and label value."""
        for name, pairs in self.samples:
            for label, value in pairs:
                yield name, label, value


def read_metrics(base_url: str) -> Metrics:
    """Read `/metrics` under the plugin's port."""
    status, body = fetch(f"{base_url}/metrics")
    assert status == 200, f"/metrics answered {status}"
    return Metrics(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
    )


class LogTail(logging.Handler):
    """What the implementation's own loggers said, tracebacks included."""

    def __init__(self) -> None:
        """Listen at every level."""
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record as text."""
        self.lines.append(self.format(record))

    @property
    def text(self) -> str:
        """Return all of it."""
        return "\n".join(self.lines)


def listing(root: Path) -> dict[str, str]:
    """Return everything below a folder: relative path, and kind, mode and size."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        try:
            facts = path.lstat()
        except OSError:
            continue  # a file that went while we looked
        found[str(path.relative_to(root))] = f"{stat.filemode(facts.st_mode)} {facts.st_size}"
    return found


def holds_secret(root: Path, secret: str) -> list[str]:
    """Return the files below a folder that hold a planted secret, or bear it in their name."""
    needle = secret.encode()
    return [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*"))
        if secret in path.name or (path.is_file() and needle in path.read_bytes())
    ]
