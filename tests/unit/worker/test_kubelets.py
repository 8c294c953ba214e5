"""What kubelet is set to reaches the nodes' objects, and failures to read it do no harm."""

from __future__ import annotations

from gpustack_delivery.errors import Unreachable
from gpustack_delivery.vocabulary import settings
from tests.unit.fakes import eventually
from tests.unit.worker.node_stores_run import PATH, cluster, running, set_setting, spec


def test_kubelet_is_read_again_every_half_hour() -> None:
    """A changed threshold reaches the spec with the next reading, without any other change."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        kube.raw[PATH] = {"kubeletconfig": {"imageGCHighThresholdPercent": 70}}
        run.advance(1790)
        run.rest()
        assert spec(kube)["kubelet"]["imageGCHighThresholdPercent"] == 85
        run.advance(11)
        eventually(lambda: spec(kube)["kubelet"] == {"imageGCHighThresholdPercent": 70})


def test_failed_reading_keeps_the_last() -> None:
    """A kubelet that stops answering changes nothing, and is asked again after a minute."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        kube.raw[PATH] = Unreachable("no route")
        run.advance(1801)
        run.until(lambda: kube.count("raw") == 2)
        assert spec(kube)["kubelet"]["nodefsAvailable"] == "10%"
        kube.raw[PATH] = {"kubeletconfig": {"evictionHard": {"nodefs.available": "20%"}}}
        run.advance(61)
        eventually(lambda: spec(kube)["kubelet"] == {"nodefsAvailable": "20%"})


def test_kubelet_never_read() -> None:
    """A node whose kubelet answers nonsense has an object without thresholds."""
    kube = cluster()
    kube.raw[PATH] = b"<html>"
    with running(kube) as run:
        run.until(lambda: spec(kube))
    assert "kubelet" not in spec(kube)


def test_thresholds_survive_a_restart_with_a_silent_kubelet() -> None:
    """What an earlier worker read stays until the kubelet was read again."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
    kube.raw[PATH] = Unreachable("no route")
    applied = kube.count("apply")
    with running(kube) as run:
        run.until(lambda: kube.count("raw") >= 2)
    assert spec(kube)["kubelet"] == {"nodefsAvailable": "10%", "imageGCHighThresholdPercent": 85}
    assert kube.count("apply") == applied


def test_written_on_a_fresh_reading() -> None:
    """A write for another reason also takes up what kubelet is set to by then."""
    kube = cluster()
    with running(kube) as run:
        run.until(lambda: spec(kube))
        kube.raw[PATH] = {"kubeletconfig": {"imageGCHighThresholdPercent": 60}}
        set_setting(kube, settings.DOWNLOAD_CONCURRENCY, "4")
        eventually(lambda: spec(kube).get("kubelet") == {"imageGCHighThresholdPercent": 60})
        assert spec(kube)["download"]["concurrency"] == 4
