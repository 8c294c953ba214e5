"""Sets CSI ephemeral volumes up and takes them down, in the order and words of kubelet.

On disk, below the node's kubelet folder: `pods/<uid>/volumes/kubernetes.io~csi/<volume>/` (0750)
holds `vol_data.json`, from which alone the volume can be taken down again, and `mount`, which the
driver makes and removes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from emulator.client import Client
from emulator.contracts import Json, Target
from emulator.errors import ApiError
from emulator.kubelet.calls import CallError, Driver
from gpustack_delivery.csi_wire import csi_pb2

_PREFIX = "csi.storage.k8s.io/"
_TOKENS = f"{_PREFIX}serviceAccount.tokens"
_TOKEN_SECONDS = 3600


class After(Enum):
    """What a failure leaves: nothing changed, nothing there, or nobody knows."""

    UNCHANGED = "unchanged"
    NOTHING = "nothing"
    UNCERTAIN = "uncertain"


class VolumeFailure(Exception):
    """A volume was not set up or taken down; the text goes into the Pod's event."""

    def __init__(self, message: str, after: After = After.UNCHANGED) -> None:
        """Say what went wrong and what it leaves."""
        super().__init__(message)
        self.after = after


class MountedAt(Protocol):
    """The part of a mount table that kubelet looks at."""

    def seen_at(self, target: Path) -> object | None:
        """Return what is mounted on a target."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one volume of one Pod lies on a node."""

    kubelet_dir: Path
    pod_uid: str
    volume: str

    @property
    def folder(self) -> Path:
        """Return the folder that kubelet keeps for the volume."""
        return (
            self.kubelet_dir / "pods" / self.pod_uid / "volumes" / "kubernetes.io~csi" / self.volume
        )

    @property
    def target(self) -> Path:
        """Return the path that the driver mounts at."""
        return self.folder / "mount"

    @property
    def data(self) -> Path:
        """Return the file that says whose volume this is."""
        return self.folder / "vol_data.json"

    @property
    def handle(self) -> str:
        """Return the id of an ephemeral volume, always the same for the same Pod and volume."""
        return _hashed(self.pod_uid + self.volume)

    def make(self) -> None:
        """Make the volume's folder, which only root may enter, and those above it."""
        for folder in (*reversed(self.folder.parents[:3]), self.folder):
            folder.mkdir(mode=0o750, exist_ok=True)

    def remove(self) -> None:
        """Remove what is left of the volume. Raises OSError when something lies there."""
        if self.target.exists():
            self.target.rmdir()
        self.data.unlink(missing_ok=True)
        if self.folder.exists():
            self.folder.rmdir()


