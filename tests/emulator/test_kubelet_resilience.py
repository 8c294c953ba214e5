"""What a kubelet makes of drivers, disks and servers that do not do as they should."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator.contracts import Attributes
from emulator.errors import failure
from tests.emulator.csi_plugin import NAME, Refuse, Script
from tests.emulator.kubelet_world import world

Json = dict[str, Any]


def test_an_unpublish_that_leaves_the_mount_is_not_believed() -> None:
    """While something is mounted at the target the Pod stays, and unpublish is called again."""
    with world() as there:
        there.add_driver()
        pod = there.add_pod("p")
        target = there.node.target(pod)
        extra = there.node.kubelet_dir.parent / "extra"
        extra.mkdir()
        there.node.mounts.bind_read_only(extra, target)
        there.delete_pod("p")
        assert there.pod("p") is not None
        there.advance(1)
        assert there.pod("p") is None
        assert len(there.plugin.named("NodeUnpublishVolume")) == 2


def test_a_lost_volume_file_keeps_the_pod_and_asks_nobody() -> None:
    """Without vol_data.json kubelet does not know what to take down: the Pod stays Terminating."""
    with world() as there:
        there.add_driver()
        pod = there.add_pod("p")
        data = there.node.target(pod).with_name("vol_data.json")
        kept = data.with_name("kept.json")
        shutil.move(data, kept)
        there.delete_pod("p")
        there.advance(5)
        assert there.pod("p") is not None
        assert there.plugin.named("NodeUnpublishVolume") == []
        assert json.loads(kept.read_bytes())["driverName"] == NAME
        shutil.move(kept, data)
        there.advance(10)
        assert there.pod("p") is None


def test_what_a_failed_publish_left_behind_does_not_hide_its_error() -> None:
    """A driver that fails and leaves files at the target is told apart by its own words."""

    def litter(request: Json) -> None:
        target = Path(request["target_path"])
        target.mkdir(exist_ok=True)
        (target / "litter").write_bytes(b"")
        raise Refuse("INTERNAL")

    with world(Script(publish=litter)) as there:
        there.add_driver()
        there.add_pod("p")
        (event,) = there.events("p", "FailedMount")
        assert event["message"].endswith("rpc error: code = Internal desc = rig says INTERNAL")
        there.advance(1)
        assert len(there.plugin.named("NodePublishVolume")) == 2


def test_a_folder_that_cannot_be_made_is_said() -> None:
    """A file in the place of a volume's folder is named in the event, and nothing is published."""
    with world() as there:
        there.add_driver()
        (there.node.kubelet_dir / "pods").rmdir()
        (there.node.kubelet_dir / "pods").write_bytes(b"")
        there.add_pod("p")
        (event,) = there.events("p", "FailedMount")
        assert "mounter.SetUpAt failed to create dir" in event["message"]
        assert there.plugin.named("NodePublishVolume") == []
        (there.node.kubelet_dir / "pods").unlink()
        (there.node.kubelet_dir / "pods").mkdir()
        there.advance(1)
        assert len(there.plugin.named("NodePublishVolume")) == 1


class RefusingOnce:
    """An admission step that refuses the first writes of a resource's status."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, attributes: Attributes) -> None:
        """Refuse while there are refusals left."""
        target = attributes.target
        if (target.resource.plural, target.subresource) == ("pods", "status") and self.times:
            self.times -= 1
            raise failure(500, "InternalError", "not now")


def test_an_api_that_fails_holds_a_pod_up_and_no_longer() -> None:
    """A status that cannot be written is written a second later; the Pod runs all the same."""
    with world() as there:
        there.add_driver()
        refuse = RefusingOnce(2)
        validate = there.cluster.webhooks.validate

        def refusing(attributes: Attributes, warn: Callable[[str], None]) -> None:
            refuse(attributes)
            validate(attributes, warn)

        there.cluster.webhooks.validate = refusing  # type: ignore[method-assign]
        there.add_pod("p")
        there.advance(5)
        pod = there.pod("p")
        assert pod is not None
        assert pod["status"]["phase"] == "Running"
        assert refuse.times == 0


def test_other_kinds_of_volumes() -> None:
    """A missing config map holds the Pod until it comes; a kind that is lacking is named."""
    mounts = [{"name": "vol", "mountPath": "/vol"}]
    containers = [{"name": "c", "image": "rig.local/pause:1", "volumeMounts": mounts}]
    with world() as there:
        there.add_pod(
            "cm", containers=containers, volumes=[{"name": "vol", "configMap": {"name": "late"}}]
        )
        (event,) = there.events("cm", "FailedMount")
        assert event["message"].endswith('volume "vol" : configmap "late" not found')
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "late", "namespace": "n1"},
        }
        there.cluster.apply(config)
        there.advance(1)
        pod = there.pod("cm")
        assert pod is not None
        assert pod["status"]["phase"] == "Running"

        claim = {"persistentVolumeClaim": {"claimName": "c"}}
        there.add_pod("claim", containers=containers, volumes=[{"name": "vol", **claim}])
        (event,) = there.events("claim", "FailedMount")
        assert "the emulator has no persistentVolumeClaim volumes" in event["message"]
        for name in ("cm", "claim"):
            there.delete_pod(name)
            assert there.pod(name) is None
