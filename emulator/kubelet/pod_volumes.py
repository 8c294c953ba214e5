"""All volumes of one Pod, of every kind.

CSI volumes are published by their drivers. A secret or a config map counts as there once its object
exists; projected and downward-API volumes, empty folders and paths of the host are there from the
start: nothing is copied, since no container reads it. Any other kind is refused by an event that
says so. A volume that no container mounts is left alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from emulator.client import Client
from emulator.contracts import Clock, Json
from emulator.errors import ApiError
from emulator.kubelet.publishing import Place, Publisher, VolumeFailure
from emulator.kubelet.volumes import Source, State, Volume

_ALWAYS_THERE = {"downwardAPI", "emptyDir", "hostPath", "projected"}
_OBJECTS = {"configMap": ("ConfigMap", "name"), "secret": ("Secret", "secretName")}


class Objects:
    """Volumes that show a secret or a config map: there when the object is."""

    def __init__(self, client: Client) -> None:
        """Look objects up as a client may."""
        self._client = client

    def set_up(self, pod: Json, volume: Json, place: Place, *, mounted: bool) -> None:
        """Look the object up; refuse a kind of volume that the emulator does not have."""
        source = next(key for key in volume if key != "name")
        if source not in _OBJECTS:
            raise VolumeFailure(
                f"the emulator has no {source} volumes: use csi, secret or configMap"
            )
        kind, field = _OBJECTS[source]
        name = volume[source][field]
        if volume[source].get("optional"):
            return
        try:
            self._client.get("v1", kind, name, namespace=pod["metadata"]["namespace"])
        except ApiError as error:
            raise VolumeFailure(f'{kind.lower()} "{name}" not found') from error

    def tear_down(self, place: Place) -> None:
        """Have nothing to take away."""

    def republishes(self, volume: Json) -> bool:
        """Never ask for a volume twice."""
        return False


def _nobody() -> None:
    """Hear of a change and do nothing."""


class PodVolumes:
    """The volumes of one Pod; `changed` is called when one of them has come or gone."""

    def __init__(
        self, publisher: Publisher, objects: Objects, clock: Clock, kubelet_dir: Path, uid: str
    ) -> None:
        """Find what an earlier kubelet left of the Pod's volumes: it may be mounted."""
        self.changed: Callable[[], None] = _nobody
        self._publisher = publisher
        self._objects = objects
        self._clock = clock
        self._kubelet_dir = kubelet_dir
        self._uid = uid
        self._volumes: dict[str, Volume] = {}
        left = kubelet_dir / "pods" / uid / "volumes" / "kubernetes.io~csi"
        for data in sorted(left.glob("*/vol_data.json")):
            self._volume(data.parent.name, publisher, State.UNCERTAIN)

    @property
    def published(self) -> bool:
        """Say whether every volume is there."""
        return all(volume.state is State.PUBLISHED for volume in self._volumes.values())

    @property
    def absent(self) -> bool:
        """Say whether no volume is there, for certain."""
        return all(volume.absent for volume in self._volumes.values())

    def publish(self, pod: Json, failed: Callable[[str, str], None]) -> None:
        """Have every volume published that a container mounts.

        Args:
            failed: hears the volume's name and a text, for each attempt that fails.
        """
        spec = pod["spec"]
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        used = {m["name"] for c in containers for m in c.get("volumeMounts") or ()}
        for volume in spec.get("volumes") or ():
            name = volume["name"]
            if name in used and not _ALWAYS_THERE & volume.keys():
                source: Source = self._publisher if "csi" in volume else self._objects
                found = self._volumes.get(name) or self._volume(name, source, State.ABSENT)
                found.want(pod, volume, partial(failed, name))

    def release(self) -> None:
        """Have every volume taken down."""
        for volume in self._volumes.values():
            volume.release()

    def clear_away(self) -> None:
        """Have every volume of a Pod that is gone taken down, and then its folder removed."""
        self.changed = lambda: self.remove_folder() if self.absent else None
        self.release()

    def stop(self) -> None:
        """Leave every volume as it is."""
        for volume in self._volumes.values():
            volume.stop()

    def remove_folder(self) -> None:
        """Remove the Pod's folder; there is no volume in it any more."""
        shutil.rmtree(self._kubelet_dir / "pods" / self._uid, ignore_errors=True)

    def _tell_change(self) -> None:
        self.changed()

    def _volume(self, name: str, source: Source, state: State) -> Volume:
        place = Place(self._kubelet_dir, self._uid, name)
        volume = Volume(source, place, self._clock, self._tell_change, state=state)
        self._volumes[name] = volume
        return volume