class Publisher:
    """Calls the drivers of one node."""

    def __init__(
        self,
        client: Client,
        drivers: Callable[[], Mapping[str, Driver]],
        mounts: MountedAt,
        node_name: str,
    ) -> None:
        """Ask `drivers` for what is registered at the time of each call."""
        self._client = client
        self._drivers = drivers
        self._mounts = mounts
        self._node_name = node_name

    def set_up(self, pod: Json, volume: Json, place: Place, *, mounted: bool) -> None:
        """Call NodePublishVolume for an inline volume; `mounted` says that it was published before.

        Raises:
            VolumeFailure: with kubelet's text and what the failure leaves.
        """
        source = volume["csi"]
        driver = self._driver(source["driver"], "mounter.SetUpAt")
        spec = self._ephemeral_spec(source["driver"])
        secrets = self._secrets(pod, source)
        request = self._request(pod, source, place, driver, spec)
        request.secrets.update(secrets)
        self._add_tokens(request, pod, spec)
        try:
            place.make()
            self._save(place, driver.name)
        except OSError as error:
            text = f"mounter.SetUpAt failed to create dir {place.folder}: {error.strerror}"
            raise VolumeFailure(f"kubernetes.io/csi: {text}") from error
        try:
            driver.publish(request)
        except CallError as error:
            if not error.final:
                raise VolumeFailure(str(error), After.UNCERTAIN) from error
            if not mounted and self._mounts.seen_at(place.target) is None:
                with suppress(OSError):  # what the driver left there does not hide its error
                    place.remove()
            raise VolumeFailure(str(error), After.NOTHING) from error

    def tear_down(self, place: Place) -> None:
        """Call NodeUnpublishVolume and remove the volume's folder.

        Raises:
            VolumeFailure: the volume is still there, perhaps mounted.
        """
        try:
            data = json.loads(place.data.read_bytes())
            driver = self._driver(data["driverName"], "Unmounter.TearDownAt")
            driver.unpublish(data["volumeHandle"], place.target)
            if self._mounts.seen_at(place.target) is not None:
                raise VolumeFailure(f"{place.target} is still mounted after NodeUnpublishVolume")
            place.remove()
        except (CallError, OSError, ValueError, KeyError) as error:
            raise VolumeFailure(
                f"UnmountVolume.TearDown failed for volume {place.volume!r}: {error}"
            ) from error

    def republishes(self, volume: Json) -> bool:
        """Say whether the volume's driver wants to be called again and again."""
        try:
            driver = self._client.get("storage.k8s.io/v1", "CSIDriver", volume["csi"]["driver"])
        except ApiError:
            return False
        return bool(driver["spec"].get("requiresRepublish"))

    def _driver(self, name: str, where: str) -> Driver:
        driver = self._drivers().get(name)
        if driver is None:
            raise VolumeFailure(
                f"kubernetes.io/csi: {where} failed to get CSI client: driver name {name} "
                "not found in the list of registered CSI drivers"
            )
        return driver

    def _ephemeral_spec(self, name: str) -> Json:
        """Return the CSIDriver's spec, which must admit ephemeral volumes."""
        try:
            spec: Json = self._client.get("storage.k8s.io/v1", "CSIDriver", name)["spec"]
        except ApiError as error:
            if error.code != 404:
                raise VolumeFailure(str(error)) from error
            modes = None
        else:
            modes = spec.get("volumeLifecycleModes") or ["Persistent"]
            if "Ephemeral" in modes:
                return spec
        listed = " ".join(f'"{mode}"' for mode in modes or ())
        why = "no CSIDriver object" if modes is None else f"only supports [{listed}]"
        raise VolumeFailure(
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: "
            f'volume mode "Ephemeral" not supported by driver {name} ({why})'
        )

    def _secrets(self, pod: Json, source: Json) -> dict[str, str]:
        reference = source.get("nodePublishSecretRef")
        if not reference:
            return {}
        namespace, name = pod["metadata"]["namespace"], reference["name"]
        try:
            data = self._client.get("v1", "Secret", name, namespace=namespace).get("data") or {}
            return {key: base64.b64decode(value).decode() for key, value in data.items()}
        except (ApiError, ValueError) as error:
            raise VolumeFailure(
                f"fetching NodePublishSecretRef {namespace}/{name} failed: kubernetes.io/csi: "
                f"failed to find the secret {name} in the namespace {namespace} with error: {error}"
            ) from error

    def _request(self, pod: Json, source: Json, place: Place, driver: Driver, spec: Json) -> Any:
        """Build NodePublishVolume; asks for the driver's capabilities twice, as kubelet does."""
        request = csi_pb2.NodePublishVolumeRequest(
            volume_id=place.handle,
            target_path=str(place.target),
            readonly=bool(source.get("readOnly")),
            volume_context=source.get("volumeAttributes") or {},
        )
        mount = request.volume_capability.mount
        mount.SetInParent()
        mount.fs_type = source.get("fsType") or ""
        request.volume_capability.access_mode.mode = (
            csi_pb2.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
        )
        if spec.get("podInfoOnMount"):
            request.volume_context.update(_pod_context(pod))
        try:
            takes_group = "VOLUME_MOUNT_GROUP" in driver.capabilities()
            driver.capabilities()  # does it tell single-node writers apart? moot for these volumes
        except CallError as error:
            raise VolumeFailure(
                "kubernetes.io/csi: mounter.SetUpAt failed to determine if the node service has "
                f"VOLUME_MOUNT_GROUP capability: {error}"
            ) from error
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None and takes_group:
            mount.volume_mount_group = str(group)
        elif group is not None and spec.get("fsGroupPolicy") == "File" and not request.readonly:
            raise VolumeFailure(
                "the emulator does not change the owner of a volume: set fsGroupPolicy None on "
                f"CSIDriver {driver.name}, or take fsGroup out of the Pod"
            )
        return request

    def _add_tokens(self, request: Any, pod: Json, spec: Json) -> None:
        """Put the service account tokens that the driver asks for where it wants them."""
        wanted = spec.get("tokenRequests") or ()
        if not wanted:
            return
        tokens = {one["audience"]: self._token(pod, one) for one in wanted}
        where = (
            request.secrets if spec.get("serviceAccountTokenInSecrets") else request.volume_context
        )
        where[_TOKENS] = json.dumps(tokens, separators=(",", ":"))

    def _token(self, pod: Json, wanted: Json) -> Json:
        metadata = pod["metadata"]
        body: Json = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [wanted["audience"]] if wanted["audience"] else [],
                "expirationSeconds": wanted.get("expirationSeconds", _TOKEN_SECONDS),
                "boundObjectRef": {
                    "kind": "Pod", "apiVersion": "v1",
                    "name": metadata["name"], "uid": metadata["uid"],
                },
            },
        }  # fmt: skip
        account = pod["spec"]["serviceAccountName"]
        try:
            accounts = self._client.api.resource("", "v1", "serviceaccounts")
            target = Target(accounts, metadata["namespace"], account, "token")
            answer = self._client.post(target, body)
        except ApiError as error:
            raise VolumeFailure(
                "kubernetes.io/csi: mounter.SetUpAt failed to get service account token "
                f"attributes: {error}"
            ) from error
        status = answer["status"]
        return {"token": status["token"], "expirationTimestamp": status["expirationTimestamp"]}

    def _save(self, place: Place, driver: str) -> None:
        content = {
            "attachmentID": attachment_id(place.handle, driver, self._node_name),
            "driverName": driver,
            "nodeName": self._node_name,
            "specVolID": place.volume,
            "volumeHandle": place.handle,
            "volumeLifecycleMode": "Ephemeral",
        }
        place.data.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def volumes_on_disk(kubelet_dir: Path) -> list[Place]:
    """Return every CSI volume that a node's folder still knows of."""
    found = kubelet_dir.glob("pods/*/volumes/kubernetes.io~csi/*/vol_data.json")
    return [Place(kubelet_dir, path.parts[-5], path.parts[-2]) for path in sorted(found)]


def attachment_id(handle: str, driver: str, node: str) -> str:
    """Return the name that kubelet gives to the attachment of a volume to a node."""
    return _hashed(handle + driver + node)


def _pod_context(pod: Json) -> dict[str, str]:
    metadata = pod["metadata"]
    return {
        f"{_PREFIX}pod.name": metadata["name"],
        f"{_PREFIX}pod.namespace": metadata["namespace"],
        f"{_PREFIX}pod.uid": metadata["uid"],
        f"{_PREFIX}serviceAccount.name": pod["spec"].get("serviceAccountName", "default"),
        f"{_PREFIX}ephemeral": "true",
    }


def _hashed(text: str) -> str:
    return "csi-" + hashlib.sha256(text.encode()).hexdigest()
