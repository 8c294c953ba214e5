"""node-store#mount-authorization: who may mount what, judged before the disk is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from spec_tests import oracle
from spec_tests.nodes import having
from spec_tests.observe import Answer, PublishCall
from spec_tests.scenario import World

Change = Callable[[PublishCall], PublishCall]

NOT_EPHEMERAL: Final[dict[str, Change]] = {
    "false": lambda call: having(call, {oracle.EPHEMERAL: "false"}),
    "absent": lambda call: having(call, {oracle.EPHEMERAL: None}),
    "empty": lambda call: having(call, {oracle.EPHEMERAL: ""}),
    "capitalised": lambda call: having(call, {oracle.EPHEMERAL: "True"}),
}


def assert_refused(answer: Answer) -> None:
    """Check for a refusal that says something."""
    assert answer.code == "PERMISSION_DENIED", answer
    assert answer.message.strip(), "a refusal names the failed rule"


@pytest.mark.rule("NS-AUT-01")
@pytest.mark.parametrize("name", NOT_EPHEMERAL)
def test_a_volume_that_is_not_ephemeral_is_refused(world: World, name: str) -> None:
    """Only the exact word true makes a volume inline ephemeral."""
    call = world.node.call(world.artifact())
    assert_refused(world.node.publish(NOT_EPHEMERAL[name](call)))


@pytest.mark.rule("NS-AUT-02")
@pytest.mark.parametrize("capability", ["block", "unstated"])
def test_a_block_capability_is_refused(world: World, capability: str) -> None:
    """A request for a block device or for nothing breaks a rule; a mount of the volume does not."""
    call = world.node.call(world.artifact())
    assert_refused(world.node.publish(replace(call, capability=capability)))
    assert world.node.publish(call).code == "ABORTED"


@pytest.mark.rule("NS-AUT-02")
def test_a_request_without_a_capability_is_malformed(world: World) -> None:
    """A request that lacks its capability is no request at all."""
    call = world.node.call(world.artifact())
    answer = world.node.publish(replace(call, capability=""))
    assert answer.code == "INVALID_ARGUMENT", answer


OUTSIDE: Final[dict[str, Callable[[Path, Path], Path]]] = {
    "elsewhere": lambda _, elsewhere: elsewhere / "mount",
    "dot-dot": lambda kubelet, elsewhere: kubelet / "pods" / ".." / ".." / elsewhere.name / "mount",
    "the directory itself": lambda kubelet, _: kubelet,
    "a sibling with the same beginning": lambda kubelet, _: Path(f"{kubelet}-other/pods/mount"),
    "through a symlink": lambda kubelet, _: kubelet / "pods" / "escape" / "mount",
    "relative": lambda _, __: Path("pods/mount"),
}


@pytest.mark.rule("NS-AUT-03")
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_target_outside_kubelets_directory_is_refused(
    world: World, tmp_path: Path, name: str
) -> None:
    """A target elsewhere, or one that leads elsewhere by dot-dot or symlink, is refused."""
    node = world.node
    elsewhere = node.kubelet_dir.parent / "elsewhere"
    elsewhere.mkdir()
    (node.pods_dir / "escape").symlink_to(elsewhere)
    target = OUTSIDE[name](node.kubelet_dir, elsewhere)
    call = replace(node.call(world.artifact()), target=target)
    assert_refused(node.csi.publish(call))
    assert list(elsewhere.iterdir()) == []
    assert world.hub_requests() == []


@pytest.mark.rule("NS-AUT-04")
@pytest.mark.parametrize("name", ["nobody", ""])
def test_the_artifact_must_exist(world: World, name: str) -> None:
    """A name that no artifact of the namespace bears, or no name, is refused."""
    call = world.node.call(world.artifact())
    assert_refused(world.node.publish(having(call, {"artifact": name})))


@pytest.mark.rule("NS-AUT-04")
def test_an_artifact_of_another_namespace_does_not_count(world: World) -> None:
    """The artifact must be in the Pod's own namespace."""
    artifact = world.artifact(namespace="team-a")
    assert_refused(world.node.publish(world.node.call(artifact, namespace="team-b")))


