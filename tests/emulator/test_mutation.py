"""Mutating webhooks, dry runs, and what webhooks never see."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from emulator.contracts import Json, Target, WriteOptions
from emulator.errors import ApiError
from tests.emulator.hooked_api import Rig, config_map, hooked_api


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    """An API with a webhook server."""
    with hooked_api() as made:
        yield made


def patch_of(*operations: Json) -> Json:
    """Return a mutating answer."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def test_mutation(rig: Rig) -> None:
    """A mutating webhook changes the object; nobody owns what it wrote."""
    label = {"op": "add", "path": "/metadata/labels", "value": {"mutated": "yes"}}
    rig.hook.answer = lambda _: patch_of(label)
    rig.configure("Mutating")
    created = rig.create()
    assert created["metadata"]["labels"] == {"mutated": "yes"}
    assert all(
        "f:metadata" not in entry["fieldsV1"] for entry in created["metadata"]["managedFields"]
    )


def test_a_webhook_is_asked_again_after_others_changed_the_object(rig: Rig) -> None:
    """reinvocationPolicy IfNeeded asks once more when a later webhook changed something."""
    value = {"op": "add", "path": "/data/late", "value": "yes"}
    last = rig.client_config("/late")

    def answer(request: Json) -> Json:
        late = len(rig.hook.requests) == 2
        return patch_of(value) if late else {"allowed": True}

    rig.hook.answer = answer
    rig.configure("Mutating", "a-first", reinvocationPolicy="IfNeeded")
    rig.configure("Mutating", "b-second", clientConfig=last)
    rig.create()
    paths = [request.path for request in rig.hook.requests]
    assert paths == ["/check", "/late", "/check"]
    assert rig.hook.reviews[2]["object"]["data"] == {"k": "v", "late": "yes"}


def test_a_patch_that_does_not_fit(rig: Rig) -> None:
    """A patch that cannot be applied is the server's own failure."""
    rig.hook.answer = lambda _: patch_of({"op": "remove", "path": "/nowhere"})
    rig.configure("Mutating")
    with pytest.raises(ApiError) as caught:
        rig.create()
    assert caught.value.code == 500


def test_dry_runs_are_shown_as_such(rig: Rig) -> None:
    """A dry run calls the webhook too, and says that it is one."""
    rig.configure()
    target = Target(rig.api.resource("", "v1", "configmaps"), "t1")
    dry = WriteOptions(dry_run=True)
    rig.api.create(rig.client.caller, target, config_map("a"), dry)
    assert rig.hook.reviews[0]["dryRun"] is True
    assert rig.hook.reviews[0]["options"]["dryRun"] == ["All"]


def test_configurations_are_never_judged_by_webhooks(rig: Rig) -> None:
    """A webhook that wants everything cannot lock its own configuration."""
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*/*"],
    }
    rig.hook.answer = lambda _: {"allowed": False}
    rig.configure(rules=[everything])
    rig.client.delete("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "rig-wh")
    assert rig.hook.requests == []
