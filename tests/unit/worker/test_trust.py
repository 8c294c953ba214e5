"""The webhook configurations trust the certificate in service, and nothing else of them moves."""

from __future__ import annotations

import base64

import pytest

from gpustack_delivery.errors import Conflict
from gpustack_delivery.vocabulary.resources import Json, Resource
from gpustack_delivery.worker.trust import Trust, establish_all
from tests.unit.worker.world import ClusterKube, SilentObserver, SteppedClock, idle

GROUP = "admissionregistration.k8s.io"
VALIDATING = Resource(GROUP, "v1", "validatingwebhookconfigurations", "V", namespaced=False)
MUTATING = Resource(GROUP, "v1", "mutatingwebhookconfigurations", "M", namespaced=False)


def pem(text: str) -> str:
    """Return what looks like a certificate."""
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"


FIRST, SECOND = pem("first"), pem("second")


def bundles(kube: ClusterKube, resource: Resource) -> list[str]:
    """Return the decoded CA bundles of a configuration."""
    found = kube.find(resource, "gpustack")
    assert found is not None
    configs = [webhook["clientConfig"] for webhook in found["webhooks"]]
    assert all(config["service"]["path"] == "/validate" for config in configs)
    return [base64.b64decode(config.get("caBundle", "")).decode() for config in configs]


def configuration() -> Json:
    """Return a configuration that trusts nobody."""
    config = {"service": {"name": "worker", "path": "/validate"}}
    webhooks = [{"name": name, "clientConfig": config} for name in ("a", "b")]
    return {"metadata": {"name": "gpustack"}, "webhooks": webhooks}


def test_bundles_follow_the_certificate() -> None:
    """Every webhook of both configurations is kept true, also after an upgrade emptied it."""
    kube, clock, ca = ClusterKube(), SteppedClock(), [FIRST]
    kube.put(VALIDATING, configuration())
    trust = Trust(kube, clock, SilentObserver(), "gpustack", lambda: ca[0])
    trust.start()
    idle(kube, clock, 1)
    assert bundles(kube, VALIDATING) == [FIRST, FIRST]
    kube.put(MUTATING, configuration())
    ca[0] = SECOND
    clock.advance(61)
    idle(kube, clock, 1)
    assert bundles(kube, MUTATING) == [SECOND, SECOND]
    assert bundles(kube, VALIDATING) == [SECOND + FIRST, SECOND + FIRST]
    patches = kube.count("patch")
    clock.advance(61)
    idle(kube, clock, 1)
    assert kube.count("patch") == patches
    kube.put(VALIDATING, configuration())
    clock.advance(61)
    idle(kube, clock, 1)
    assert bundles(kube, VALIDATING) == [SECOND, SECOND]
    trust.stop()


@pytest.mark.parametrize("held", [b"\xff\xfe no text", b"no certificate"])
def test_what_is_no_certificate_is_left_out(held: bytes) -> None:
    """What others put beside certificates keeps nobody from being trusted, and goes."""
    kube, found = ClusterKube(), configuration()
    for webhook in found["webhooks"]:
        bundle = base64.b64encode(held + SECOND.encode()).decode()
        webhook["clientConfig"] = webhook["clientConfig"] | {"caBundle": bundle}
    kube.put(VALIDATING, found)
    establish_all(kube, "gpustack", FIRST)
    assert bundles(kube, VALIDATING) == [FIRST + SECOND] * 2


def test_replicas_with_two_certificates_do_not_undo_each_other() -> None:
    """Each finds its own trusted, in whatever order they look, and writes no more."""
    kube = ClusterKube()
    for resource in (VALIDATING, MUTATING):
        kube.put(resource, configuration())
    for ca_pem in (FIRST, SECOND, FIRST, SECOND):
        establish_all(kube, "gpustack", ca_pem)
    assert bundles(kube, VALIDATING) == bundles(kube, MUTATING) == [SECOND + FIRST] * 2
    assert kube.count("patch") == 4


def test_what_was_trusted_long_ago_is_dropped() -> None:
    """However often the certificate is replaced, a bundle stays short: ours and three others."""
    kube = ClusterKube()
    kube.put(VALIDATING, configuration())
    made = [pem(name) for name in "abcdef"]
    for ca_pem in made:
        establish_all(kube, "gpustack", ca_pem)
    assert bundles(kube, VALIDATING) == ["".join(reversed(made[-4:]))] * 2


def test_a_race_between_replicas_is_lost_and_run_again() -> None:
    """Whoever was slower looks again; only one who always is gives up."""
    kube, late = ClusterKube(), Conflict("moved on", code=409)
    kube.put(VALIDATING, configuration())
    kube.trouble = [None, None, late]
    establish_all(kube, "gpustack", FIRST)
    assert bundles(kube, VALIDATING) == [FIRST, FIRST]
    kube.trouble = [late] * 5
    with pytest.raises(Conflict):
        establish_all(kube, "gpustack", SECOND)
