"""The Kubernetes adapter over real TLS: what goes out, and what answers become."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import yaml

from gpustack_delivery.adapters.kube import KubeClient, connect
from gpustack_delivery.errors import (
    AlreadyExists,
    ApiFault,
    ConfigurationFault,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unreachable,
)
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.httpd.certificates import Authority, server_context
from gpustack_delivery.ports import Selection
from gpustack_delivery.vocabulary.resources import CONFIG_MAPS, NODE_MODEL_STORES
from tests.unit.fakes import eventually

OBJECT = {"metadata": {"name": "a", "namespace": "ns"}}


def answer(body: object, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(status, [("Content-Type", "application/json")], json.dumps(body).encode())


class Api:
    """A TLS server that answers as a test says and keeps what it was asked."""

    def __init__(self) -> None:
        authority = Authority("test")
        self.ca = authority.certificate_pem
        context = server_context(authority.issue("api", hosts=["127.0.0.1"]))
        self.asked: list[Request] = []
        self.respond: Callable[[Request], Response] = lambda _request: answer(OBJECT)
        self.server = Server(self._handle, name="api", tls=context)

    def _handle(self, request: Request) -> Response:
        self.asked.append(request)
        return self.respond(request)

    def service_account(self, directory: Path, token: str) -> KubeClient:
        """Return a client as a Pod with this token would have it."""
        (directory / "token").write_text(token + "\n")
        (directory / "ca.crt").write_text(self.ca)
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
        }
        return connect(account=directory, environment=environment)

    def kubeconfig(self, directory: Path, token: str) -> Path:
        """Write a kubeconfig with this token."""
        (directory / "ca.crt").write_text(self.ca)
        path = directory / "config"
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": self.server.url,
                        "certificate-authority": str(directory / "ca.crt"),
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path.write_text(yaml.safe_dump(body))
        return path


@pytest.fixture
def api() -> Iterator[Api]:
    """Yield a serving API."""
    made = Api()
    with made.server:
        yield made


@pytest.fixture
def kube(api: Api, tmp_path: Path) -> Iterator[KubeClient]:
    """Yield a client with a service account."""
    made = api.service_account(tmp_path, "first")
    yield made
    made.close()


def test_a_service_account_sends_its_bearer_and_notices_a_rotation(
    api: Api, kube: KubeClient, tmp_path: Path
) -> None:
    """The token file is read for every request."""
    kube.get(CONFIG_MAPS, "a", "ns")
    (tmp_path / "token").write_text("second")
    kube.get(CONFIG_MAPS, "a", "ns")
    sent = [request.headers.get("Authorization") for request in api.asked]
    assert sent == ["Bearer first", "Bearer second"]


def test_a_token_file_that_vanished_is_an_unreachable_api(kube: KubeClient, tmp_path: Path) -> None:
    """A mount that is being replaced is a moment, not the end."""
    (tmp_path / "token").unlink()
    with pytest.raises(Unreachable, match="service account token"):
        kube.get(CONFIG_MAPS, "a", "ns")


def test_a_kubeconfig_is_read_again_after_a_401(api: Api, tmp_path: Path) -> None:
    """Once: a token that stays refused is an answer."""
    path = api.kubeconfig(tmp_path, "old")

    def judge(request: Request) -> Response:
        good = request.headers.get("Authorization") == "Bearer new"
        return answer(OBJECT) if good else answer({"kind": "Status", "code": 401}, 401)

    api.respond = judge
    kube = connect(str(path))
    with pytest.raises(Forbidden):
        kube.get(CONFIG_MAPS, "a", "ns")
    assert len(api.asked) == 2
    api.kubeconfig(tmp_path, "new")
    assert kube.get(CONFIG_MAPS, "a", "ns") == OBJECT
    kube.close()


def test_a_kubeconfig_that_breaks_meanwhile_changes_nothing(api: Api, tmp_path: Path) -> None:
    """The refused call is refused, and the client goes on with what it had read."""
    path = api.kubeconfig(tmp_path, "old")
    kube = connect(str(path))
    api.respond = lambda _request: answer({"kind": "Status", "code": 401}, 401)
    path.write_text("][")
    with pytest.raises(Forbidden):
        kube.get(CONFIG_MAPS, "a", "ns")
    api.respond = lambda _request: answer(OBJECT)
    assert kube.get(CONFIG_MAPS, "a", "ns") == OBJECT
    kube.close()


def test_without_a_pod_and_without_a_kubeconfig_there_is_no_way(tmp_path: Path) -> None:
    """The message says what would do."""
    with pytest.raises(ConfigurationFault, match="name a kubeconfig"):
        connect(account=tmp_path, environment={})


def test_each_call_has_its_method_path_query_and_body(api: Api, kube: KubeClient) -> None:
    """The wire form of every verb."""
    kube.create(CONFIG_MAPS, OBJECT)
    kube.update(CONFIG_MAPS, OBJECT, subresource="status")
    kube.apply(NODE_MODEL_STORES, {"metadata": {"name": "n"}}, field_manager="me")
    kube.merge_patch(CONFIG_MAPS, "a", {"x": 1}, "ns")
    kube.delete(CONFIG_MAPS, "a", "ns", uid="u")
    kube.get_raw("/healthz", timeout_seconds=5)
    lines = [f"{request.method} {request.path}" for request in api.asked]
    assert lines == [
        "POST /api/v1/namespaces/ns/configmaps",
        "PUT /api/v1/namespaces/ns/configmaps/a/status",
        "PATCH /apis/worker.gpustack.ai/v1alpha1/nodemodelstores/n",
        "PATCH /api/v1/namespaces/ns/configmaps/a",
        "DELETE /api/v1/namespaces/ns/configmaps/a",
        "GET /healthz",
    ]
    apply, patch, delete = api.asked[2:5]
    assert dict(parse_qsl(apply.query)) == {"fieldManager": "me", "force": "true"}
    assert apply.headers.get("Content-Type") == "application/apply-patch+yaml"
    assert json.loads(apply.body)["kind"] == "NodeModelStore"
    assert patch.headers.get("Content-Type") == "application/merge-patch+json"
    assert json.loads(patch.body) == {"x": 1}
    assert json.loads(delete.body)["preconditions"] == {"uid": "u"}


def test_a_page_names_its_items_and_the_next_page(api: Api, kube: KubeClient) -> None:
    """Items of built-in lists lack their kind on the wire."""
    api.respond = lambda _request: answer(
        {"metadata": {"resourceVersion": "7", "continue": "x"}, "items": [OBJECT]}
    )
    page = kube.list_page(Selection(CONFIG_MAPS, "ns", field_selector="metadata.name=a"), "t")
    assert (page.resource_version, page.continue_token) == ("7", "x")
    assert page.items[0]["kind"] == "ConfigMap"
    assert dict(parse_qsl(api.asked[0].query)) == {
        "limit": "500",
        "fieldSelector": "metadata.name=a",
        "continue": "t",
    }


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Unreachable),
        (500, "InternalError", Unreachable),
        (302, "", Invalid),
    ],
)
def test_a_status_becomes_its_fault(
    api: Api, kube: KubeClient, code: int, reason: str, kind: type[ApiFault]
) -> None:
    """The text is the status alone; what the server said may name tenants and is detail."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": "ns/secret-name"}
    api.respond = lambda _request: answer(status, code)
    with pytest.raises(kind) as caught:
        kube.get(CONFIG_MAPS, "a", "ns")
    assert caught.value.code == code
    assert "secret-name" not in str(caught.value)
    assert caught.value.detail == "ns/secret-name"


