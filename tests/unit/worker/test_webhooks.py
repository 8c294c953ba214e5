"""The webhooks' wire: reviews as an API server sends them, and the answers it understands."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.httpd import Headers, Request
from gpustack_delivery.vocabulary.resources import GROUP, PODS, Json
from gpustack_delivery.worker.granting import Granting
from gpustack_delivery.worker.inquiries import Inquiries
from gpustack_delivery.worker.webhooks import Principals, Webhooks
from tests.unit.worker.world import NAMESPACE, ClusterKube, SteppedClock

WORKER = "system:serviceaccount:gpustack-system:worker"
PLUGIN = "system:serviceaccount:gpustack-system:model-manager"
HUB = {"huggingFace": {"repository": "org/model", "revision": "main"}}
BOUND = {
    "authentication.kubernetes.io/credential-id": ["JTI=1"],
    "authentication.kubernetes.io/pod-name": ["plugin-x"],
    "authentication.kubernetes.io/pod-uid": ["uid-1"],
}


class Log:
    """Hears of reviews."""

    def __init__(self) -> None:
        self.reviews: list[tuple[str, str]] = []

    def reviewed(self, resource: str, result: str) -> None:
        """Note a review."""
        self.reviews.append((resource, result))


class Caller:
    """The API server, as far as it calls webhooks."""

    def __init__(self, *, completes_volumes: bool = False) -> None:
        self.kube = ClusterKube()
        self.log = Log()
        principals = Principals(WORKER, PLUGIN, NAMESPACE)
        clock = SteppedClock()
        granting = Granting(self.kube, clock)  # not started: it asks the API each time
        inquiries = Inquiries(self.kube, clock)
        self.webhooks = Webhooks(
            inquiries, principals, self.log, granting, completes_volumes=completes_volumes
        )

    def send(self, path: str, body: bytes, method: str = "POST") -> tuple[int, bytes]:
        """Send anything."""
        request = Request(method, path, path, "timeout=10s", Headers(), body)
        response = self.webhooks.handle(request)
        assert isinstance(response.body, bytes)
        return response.status, response.body

    def ask(self, target: str, *, path: str = "/validate", **facts: Any) -> Json:
        """Send a review; return its response."""
        resource, _, subresource = target.partition("/")
        request = {
            "uid": "review-1",
            "resource": {"group": facts.get("group", GROUP), "resource": resource},
            "name": facts.get("name", "x"),
            "namespace": facts.get("namespace", ""),
            "operation": facts.get("operation", "CREATE"),
            "userInfo": {"username": facts.get("user", "tenant"), "extra": facts.get("extra")},
            "object": facts.get("new"),
            "oldObject": facts.get("old"),
        }
        if subresource:
            request["subResource"] = subresource
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        status, body = self.send(
            f"{path}/{target}", json.dumps(review | {"request": request}).encode()
        )
        assert status == 200
        answer = json.loads(body)
        assert (answer["kind"], answer["apiVersion"]) == (review["kind"], review["apiVersion"])
        response: Json = answer["response"]
        assert response["uid"] == "review-1"
        return response


@pytest.fixture
def caller() -> Caller:
    """Return an API server with our webhooks."""
    return Caller()


def test_good_artifact_passes(caller: Caller) -> None:
    """An allowed review says no more than that, and is counted."""
    response = caller.ask("modelartifacts", new={"spec": {"source": HUB}})
    assert response == {"uid": "review-1", "allowed": True}
    assert caller.log.reviews == [("modelartifacts", "allowed")]


def test_denial_names_the_fields(caller: Caller) -> None:
    """A refusal is 422 Invalid, one line, with a cause for each field."""
    source = {"huggingFace": {"repository": "a b", "revision": ""}}
    response = caller.ask("modelartifacts", new={"spec": {"source": source}})
    status = response["status"]
    assert (response["allowed"], status["code"], status["reason"]) == (False, 422, "Invalid")
    assert [cause["field"] for cause in status["details"]["causes"]] == [
        "spec.source.huggingFace.repository",
        "spec.source.huggingFace.revision",
    ]
    assert "(spec.source.huggingFace.repository); must be" in status["message"]
    assert "\n" not in status["message"]
    assert caller.log.reviews == [("modelartifacts", "denied")]


def test_changed_spec_is_refused_as_a_whole(caller: Caller) -> None:
    """A label may change under any spec; the spec may not."""
    old = {"spec": {"source": HUB}}
    same = old | {"metadata": {"labels": {"a": "b"}}}
    assert caller.ask("modelartifacts", operation="UPDATE", old=old, new=same)["allowed"]
    changed = {"spec": {"source": HUB, "allowPatterns": ["*"]}}
    response = caller.ask("modelartifacts", operation="UPDATE", old=old, new=changed)
    assert response["status"]["message"].startswith("a ModelArtifact is an identity")


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        ({"major": "1", "minor": "35"}, True),
        ({"major": "1", "minor": "30"}, False),
        (b"<html>", False),
        (Unreachable("away"), False),
    ],
)
def test_images_ask_for_the_clusters_version(
    caller: Caller, version: Any, *, allowed: bool
) -> None:
    """An image source passes only where the cluster is known to mount it."""
    caller.kube.raw["/version"] = version
    spec = {"source": {"image": {"reference": "x@sha256:" + "0" * 64}}}
    assert caller.ask("modelartifacts", new={"spec": spec})["allowed"] is allowed


def test_artifact_status_guard(caller: Caller) -> None:
    """The worker's own writes pass, anybody else's do not."""
    facts: dict[str, Any] = {"operation": "UPDATE", "new": {"status": {}}}
    assert caller.ask("modelartifacts/status", user=WORKER, **facts)["allowed"]
    response = caller.ask("modelartifacts/status", user="kubernetes-admin", **facts)
    begin = "only the worker writes a ModelArtifact's status"
    assert response["status"]["message"].startswith(begin)


def test_node_status_guard_reads_the_token(caller: Caller) -> None:
    """From 1.30 on the token's node decides, and no Pod is looked up."""
    extra = BOUND | {"authentication.kubernetes.io/node-name": ["node-a"]}
    facts: dict[str, Any] = {"operation": "UPDATE", "user": PLUGIN, "extra": extra}
    assert caller.ask("nodemodelstores/status", name="node-a", **facts)["allowed"]
    response = caller.ask("nodemodelstores/status", name="node-b", **facts)
    begin = "the plugin writes only the status of the node its Pod runs on"
    assert response["status"]["message"].startswith(begin)
    assert caller.kube.calls == []


