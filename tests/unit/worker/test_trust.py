"""The webhook configurations trust the certificate in service, and nothing else of them moves."""

from __future__ import annotations

import base64

from gpustack_delivery.errors import Conflict
from gpustack_delivery.vocabulary.resources import Resource
from gpustack_delivery.worker.trust import Trust, establish_all
from tests.unit.worker.world import ClusterKube, SilentObserver, SteppedClock, idle

GROUP = "admissionregistration.k8s.io"
VALIDATING = Resource(GROUP, "v1", "validatingwebhookconfigurations", "V", namespaced=False)
MUTATING = Resource(GROUP, "v1", "mutatingwebhookconfigurations", "M", namespaced=False)


def bundles(kube: ClusterKube, resource: Resource) -> list[str]:
    """Return the decoded CA bundles of a configuration."""
    found = kube.find(resource, "gpustack")
    assert found is not None
    configs = [webhook["clientConfig"] for webhook in found["webhooks"]]
    assert all(config["service"]["path"] == "/validate" for config in configs)
    return [base64.b64decode(config.get("caBundle", "")).decode() for config in configs]


def test_bundles_follow_the_certificate() -> None:
    """Every webhook of both configurations is kept true, also after an upgrade emptied it."""
    kube, clock, ca = ClusterKube(), SteppedClock(), ["first"]
    config = {"service": {"name": "worker", "path": "/validate"}}
    body = {
        "metadata": {"name": "gpustack"},
        "webhooks": [{"name": "a", "clientConfig": config}, {"name": "b", "clientConfig": config}],
    }
    kube.put(VALIDATING, body)
    trust = Trust(kube, clock, SilentObserver(), "gpustack", lambda: ca[0])
    trust.start()
    idle(kube, clock, 1)
    assert bundles(kube, VALIDATING) == ["first", "first"]
    kube.put(MUTATING, body)
    ca[0] = "second"
    clock.advance(61)
    idle(kube, clock, 1)
    assert bundles(kube, VALIDATING) == bundles(kube, MUTATING) == ["second", "second"]
    patches = kube.count("patch")
    clock.advance(61)
    idle(kube, clock, 1)
    assert kube.count("patch") == patches
    kube.put(VALIDATING, body)
    clock.advance(61)
    idle(kube, clock, 1)
    assert bundles(kube, VALIDATING) == ["second", "second"]
    trust.stop()


def test_a_race_between_replicas_is_no_failure() -> None:
    """Whoever loses it finds the same certificate trusted."""
    kube = ClusterKube()
    config = {"service": {"name": "worker", "path": "/validate"}}
    body = {"metadata": {"name": "gpustack"}, "webhooks": [{"name": "a", "clientConfig": config}]}
    kube.put(VALIDATING, body)
    kube.trouble = [None, None, Conflict("moved on", code=409)]
    establish_all(kube, "gpustack", "ca")
    assert bundles(kube, VALIDATING) == [""]
    establish_all(kube, "gpustack", "ca")
    assert bundles(kube, VALIDATING) == ["ca"]