def test_the_servers_wish_to_wait_is_heard(api: Api, kube: KubeClient) -> None:
    """Retry-After in seconds, a minute of it; any other form is no number of ours."""
    for code, asked, heard in (
        (429, "7", 7.0),
        (503, "soon", 0.0),
        (503, "86400", 60.0),
        (413, "9" * 5000, 60.0),
    ):
        api.respond = lambda _request, code=code, asked=asked: Response(  # type: ignore[misc]
            code, [("Retry-After", asked)], b"not a Status"
        )
        with pytest.raises(ApiFault) as caught:
            kube.get(CONFIG_MAPS, "a", "ns")
        assert (caught.value.retry_after_seconds, caught.value.detail) == (heard, "not a Status")
    assert len(api.asked) == 4  # it is the caller's to wait and to ask again


def test_an_answer_that_is_no_object_is_no_answer(api: Api, kube: KubeClient) -> None:
    """A captive portal says 200 to everything."""
    for body in (b"<html>", b"[]"):
        api.respond = lambda _request, body=body: Response(200, [], body)  # type: ignore[misc]
        with pytest.raises(Unreachable, match="not a JSON object"):
            kube.get(CONFIG_MAPS, "a", "ns")


def test_nobody_listening_is_unreachable(tmp_path: Path) -> None:
    """A refused connection is a fault of its family."""
    api = Api()
    with api.server:
        kube = api.service_account(tmp_path, "t")
    with pytest.raises(Unreachable, match="does not answer"):
        kube.get(CONFIG_MAPS, "a", "ns")
    kube.close()


