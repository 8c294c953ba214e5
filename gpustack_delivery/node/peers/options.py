"""How node-to-node sync is switched on, and what it may cost.

Rules: PS-OFF-01, PS-SRV-01.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpustack_delivery.decisions.addresses import object_name_fault
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.httpd import everywhere

AUTHENTICATIONS: Final = ("token", "none")
TOKEN_FILE: Final = Path("/var/run/secrets/gpustack-model-peer/token")


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """The `--peer-sync-*` flags; checks itself.

    Args:
        port: where trees are served; 0 switches serving and pulling off.
        authentication: `token`, or `none` for a network that only plugins can reach.
        service_account: the plugins' account in the operator namespace, whose tokens count.
        max_serving_streams: file answers that run at once; the others wait their turn.
        streams_per_source: requests that run at once against one peer.
        token_file: the projected token that this plugin shows to others, read for every request.
        host: the address that trees are served on.

    Raises:
        ConfigurationFault: a value cannot be used; the message names its flag.
    """

    port: int = 0
    authentication: str = "token"
    service_account: str = ""
    max_serving_streams: int = 8
    streams_per_source: int = 4
    token_file: Path = TOKEN_FILE
    host: str = field(default_factory=everywhere)

    def __post_init__(self) -> None:
        if self.authentication not in AUTHENTICATIONS:
            raise ConfigurationFault(
                f"--peer-sync-auth must be token or none: {self.authentication!r}"
            )
        for flag, value, least, most in (
            ("--peer-sync-port", self.port, 0, 65535),
            ("--peer-sync-max-serving-streams", self.max_serving_streams, 1, 1024),
            ("--peer-sync-streams-per-source", self.streams_per_source, 1, 64),
        ):
            if not least <= value <= most:
                raise ConfigurationFault(f"{flag} must be from {least} to {most}: {value}")
        if self.service_account and (fault := object_name_fault(self.service_account)):
            raise ConfigurationFault(
                f"--peer-sync-service-account {fault}: {self.service_account!r}"
            )
        if not self.token_file.is_absolute():
            raise ConfigurationFault(
                f"--peer-sync-token-file must be an absolute path: {str(self.token_file)!r}"
            )
        if self.port and self.authentication == "token" and not self.service_account:
            raise ConfigurationFault(
                "--peer-sync-service-account is required with --peer-sync-auth=token: "
                "the name of the plugins' ServiceAccount"
            )


OFF: Final = PeerOptions()
"""Nothing is served, and nothing comes from peers."""
