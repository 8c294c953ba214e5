"""The webhook that completes volumes, from the chart's values to a mounted Pod."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from emulator.contracts import Json
from gpustack_delivery.httpd.certificates import client_context
from gpustack_delivery.worker import operator
from spec_tests.observe import fetch
from tests.unit.installed.installation import API, FILES, NAMESPACE, Installation, installed

ON = {"volumeWebhook": {"enabled": True}}


@pytest.fixture(scope="module")
def world() -> Iterator[Installation]:
    """An installation with the webhook, a node with its plugin, and one resolved artifact."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(operator, "LOOK_SECONDS", 60.0)  # a slow machine is no silent API server
        installation = stack.enter_context(installed(ON))
        installation.embedded.start_plugin(installation.cluster.add_node("node-a"))
        installation.artifact("tiny", "team-a")
        installation.resolved("tiny", "team-a")
        yield installation


def pod(name: str, *artifacts: str, namespace: str = "team-a", **attributes: str) -> Json:
    """Return a Pod by hand, with a volume for each artifact that says no more than its name."""
    volumes: list[dict[str, Any]] = [
        {
            "name": f"model-{number}",
            "csi": {
                "driver": "model.csi.gpustack.ai",
                "readOnly": True,
                "volumeAttributes": {"artifact": artifact, **attributes},
            },
        }
        for number, artifact in enumerate(artifacts)
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": "node-a",
            "containers": [{"name": "main", "image": "x", "volumeMounts": mounts}],
            "volumes": volumes,
        },
    }


def test_a_pod_that_names_only_its_artifact_is_mounted(world: Installation) -> None:
    """The stored Pod has the artifact's UID and digest, and its files lie below the mount."""
    client = world.cluster.client
    found = client.get(API, "ModelArtifact", "tiny", namespace="team-a")
    stored = client.create(pod("mounted", "tiny"))
    assert stored["spec"]["volumes"][0]["csi"]["volumeAttributes"] == {
        "artifact": "tiny",
        "artifactUID": found["metadata"]["uid"],
        "manifestDigest": found["status"]["resolved"]["manifestDigest"],
    }
    assert world.files(stored) == FILES


def test_a_complete_pod_is_never_sent(world: Installation) -> None:
    """The same Pod as it was stored is taken as it is, with no review of Pods in between."""
    before = reviews(world)
    client = world.cluster.client
    complete = pod("complete", "tiny", artifactUID="another", manifestDigest="another")
    stored = client.create(complete)
    assert stored["spec"]["volumes"][0]["csi"] == complete["spec"]["volumes"][0]["csi"]
    assert reviews(world) == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (pod("p", "missing"), "there is no ModelArtifact missing in the Pod's namespace team-a"),
        (
            pod("p", "tiny", namespace="team-b"),
            "no ModelArtifact tiny in the Pod's namespace team-b",
        ),
        (pod("p", "team-a/tiny"), "must be an object's name"),
        (pod("p", "tiny", artifactUID="u"), "has another artifactUID"),
    ],
)
def test_what_cannot_be_completed_is_refused_in_one_line(
    world: Installation, body: Json, said: str
) -> None:
    """No artifact, one of another namespace, no name at all, and an UID that is not its own."""
    refusal = world.refused(body)
    assert refusal.code == 422
    assert 'admission webhook "volumes.mutate.worker.gpustack.ai" denied the request' in str(
        refusal.message
    )
    assert said in refusal.message
    assert "\n" not in refusal.message


def test_an_artifact_that_is_not_resolved_yet_is_refused(world: Installation) -> None:
    """A Pod may come again later; what is wrong with all of its volumes is said at once."""
    world.artifact("later", "team-a", "acme/absent")
    refusal = world.refused(pod("p", "later", "missing"))
    assert "the ModelArtifact later is not resolved yet" in refusal.message
    assert "there is no ModelArtifact missing" in refusal.message


def test_the_operators_own_namespace_is_left_alone(world: Installation) -> None:
    """A Pod there is stored as it is written, whatever its volumes say."""
    stored = world.cluster.client.create(pod("own", "tiny", namespace=NAMESPACE))
    attributes = stored["spec"]["volumes"][0]["csi"]["volumeAttributes"]
    assert attributes == {"artifact": "tiny"}


def test_many_reviews_at_once_are_all_answered(world: Installation) -> None:
    """Each of 256 gets its own verdict, 64 at a time, whatever has to be read for it."""
    host, port = world.cluster.webhooks.routes[NAMESPACE, "gpustack-delivery-worker"]
    tls = client_context("")
    wrong = {"spec": {"source": {"huggingFace": {"repository": "a b"}}}}
    kinds = [
        ("/mutate", "", "pods", pod("p", "tiny"), True),
        ("/mutate", "", "pods", pod("p", "missing"), False),
        ("/validate", "worker.gpustack.ai", "modelartifacts", wrong, False),
        ("/validate", "worker.gpustack.ai", "modelstorebindings", {"spec": {}}, False),
    ]

    def ask(number: int) -> tuple[str, bool, bool]:
        path, group, resource, body, wanted = kinds[number % len(kinds)]
        request = {
            "uid": str(number),
            "resource": {"group": group, "version": "v1", "resource": resource},
            "operation": "CREATE",
            "namespace": "team-a",
            "object": body,
        }
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": request,
        }
        connection = http.client.HTTPSConnection(host, port, timeout=60, context=tls)
        try:
            connection.request("POST", path, json.dumps(review))
            answer = json.loads(connection.getresponse().read())["response"]
        finally:
            connection.close()
        if not answer["allowed"]:
            assert answer["status"]["code"] == 422, answer
            assert "\n" not in answer["status"]["message"]
        return answer["uid"], answer["allowed"], wanted

    with ThreadPoolExecutor(64) as threads:
        answers = list(threads.map(ask, range(256)))
    assert [uid for uid, _, _ in answers] == [str(number) for number in range(256)]
    assert [allowed for _, allowed, _ in answers] == [wanted for _, _, wanted in answers]


def test_it_is_off_unless_chosen() -> None:
    """Without the value nothing is rendered, and a review sent all the same changes nothing."""
    with installed() as world:
        client = world.cluster.client
        api = "admissionregistration.k8s.io/v1"
        found = client.get(api, "MutatingWebhookConfiguration", "gpustack-delivery")
        assert [one["name"] for one in found["webhooks"]] == [
            "modelartifacts.mutate.worker.gpustack.ai"
        ]
        ours = found["webhooks"][0]
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
        stray = {"name": "stray.example.io", "rules": [rule]}
        client.update({**found, "webhooks": [ours, {**ours, **stray}]})
        stored = client.create(pod("plain", "missing"))
        attributes = stored["spec"]["volumes"][0]["csi"]["volumeAttributes"]
        assert attributes == {"artifact": "missing"}


def reviews(world: Installation) -> list[str]:
    """Return the worker's counts of reviews of Pods."""
    _, port = world.cluster.webhooks.routes[NAMESPACE, "gpustack-delivery-worker"]
    code, text = fetch(f"https://127.0.0.1:{port}/metrics")
    assert code == 200
    return [line for line in text.decode().splitlines() if 'resource="pods"' in line]