def test_a_hasty_client_gives_silence_up(api: Api, kube: KubeClient) -> None:
    """It hears nothing within its own time, while the client it was made from waits and hears."""
    release = threading.Event()

    def late(_request: Request) -> Response:
        release.wait(20)
        return answer(OBJECT)

    api.respond = late
    with pytest.raises(Unreachable):
        kube.within(0.05).get(CONFIG_MAPS, "a", "ns")
    release.set()
    assert kube.get(CONFIG_MAPS, "a", "ns") == OBJECT


def watching(api: Api, *lines: bytes, hold: threading.Event | None = None) -> None:
    """Make the API answer watches with these lines, split badly, and then end or hang."""

    def body() -> Iterator[bytes]:
        whole = b"".join(lines)
        for start in range(0, len(whole), 7):
            yield whole[start : start + 7]
        if hold is not None:
            hold.wait(20)

    api.respond = lambda _request: Response(200, [], body())


def event(kind: str, body: object) -> bytes:
    """Return a line of a watch."""
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def test_a_watch_yields_changes_until_the_server_ends_it(api: Api, kube: KubeClient) -> None:
    """However the stream is cut into chunks."""
    watching(api, event("ADDED", OBJECT), event("BOOKMARK", OBJECT))
    watch = kube.watch(Selection(CONFIG_MAPS, "ns"), "5")
    assert [change.type for change in watch] == ["ADDED", "BOOKMARK"]
    assert dict(parse_qsl(api.asked[0].query)) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
    }
    watch.close()


def test_a_forgotten_version_is_gone_as_an_event_and_as_an_answer(
    api: Api, kube: KubeClient
) -> None:
    """Both forms of 410."""
    watching(api, event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
    with pytest.raises(Gone):
        list(kube.watch(Selection(CONFIG_MAPS, "ns"), "5"))
    api.respond = lambda _request: answer({"kind": "Status", "code": 410}, 410)
    with pytest.raises(Gone):
        kube.watch(Selection(CONFIG_MAPS, "ns"), "5")


def test_a_line_that_is_no_event_breaks_the_watch(api: Api, kube: KubeClient) -> None:
    """Better to list again than to guess."""
    watching(api, b"garbage\n")
    with pytest.raises(Unreachable, match="not an event"):
        list(kube.watch(Selection(CONFIG_MAPS, "ns"), "5"))


def test_close_ends_a_watch_that_is_waiting(api: Api, kube: KubeClient) -> None:
    """From another thread, while the reader is blocked on a silent stream."""
    hold = threading.Event()
    watching(api, event("ADDED", OBJECT), hold=hold)
    watch = kube.watch(Selection(CONFIG_MAPS, "ns"), "5")
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(change.type for change in watch))
    reader.start()
    # The reader has no outward sign of blocking; its first change is the closest there is.
    eventually(lambda: api.asked, "the watch")
    watch.close()
    reader.join(10)
    assert not reader.is_alive()
    hold.set()