@pytest.mark.rule("NS-AUT-04")
def test_a_call_without_the_pods_namespace_is_refused(world: World) -> None:
    """Without the namespace that kubelet adds there is nobody to judge for."""
    call = world.node.call(world.artifact())
    assert_refused(world.node.publish(having(call, {oracle.POD_NAMESPACE: None})))


@pytest.mark.rule("NS-AUT-05")
@pytest.mark.parametrize("uid", ["00000000-0000-0000-0000-000000000000", ""])
def test_the_uid_must_match(world: World, uid: str) -> None:
    """Another UID, or none, is refused."""
    call = world.node.call(world.artifact())
    assert_refused(world.node.publish(having(call, {"artifactUID": uid})))


@pytest.mark.rule("NS-AUT-05")
def test_a_recreated_artifact_is_another_one(world: World) -> None:
    """The UID of a deleted artifact opens nothing after one of the same name took its place."""
    old = world.artifact()
    world.delete(old)
    new = world.artifact(old.name)
    assert new.uid != old.uid
    assert_refused(world.node.publish(world.node.call(old)))
    assert world.node.publish(world.node.call(new)).code == "ABORTED"


@pytest.mark.rule("NS-AUT-06")
@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "weights"}},
        {"image": {"reference": f"registry.example/weights@sha256:{'0' * 64}"}},
    ],
    ids=["claim", "image"],
)
def test_only_hub_sources_mount(world: World, source: dict[str, object]) -> None:
    """A claim or an image is refused, even if its status carried a digest."""
    artifact = world.artifact(spec={"source": source})
    assert_refused(world.node.publish(world.node.call(artifact)))


@pytest.mark.rule("NS-AUT-07")
@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_an_unresolved_artifact_is_refused(world: World, status: str | None) -> None:
    """Resolved must be True: False, Unknown and no condition at all are refused."""
    artifact = world.artifact()
    world.set_resolved(artifact, status)
    assert_refused(world.node.publish(world.node.call(artifact)))


@pytest.mark.rule("NS-AUT-08")
@pytest.mark.parametrize("digest", ["sha256:" + "0" * 64, "", "latest"])
def test_the_digest_must_match(world: World, digest: str) -> None:
    """A digest that is not the artifact's is refused, whatever it is."""
    call = world.node.call(world.artifact())
    assert_refused(world.node.publish(having(call, {"manifestDigest": digest})))


@pytest.mark.rule("NS-AUT-08", "NS-AUT-10")
def test_another_artifacts_digest_is_refused(world: World) -> None:
    """A digest that the node holds for somebody else's artifact is refused under one's own name."""
    held = world.artifact("held")
    world.node.mount(held)
    other = world.artifact(
        "other",
        repository=world.repository(
            "acme/other", oracle.Tree((oracle.File("only.bin", b"other", lfs=True),))
        ),
    )
    call = having(world.node.call(other, pod="thief"), {"manifestDigest": held.digest})
    assert_refused(world.node.publish(call))


@pytest.mark.rule("NS-AUT-09")
def test_a_forged_namespace_is_overwritten(world: World) -> None:
    """A Pod that claims another namespace in its attributes is judged in its own."""
    artifact = world.artifact(namespace="team-a")
    world.node.mount(artifact)
    thief = world.pod(artifact, namespace="team-b", attributes={oracle.POD_NAMESPACE: "team-a"})
    world.advance(5)
    assert thief.phase() == "Pending"
    assert thief.failed_mounts(), "the refusal reaches the Pod"
    assert not [m for m in world.node.mounts.table() if m.target == thief.target]


@pytest.mark.rule("NS-AUT-10")
def test_held_content_is_no_permission(world: World) -> None:
    """A namespace without the artifact is refused what the node has published for another."""
    artifact = world.artifact(namespace="team-a")
    world.node.mount(artifact)
    asked = len(world.hub_requests())
    call = world.node.call(artifact, namespace="team-b", pod="thief")
    assert_refused(world.node.publish(call))
    assert world.node.mounted(call) == []
    assert len(world.hub_requests()) == asked


@pytest.mark.rule("NS-AUT-10")
def test_an_unresolved_namesake_is_no_permission(world: World) -> None:
    """An artifact of one's own for the same repository opens nothing until it is resolved."""
    world.node.mount(world.artifact(namespace="team-a"))
    own = world.artifact(namespace="team-b")
    world.set_resolved(own, "False")
    assert_refused(world.node.publish(world.node.call(own)))


