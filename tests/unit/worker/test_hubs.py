"""The way to the hubs: each at its endpoint, and that nothing stays open."""

from __future__ import annotations

import pytest

from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.httpd import Request, Response, Server
from gpustack_delivery.vocabulary.artifact import HubKind
from gpustack_delivery.vocabulary.node_store import HubAccess
from gpustack_delivery.worker.hubs import open_hub


def test_hugging_face_is_reached_at_its_endpoint() -> None:
    """The opened hub speaks to the endpoint of the access."""
    asked: list[str] = []

    def answer(request: Request) -> Response:
        asked.append(request.path)
        return Response(200, [], b'{"sha": "' + b"a" * 40 + b'"}')

    with (
        Server(answer, name="hub") as server,
        open_hub(HubKind.HUGGING_FACE, HubAccess(server.url), "") as hub,
    ):
        assert hub.resolve("org/model", "main", None) == "a" * 40
    assert asked == ["/api/models/org/model/revision/main"]


def test_model_scope_is_reached_at_its_own_endpoint() -> None:
    """Each kind of hub has an endpoint of its own in the access."""
    asked: list[str] = []

    def answer(request: Request) -> Response:
        asked.append(f"{request.path}?{request.query}")
        return Response(200, [], b'{"Code": 200, "Data": {"Files": []}}')

    with Server(answer, name="hub") as server:
        access = HubAccess("https://never.invalid", model_scope_endpoint=server.url)
        with open_hub(HubKind.MODEL_SCOPE, access, "") as hub:
            assert hub.list_tree("org/model", "a" * 40, None) == ()
    assert asked == [f"/api/v1/models/org/model/repo/files?Revision={'a' * 40}&Recursive=true"]


def test_bad_bundle_is_a_fault_of_the_configuration() -> None:
    """CA certificates that are none are named before anything is asked."""
    access = HubAccess("https://h")
    with pytest.raises(ConfigurationFault), open_hub(HubKind.HUGGING_FACE, access, "not PEM"):
        pass
