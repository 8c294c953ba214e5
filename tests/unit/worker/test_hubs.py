"""The way to the hubs: which are supported, and that nothing stays open."""

from __future__ import annotations

import pytest

from gpustack_delivery.errors import ConfigurationFault, HubFault, Verdict
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


def test_model_scope_is_not_supported_yet() -> None:
    """A source that cannot be resolved here says so with its own verdict."""
    with (
        pytest.raises(HubFault) as fault,
        open_hub(HubKind.MODEL_SCOPE, HubAccess("https://h"), ""),
    ):
        pass
    assert fault.value.verdict is Verdict.UNSUPPORTED_SOURCE


def test_bad_bundle_is_a_fault_of_the_configuration() -> None:
    """CA certificates that are none are named before anything is asked."""
    access = HubAccess("https://h")
    with pytest.raises(ConfigurationFault), open_hub(HubKind.HUGGING_FACE, access, "not PEM"):
        pass
