"""How one worker runs: its options, checked before anything begins.

Rules: OP-SET-02.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpustack_delivery.decisions.addresses import listening_fault, object_name_fault
from gpustack_delivery.decisions.settings import check_seeds
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.httpd import everywhere
from gpustack_delivery.redaction import Token
from gpustack_delivery.worker.leader import LEASE_SECONDS, MAX_LEASE_SECONDS

MIN_LEASE_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker runs. It checks itself: a bad value raises ConfigurationFault.

    Attributes:
        namespace: the operator namespace: Settings, CA bundle, Lease, certificate, the plugin's
            Pods.
        model_manager_service_account: the plugin's ServiceAccount there.
        host: the address to listen on.
        webhook_port: webhooks, metrics and health; 0 takes a free port.
        webhook_service: the Service in front of the worker; also the Lease's name.
        webhook_configuration: the webhook configurations to keep trusting the certificate, "" for
            none; with it the certificate is shared through the Secret of this name and `-webhook`.
        public_api_service: the Service in front of the public API, "" to serve none.
        public_api_port: where the public API listens; 0 takes a free port.
        runs_consumers: run the Pods of ModelDeployments and Instances, which nobody else does here.
        completes_volumes: complete Pods' inline volumes that name their artifact alone.
        certificate_directory: serve the certificate mounted here instead.
        replica: this replica's own name among the candidates.
        lease_seconds: how long the leader's Lease lasts unrenewed; another replica leads after it.
        environment: where the Settings' seeds are read from.
        own_token: reads the worker's own bearer token, for an API server without SelfSubjectReview.
    """

    namespace: str
    model_manager_service_account: str
    host: str = field(default_factory=everywhere)
    webhook_port: int = 9443
    webhook_service: str = "gpustack-delivery-worker"
    webhook_configuration: str = ""
    public_api_service: str = ""
    public_api_port: int = 9444
    runs_consumers: bool = False
    completes_volumes: bool = False
    certificate_directory: Path | None = None
    replica: str = field(default_factory=lambda: f"{socket.gethostname()}-{secrets.token_hex(4)}")
    lease_seconds: int = LEASE_SECONDS
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    own_token: Callable[[], Token | None] = lambda: None

    def __post_init__(self) -> None:
        for flag, value in (
            ("--namespace", self.namespace),
            ("--model-manager-service-account", self.model_manager_service_account),
            ("--webhook-service", self.webhook_service),
            ("--webhook-configuration", self.webhook_configuration or "unset"),
            ("--public-api-service", self.public_api_service or "unset"),
        ):
            if fault := object_name_fault(value):
                raise ConfigurationFault(f"{flag} {fault}: {value!r}")
        if fault := listening_fault(self.host):
            raise ConfigurationFault(f"--host {fault}: {self.host!r}")
        if not 0 <= self.webhook_port <= 65535:
            raise ConfigurationFault("--webhook-port must be a whole number from 0 to 65535")
        if not 0 <= self.public_api_port <= 65535:
            raise ConfigurationFault("--public-api-port must be a whole number from 0 to 65535")
        if not MIN_LEASE_SECONDS <= self.lease_seconds <= MAX_LEASE_SECONDS:
            raise ConfigurationFault(
                f"--lease-seconds must be from {MIN_LEASE_SECONDS} to {MAX_LEASE_SECONDS}"
            )
        check_seeds(self.environment)

    @property
    def plugin_username(self) -> str:
        """Return the username of the plugin's ServiceAccount."""
        return f"system:serviceaccount:{self.namespace}:{self.model_manager_service_account}"
