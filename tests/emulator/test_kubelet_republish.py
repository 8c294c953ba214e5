"""Drivers that want tokens, and to be called again and again, held against the recording."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.emulator.csi_plugin import Script, refuse_in_turn
from tests.emulator.kubelet_world import World, anonymous, recorded, world

Json = dict[str, Any]
FILE = "34-csi-requires-republish-and-tokens"
TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"
REQUESTS = [{"audience": ""}, {"audience": "rig", "expirationSeconds": 600}]


def publish_times(there: World) -> list[float]:
    """Return when the volume was published, counted from the first time."""
    at = [call.at for call in there.plugin.named("NodePublishVolume")]
    return [one - at[0] for one in at]


def without_tokens(request: Json) -> Json:
    """Return a request with its tokens reduced to audiences."""
    reduced = json.loads(json.dumps(request))
    for part in ("volume_context", "secrets"):
        if TOKENS in reduced.get(part, {}):
            tokens = json.loads(reduced[part][TOKENS])
            assert all(set(one) == {"token", "expirationTimestamp"} for one in tokens.values())
            reduced[part][TOKENS] = sorted(tokens)
    found: Json = anonymous(reduced)
    return found


def claims(token: str) -> Json:
    """Return what a token says."""
    body = token.split(".")[1]
    said: Json = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return said


def test_republish_with_tokens() -> None:
    """The calls come at the recorded times and carry the Pod's tokens for each audience."""
    recording = recorded(FILE, "calls")
    with world() as there:
        there.add_driver(requiresRepublish=True, tokenRequests=REQUESTS)
        there.add_pod("rp", csi={"volumeAttributes": {"a": "b"}})
        there.advance(140)
        assert publish_times(there) == pytest.approx(recording["publishAtSeconds"], abs=0.3)
        made = [call.request for call in there.plugin.named("NodePublishVolume")]
        wanted = without_tokens(recording["firstCalls"][0]["request"])
        assert [without_tokens(request) for request in made] == [wanted] * len(made)
        tokens = json.loads(made[0]["volume_context"][TOKENS])
        for audience, token in tokens.items():
            said = claims(token["token"])
            recorded_claims = recording["tokenClaims"][audience or "(empty audience)"]
            assert said["aud"] == recorded_claims["aud"]
            assert said["exp"] - said["iat"] == recorded_claims["lifetimeSeconds"]
            private, recorded_private = said["kubernetes.io"], recorded_claims["kubernetes.io"]
            assert set(private) == set(recorded_private)
            assert private["pod"]["name"] == recorded_private["pod"]["name"]


def test_tokens_in_the_secrets() -> None:
    """A driver that wants its tokens among the secrets finds them there, and only there."""
    (wanted,) = recorded(FILE, "serviceAccountTokenInSecrets=true")["calls"]
    with world() as there:
        there.add_driver(tokenRequests=REQUESTS[1:], serviceAccountTokenInSecrets=True)
        secret = {"nodePublishSecretRef": {"name": "pubsec"}, "volumeAttributes": {"a": "b"}}
        there.add_pod("rp2", csi=secret)
        (call,) = there.plugin.named("NodePublishVolume")
        assert without_tokens(call.request) == without_tokens(wanted["request"])


def test_a_failing_republish_leaves_the_pod_running() -> None:
    """Refusals of a volume that is there are told and tried again; the Pod and the mount stay."""
    recording = recorded(FILE, "republish failing twice with INTERNAL: the pod keeps running")
    script = Script()
    with world(script) as there:
        there.add_driver(requiresRepublish=True)
        pod = there.add_pod("rp")
        there.advance(5)
        script.publish = refuse_in_turn("INTERNAL", "INTERNAL")
        there.plugin.forget()
        there.advance(140)
        assert publish_times(there)[:3] == pytest.approx(
            recording["attemptsAtSeconds"][:3], abs=0.3
        )
        now = there.pod("rp")
        assert now is not None
        assert now["status"]["phase"] == recording["podPhase"]
        assert there.node.pod_mount(pod).read("hello") == b"hi"
        found = [(e["reason"], e["message"], e["count"]) for e in there.events("rp")]
        assert found == [(e["reason"], e["message"], e["count"]) for e in recording["events"]]


def test_a_driver_that_does_not_ask_is_called_once() -> None:
    """Without requiresRepublish nothing is published twice."""
    with world() as there:
        there.add_driver()
        there.add_pod("once")
        there.advance(300)
        assert publish_times(there) == [0.0]