def test_node_status_guard_looks_the_pod_up(caller: Caller) -> None:
    """On 1.29 the Pod in the operator namespace decides, by its UID and its node."""
    pod = {"metadata": {"name": "plugin-x", "namespace": NAMESPACE, "uid": "uid-1"}}
    caller.kube.put(PODS, pod | {"spec": {"nodeName": "node-a"}})
    facts: dict[str, Any] = {"operation": "UPDATE", "user": PLUGIN, "extra": BOUND}
    assert caller.ask("nodemodelstores/status", name="node-a", **facts)["allowed"]
    assert not caller.ask("nodemodelstores/status", name="node-b", **facts)["allowed"]
    caller.kube.remove(PODS, "plugin-x", NAMESPACE)
    response = caller.ask("nodemodelstores/status", name="node-a", **facts)
    begin = "the plugin writes only the status of the node its Pod runs on"
    assert response["status"]["message"].startswith(begin)


def test_failed_lookup_is_no_pass(caller: Caller) -> None:
    """An API that does not answer refuses with an internal error, so that kubelet tries again."""
    caller.kube.trouble = [Unreachable("etcd is away", code=503)]
    response = caller.ask(
        "nodemodelstores/status", name="node-a", operation="UPDATE", user=PLUGIN, extra=BOUND
    )
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert caller.log.reviews == [("nodemodelstores/status", "failed")]


@pytest.mark.parametrize(
    ("target", "operation"),
    [("nodemodelstores", "UPDATE"), ("modelartifacts", "DELETE"), ("widgets", "CREATE")],
)
def test_no_rule_is_no_pass(caller: Caller, target: str, operation: str) -> None:
    """A review nobody has a rule for is refused with what to change in the configuration."""
    response = caller.ask(target, operation=operation)
    assert not response["allowed"]
    assert "webhook configuration" in response["status"]["message"]


def test_revision_is_defaulted(caller: Caller) -> None:
    """A missing revision comes back as a patch; a given one needs none; nor does anything else."""
    source = {"modelScope": {"repository": "org/model"}}
    response = caller.ask("modelartifacts", path="/mutate", new={"spec": {"source": source}})
    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"]))
    assert patch == [{"op": "add", "path": "/spec/source/modelScope/revision", "value": "master"}]
    named = caller.ask("modelartifacts", path="/mutate", new={"spec": {"source": HUB}})
    assert named == {"uid": "review-1", "allowed": True}
    other = caller.ask("modelprefetches", path="/mutate", new={"spec": {"source": source}})
    assert other == {"uid": "review-1", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {}}',
        b'{"apiVersion": "admission.k8s.io/v1"}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {"resource": 1}}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {"userInfo": {"extra": {"a": 1}}}}',
        b"[" * 100_000,
    ],
)
def test_garbage_is_refused(caller: Caller, body: bytes) -> None:
    """What is no review is answered with 400 and one line."""
    status, answer = caller.send("/validate/modelartifacts", body)
    assert status == 400
    assert answer.count(b"\n") == 1


def test_only_post(caller: Caller) -> None:
    """A browser is told how webhooks are called."""
    assert caller.send("/validate/modelartifacts", b"", method="GET")[0] == 405


VOLUME = {"csi": {"driver": "model.csi.gpustack.ai", "volumeAttributes": {"artifact": "tiny"}}}


def test_volumes_are_completed_only_where_that_was_chosen(caller: Caller) -> None:
    """A worker that was not told lets a Pod pass as it is, and reads nothing for it."""
    facts: Json = {"group": "", "namespace": "a", "new": {"spec": {"volumes": [VOLUME]}}}
    assert caller.ask("pods", path="/mutate", **facts) == {"uid": "review-1", "allowed": True}
    assert caller.log.reviews == [("pods", "allowed")]
    chosen = Caller(completes_volumes=True)
    status = chosen.ask("pods", path="/mutate", **facts)["status"]
    assert (status["code"], status["details"]["kind"], status["details"]["group"]) == (
        422,
        "pods",
        "",
    )
    assert chosen.log.reviews == [("pods", "denied")]


def test_a_pod_is_not_judged_while_the_api_server_is_silent() -> None:
    """An outage is no missing artifact: the Pod is to be tried again."""
    caller = Caller(completes_volumes=True)
    caller.kube.trouble = [Unreachable("the API server does not answer")]
    pod = {"spec": {"volumes": [VOLUME]}}
    response = caller.ask("pods", path="/mutate", group="", namespace="a", new=pod)
    assert response["status"]["code"] == 500
    assert "cannot judge this now" in response["status"]["message"]