REFUSALS: Final[dict[str, Change]] = {
    "not ephemeral": lambda call: having(call, {oracle.EPHEMERAL: "false"}),
    "block": lambda call: replace(call, capability="block"),
    "no artifact": lambda call: having(call, {"artifact": "nobody"}),
    "another uid": lambda call: having(call, {"artifactUID": "x"}),
    "another digest": lambda call: having(call, {"manifestDigest": "sha256:" + "f" * 64}),
    "another namespace": lambda call: having(call, {oracle.POD_NAMESPACE: "team-b"}),
}


@pytest.mark.rule("NS-AUT-11", "NS-AUT-12")
def test_a_refusal_leaves_no_trace(world: World) -> None:
    """After every kind of refusal no directory, no mount and no hub request is there."""
    call = world.node.call(world.artifact())
    call.target.parent.mkdir(parents=True)
    before, mounts = world.node.cache(), world.node.mounts.table()
    messages = []
    for name, change in REFUSALS.items():
        answer = world.node.publish(change(call))
        assert answer.code == "PERMISSION_DENIED", (name, answer)
        messages.append(answer.message)
    world.advance(60)
    assert world.node.cache() == before
    assert list(call.target.parent.iterdir()) == []
    assert world.node.mounts.table() == mounts
    assert world.hub_requests() == []
    assert len(set(messages)) == len(messages), "each message names its own rule"


@pytest.mark.rule("NS-AUT-12")
def test_a_refusal_reaches_the_pod(world: World) -> None:
    """kubelet records the refusal on the Pod as a FailedMount event."""
    artifact = world.artifact(namespace="team-a")
    refused = world.node.publish(world.node.call(artifact, namespace="team-b"))
    pod = world.pod(artifact, namespace="team-b")
    world.advance(5)
    assert any(refused.message in message for message in pod.failed_mounts())


@pytest.mark.rule("NS-AUT-13")
def test_a_revocation_stops_new_mounts_only(world: World) -> None:
    """A mounted Pod keeps its mount, and the same publish again succeeds; a new Pod is refused."""
    artifact = world.artifact()
    mounted = world.node.mount(artifact)
    world.set_resolved(artifact, "False")
    assert_refused(world.node.publish(world.node.call(artifact, pod="late")))
    assert world.node.publish(mounted).ok, "kubelet publishes again after its restart"
    assert len(world.node.mounted(mounted)) == 1, "a repeated publish stacks nothing"
    assert world.node.read_all(mounted) == artifact.tree.contents()
    assert world.node.unpublish(mounted).ok


@pytest.mark.rule("NS-AUT-13")
def test_a_revocation_survives_a_kubelet_restart(world: World) -> None:
    """A Pod that runs when its artifact is revoked runs on when kubelet comes back."""
    artifact = world.artifact()
    pod = world.pod(artifact)
    pod.wait_until_running()
    world.set_resolved(artifact, "False")
    world.node.restart_kubelet()
    world.advance(10)
    assert pod.phase() == "Running"
    assert world.node.read_pod(pod, "config.json") == artifact.tree.contents()["config.json"]


@pytest.mark.rule("NS-AUT-14")
def test_mounts_wait_until_the_artifacts_are_read(world: World) -> None:
    """A plugin that could not read the artifacts yet answers Unavailable."""
    artifact = world.artifact()
    world.node.mount(artifact)
    world.node.stop_plugin()
    with world.rights_withdrawn():
        world.node.start_plugin()
        answer = world.node.publish(world.node.call(artifact, pod="early"))
        assert answer.code == "UNAVAILABLE", answer
        stranger = having(world.node.call(artifact, pod="early"), {"artifact": "nobody"})
        assert world.node.publish(stranger).code == "UNAVAILABLE"
    world.node.mount(artifact, pod="early")


@pytest.mark.rule("NS-AUT-10")
def test_a_refusal_does_not_tell_who_has_it(world: World) -> None:
    """The message to a stranger does not name the namespace that may mount the content."""
    artifact = world.artifact(namespace="team-a")
    world.node.mount(artifact)
    answer = world.node.publish(world.node.call(artifact, namespace="team-b"))
    assert_refused(answer)
    assert artifact.namespace not in answer.message
