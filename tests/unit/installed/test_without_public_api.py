"""Everything but the public API, while it is down and where it was never wanted."""

from __future__ import annotations

from emulator import Cluster
from emulator.contracts import Json
from spec_tests.observe import ApiAs
from tests.unit.fakes import eventually
from tests.unit.installed.installation import API, FILES, PUBLIC, Installation, installed

FRONT_PROXY = "extension-apiserver-authentication"


def check_all_else(world: Installation) -> None:
    """Check a controller, a webhook and a mount; the stored version serves them all."""
    world.embedded.start_plugin(world.cluster.add_node("node-a"))
    world.artifact("tiny", "team-a")
    assert world.resolved("tiny", "team-a").startswith("sha256:")
    wrong = {"source": {"huggingFace": {"repository": "a b", "revision": "main"}}}
    metadata = {"name": "wrong", "namespace": "team-a"}
    body = {"apiVersion": API, "kind": "ModelArtifact", "metadata": metadata, "spec": wrong}
    assert "spec.source.huggingFace.repository" in world.refused(body).message
    assert world.mounted("consumer", "tiny", "team-a") == FILES


def status(world: Installation, path: str) -> int:
    """Return what the admin's GET of a path is answered with."""
    return ApiAs(world.cluster.kubeconfig(), "", {}).ask("GET", path)[0]


def test_all_else_goes_on_while_it_cannot_be_served_and_it_comes_by_itself() -> None:
    """Without a front proxy to believe, v1 alone is unavailable, for a minute more at most."""
    held: list[Json] = []

    def without_front_proxy(cluster: Cluster) -> None:
        found = cluster.client.get("v1", "ConfigMap", FRONT_PROXY, namespace="kube-system")
        held.append({**found, "metadata": {"name": FRONT_PROXY, "namespace": "kube-system"}})
        cluster.client.delete("v1", "ConfigMap", FRONT_PROXY, namespace="kube-system")

    with installed(before_start=without_front_proxy) as world:
        assert status(world, f"/apis/{PUBLIC}/modelartifacts") == 503
        check_all_else(world)
        assert status(world, f"/apis/{API}/modelartifacts") == 200
        world.cluster.client.create(held[0])
        world.clock.advance(61)
        world.embedded.route_public_api()
        eventually(lambda: status(world, f"/apis/{PUBLIC}/modelartifacts") == 200)


def test_all_else_works_where_it_is_switched_off() -> None:
    """No APIService is left to wait for: v1 is not there, and a namespace ends."""
    with installed({"publicApi": {"enabled": False}}) as world:
        check_all_else(world)
        assert status(world, f"/apis/{PUBLIC}/modelartifacts") == 404
        client = world.cluster.client
        services = client.list("apiregistration.k8s.io/v1", "APIService")
        assert not [one for one in services if one["spec"].get("service")]
        client.delete("v1", "Namespace", "team-b")

        def ended() -> bool:
            world.clock.advance(5)
            return "team-b" not in [
                one["metadata"]["name"] for one in client.list("v1", "Namespace")
            ]

        eventually(ended, "the namespace ends")
