"""Routes: which hub a kind of source leads to, and one real download through all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustack_delivery.adapters.host import KernelDisk, SystemClock
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.node.downloading import Cancellation, Limits, Target
from gpustack_delivery.node.routes import Router
from gpustack_delivery.node.workspace import Workspace
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.manifest import Entry
from gpustack_delivery.vocabulary.node_store import HubAccess

CONTENT = b"weights" * 1000


@pytest.fixture
def router() -> Router:
    """Return a router on the real machine."""
    clock = SystemClock()
    return Router(Limits(clock), clock, KernelDisk())


@pytest.fixture
def origin() -> Iterator[Server]:
    """Yield a server with one file on it, ranges and all."""

    def serve(request: Request) -> Response:
        first, _, last = (request.headers.get("Range") or "").removeprefix("bytes=").partition("-")
        part = CONTENT[int(first) : int(last) + 1]
        span = f"bytes {first}-{int(first) + len(part) - 1}/{len(CONTENT)}"
        return Response(206, [("Content-Range", span)], part)

    with Server(serve, name="origin") as server:
        yield server


def test_each_kind_of_source_has_its_hub(router: Router) -> None:
    """A ModelScope artifact on a node without that endpoint is a configuration error."""
    route = router(HubAccess("https://hub.example", "https://scope.example"), "")
    assert (
        route.hub(HubKind.HUGGING_FACE)
        .file_url("o/n", "c", "a b")
        .startswith("https://hub.example/o/n/resolve/c/a%20b")
    )
    assert (
        route.hub(HubKind.MODEL_SCOPE)
        .file_url("o/n", "c", "a")
        .startswith("https://scope.example/")
    )
    route.close()
    bare = router(HubAccess("https://hub.example"), "")
    with pytest.raises(ConfigurationFault, match="ModelScope endpoint"):
        bare.hub(HubKind.MODEL_SCOPE)
    bare.close()


@pytest.mark.parametrize(
    ("access", "bundle"),
    [
        (HubAccess("https://hub.example", https_proxy="socks5://proxy:1"), ""),
        (HubAccess("https://hub.example"), "no certificate in here"),
    ],
)
def test_what_cannot_be_executed_is_refused_when_it_is_applied(
    router: Router, access: HubAccess, bundle: str
) -> None:
    """Before any download asks for it."""
    with pytest.raises(ConfigurationFault):
        router(access, bundle)


def test_a_file_comes_through_whole(router: Router, origin: Server, tmp_path: Path) -> None:
    """The downloader behind the route is the real one."""
    route = router(HubAccess(origin.url), "")
    entry = Entry("model.bin", len(CONTENT), "sha256:" + hashlib.sha256(CONTENT).hexdigest())
    workspace = Workspace(tmp_path, 1)
    workspace.tree.mkdir()
    target = Target(entry, f"{origin.url}/model.bin", workspace.tree / "model.bin")
    received: list[int] = []
    route.fetch(
        [target],
        workspace,
        credential=lambda: None,
        cancellation=Cancellation(),
        received=received.append,
    )
    route.close()
    assert target.destination.read_bytes() == CONTENT
    assert sum(received) == len(CONTENT)
