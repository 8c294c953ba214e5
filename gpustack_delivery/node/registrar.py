"""Announces the driver to kubelet: a small server in kubelet's plugins_registry that says what
listens where.

In a cluster a sidecar does this beside the plugin; here it is a class of our own, so that the
plugin needs nothing else to be complete. It asks the driver for its name first, so that kubelet
never hears of a driver that does not answer, and takes its socket away when it stops, upon which
kubelet forgets the driver.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

from gpustack_delivery.csi_wire import pluginregistration_pb2, pluginregistration_pb2_grpc
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.node.csi import SocketServer, driver_name

VERSIONS: Final = ("1.0.0",)
DRIVER_SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


class Registrar:
    """Registers one driver, from `start` to `stop`.

    Args:
        csi_address: the driver's socket, as this process sees it.
        registry_dir: kubelet's plugins_registry.
        registration_path: the driver's socket as kubelet sees it; the same as `csi_address` by
            default.
    """

    def __init__(
        self, csi_address: Path, registry_dir: Path, registration_path: Path | None = None
    ) -> None:
        self._csi_address = csi_address
        self._registry_dir = registry_dir
        self._registration_path = registration_path or csi_address
        self._server: SocketServer | None = None
        self._service: _Registration | None = None

    def start(self) -> None:
        """Ask the driver for its name and announce it.

        Raises:
            ConfigurationFault: there is no registry, the driver does not answer, or the
            registration socket cannot be made.
        """
        if not os.path.isdir(self._registry_dir):  # noqa: PTH112 - never raises
            # Made by us it would be a folder that kubelet never looks into.
            raise ConfigurationFault(
                f"--plugins-registry {self._registry_dir} is no folder here: mount kubelet's "
                "plugins_registry there"
            )
        name = driver_name(self._csi_address, timeout_seconds=DRIVER_SECONDS)
        service = _Registration(name, str(self._registration_path))
        self._service = service

        def register(server: Any) -> None:
            pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(service, server)

        self._server = SocketServer(self._registry_dir / f"{name}-reg.sock", register)
        self._server.start()

    def stop(self) -> None:
        """Take the announcement back; safe twice."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def refused(self) -> str:
        """Return kubelet's last refusal, "" after an acceptance or before any answer."""
        return self._service.refusal if self._service else ""


class _Registration(
    pluginregistration_pb2_grpc.RegistrationServicer  # type: ignore[misc]  # stubs are untyped
):
    """pluginregistration.Registration."""

    def __init__(self, name: str, endpoint: str) -> None:
        self._name = name
        self._endpoint = endpoint
        self.refusal = ""

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the wire's name
        """Say what the driver is and where it listens."""
        return pluginregistration_pb2.PluginInfo(
            type="CSIPlugin",
            name=self._name,
            endpoint=self._endpoint,
            supported_versions=VERSIONS,
        )

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        """Hear whether kubelet took it; after a refusal kubelet itself tries again."""
        self.refusal = "" if request.plugin_registered else request.error
        if self.refusal:
            _log.error("kubelet refused the driver: name=%s error=%r", self._name, self.refusal)
        else:
            _log.info("driver registered: name=%s", self._name)
        return pluginregistration_pb2.RegistrationStatusResponse()
