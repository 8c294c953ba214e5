"""The public API behind the cluster's aggregator, with kubectl as it is and with a bare socket."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.contracts import Json
from emulator.faults import Delay
from gpustack_delivery.adapters.kube import KubeClient
from gpustack_delivery.httpd.certificates import Authority, KeyPair, client_context
from gpustack_delivery.ports import Errand, Reply
from gpustack_delivery.worker.public_api import watching
from tests.unit.fakes import eventually
from tests.unit.installed.installation import NAMESPACE, PUBLIC, Installation, installed

ARTIFACTS = f"/apis/{PUBLIC}/namespaces/team-a/modelartifacts"
SETTING: Json = {
    "apiVersion": "gpustack.ai/v1",
    "kind": "Setting",
    "metadata": {"name": "model-store-high-watermark", "namespace": NAMESPACE},
}


@pytest.fixture(scope="module")
def world() -> Iterator[Installation]:
    """An installation whose public API is available."""
    with installed(kubernetes="1.33") as installation:
        yield installation


class Kubectl:
    """Runs the real kubectl; whatever it prints to stderr fails the test."""

    def __init__(self, world: Installation, home: Path) -> None:
        self._command = ["kubectl", "--kubeconfig", str(world.cluster.kubeconfig())]
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def done(self, *words: str, sent: Json | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command with an object to read."""
        return subprocess.run(  # noqa: S603 - the test's own command
            [*self._command, *words],
            env=self._environment,
            input=json.dumps(sent) if sent else "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def running(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command that does not end by itself."""
        return subprocess.Popen(  # noqa: S603 - the test's own command
            [*self._command, *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, sent: Json | None = None) -> str:
        """Run a command that succeeds without a warning; return what it prints."""
        done = self.done(*words, sent=sent)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture
def kubectl(world: Installation, tmp_path: Path) -> Kubectl:
    """Return kubectl as the cluster's admin, with nothing in its cache."""
    found = Kubectl(world, tmp_path)
    names = [f"apiservice/v1.{group}" for group in ("worker.gpustack.ai", "gpustack.ai")]
    found("wait", *names, "--for=condition=Available", "--timeout=30s")
    return found


def artifact(name: str, **labels: str) -> Json:
    """Return an artifact of the public version."""
    source = {"huggingFace": {"repository": "acme/tiny", "revision": "main"}}
    metadata = {"name": name, "namespace": "team-a", "labels": labels}
    body = {"apiVersion": PUBLIC, "kind": "ModelArtifact", "metadata": metadata}
    return {**body, "spec": {"source": source}}


@pytest.mark.needs("kubectl")
def test_kubectl_explains_the_public_kinds(kubectl: Kubectl) -> None:
    """Fields come with the descriptions of the definitions, without a version being named."""
    text = kubectl("explain", "mart.spec.source")
    assert "VERSION:    v1\n" in text
    assert "Where the files come from; exactly one member must be set." in text
    assert "What somebody stored." in kubectl("explain", "settings.spec")


@pytest.mark.needs("kubectl")
def test_kubectl_applies_and_patches_without_a_warning(kubectl: Kubectl) -> None:
    """Both kinds of apply create and change; patches change; a dry run changes nothing."""
    for flags in ([], ["--server-side"]):
        name = "applied" + "-".join(flags)
        apply = ["apply", *flags, "-f", "-"]
        kubectl(*apply, sent=artifact(name))
        kubectl(*apply, sent=artifact(name, team="a"))
        kubectl(*apply, "--dry-run=server", sent=artifact(name, team="b"))
        kubectl(
            "patch",
            "mart",
            name,
            "-n",
            "team-a",
            "--type=merge",
            "-p",
            '{"metadata":{"labels":{"x":"y"}}}',
        )
        found = json.loads(kubectl("get", "mart", name, "-n", "team-a", "-o", "json"))
        assert found["apiVersion"] == PUBLIC
        assert found["metadata"]["labels"] == {"team": "a", "x": "y"}


@pytest.mark.needs("kubectl")
def test_kubectl_validates_what_it_applies(kubectl: Kubectl) -> None:
    """A misspelled field is refused with its path, in an artifact and in a Setting."""
    wrong = artifact("wrong")
    wrong["spec"]["source"]["huggingFace"]["revisoin"] = "main"
    done = kubectl.done("apply", "-f", "-", sent=wrong)
    assert done.returncode == 1
    assert 'unknown field "spec.source.huggingFace.revisoin"' in done.stderr
    setting = {**SETTING, "spec": {"value": "85", "valeu": "84"}}
    done = kubectl.done("apply", "--server-side", "-f", "-", sent=setting)
    assert done.returncode == 1
    assert 'unknown field "spec.valeu"' in done.stderr


@pytest.mark.needs("kubectl")
def test_kubectl_applies_and_patches_a_setting(kubectl: Kubectl) -> None:
    """An apply by the server sets the value, as a patch does, and warns of nothing."""
    kubectl("apply", "--server-side", "-f", "-", sent={**SETTING, "spec": {"value": "86"}})
    named = ["setting", SETTING["metadata"]["name"], "-n", NAMESPACE]
    shown = ["get", *named, "-o", "jsonpath={.spec.value}/{.status.value}"]
    assert kubectl(*shown) == "86/86"
    kubectl("patch", *named, "--type=merge", "-p", '{"spec":{"value":"87"}}')
    assert kubectl(*shown) == "87/87"


@pytest.mark.needs("kubectl")
def test_kubectl_watches_a_kind_at_rest(
    world: Installation, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing happens the stored watch ends in silence again and again; kubectl's goes on."""
    monkeypatch.setattr(watching, "_SILENCE_SECONDS", 0.2)
    worker = f"system:serviceaccount:{NAMESPACE}:gpustack-delivery-worker"
    mine = {"resource": "modelartifacts", "namespace": "team-b", "user": worker}
    rule = world.cluster.faults.add(Delay(0), verb="watch", **mine)
    late = artifact("late")
    late["metadata"]["namespace"] = "team-b"
    command = ["get", "mart", "-n", "team-b", "--watch-only", "-o", "name"]
    with kubectl.running(*command, "--request-timeout=60s") as watch:
        eventually(lambda: rule.hits >= 4, "the stored watch begins anew")
        kubectl("apply", "-f", "-", sent=late)
        assert watch.stdout is not None
        assert watch.stdout.readline() == "modelartifact.worker.gpustack.ai/late\n"
        watch.kill()
    world.cluster.faults.remove(rule)


def ask(
    world: Installation, pair: KeyPair | None, headers: Mapping[str, str], path: str = ARTIFACTS
) -> tuple[int, Json]:
    """Ask the worker itself, past the API server, with a client certificate or none."""
    host, port = world.cluster.webhooks.routes[NAMESPACE, "gpustack-delivery-public-api"]
    connection = http.client.HTTPSConnection(
        host, port, timeout=20, context=client_context("", pair)
    )
    try:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        body: Json = json.loads(response.read())
        return response.status, body
    finally:
        connection.close()


ADMIN = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}


def test_headers_without_the_front_proxys_certificate_are_refused(world: Installation) -> None:
    """Whoever claims to be somebody and did not come through the aggregator is nobody."""
    status, body = ask(world, None, ADMIN)
    assert (status, body["reason"]) == (401, "Unauthorized")
    stranger = Authority("front-proxy-ca").issue("front-proxy-client", client=True)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        ask(world, stranger, ADMIN)


def test_a_review_names_who_asks_and_what_for(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User, UID, groups and extra are the front's words; a tenant without the right hears which."""
    asked: list[Any] = []
    pass_on = KubeClient.pass_on

    def heard(self: KubeClient, errand: Errand, *, timeout_seconds: float) -> Reply:
        if "subjectaccessreviews" in errand.target:
            asked.append(json.loads(errand.body)["spec"])
        return pass_on(self, errand, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(KubeClient, "pass_on", heard)
    tenant = {
        "X-Remote-User": "tenant",
        "X-Remote-Uid": "u-7",
        "X-Remote-Group": "team-a",
        "X-Remote-Extra-Example.io%2fscope": "models",
    }
    pair = world.cluster.front_proxy.pair
    status, body = ask(world, pair, tenant, f"{ARTIFACTS}/tiny")
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["message"] == (
        'modelartifacts.worker.gpustack.ai "tiny" is forbidden: User "tenant" cannot get resource '
        '"modelartifacts" in API group "worker.gpustack.ai" in the namespace "team-a"'
    )
    assert asked == [
        {
            "user": "tenant",
            "uid": "u-7",
            "groups": ["team-a"],
            "extra": {"example.io/scope": ["models"]},
            "resourceAttributes": {
                "verb": "get",
                "group": "worker.gpustack.ai",
                "version": "v1",
                "resource": "modelartifacts",
                "namespace": "team-a",
                "name": "tiny",
            },
        }
    ]


def test_a_right_of_a_group_in_one_namespace_counts_there_alone(world: Installation) -> None:
    """Who may read in one namespace reads there, by the group that the front names."""
    client, api = world.cluster.client, "rbac.authorization.k8s.io/v1"
    meta = {"metadata": {"name": "readers", "namespace": "team-a"}}
    rule = {"apiGroups": ["worker.gpustack.ai"], "resources": ["modelartifacts"], "verbs": ["list"]}
    client.create({"apiVersion": api, "kind": "Role", "rules": [rule], **meta})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "readers"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}
    binding = {"apiVersion": api, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}
    client.create({**binding, **meta})
    pair = world.cluster.front_proxy.pair
    reader = {"X-Remote-User": "reader", "X-Remote-Group": "readers"}
    assert ask(world, pair, reader)[0] == 200
    assert ask(world, pair, {**reader, "X-Remote-Group": "others"})[0] == 403
    for path in (ARTIFACTS.replace("team-a", "team-b"), f"/apis/{PUBLIC}/modelartifacts"):
        assert ask(world, pair, reader, path)[0] == 403
