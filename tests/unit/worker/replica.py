"""One replica of the worker on an emulated cluster, as its Deployment would run it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Self

from emulator.cluster import Cluster
from gpustack_delivery.adapters.kube import connect
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.redaction import Token
from gpustack_delivery.worker.operator import Worker
from gpustack_delivery.worker.options import WorkerOptions

NAMESPACE = "gpustack-system"
RELEASE = "gpustack-delivery"
ACCOUNT = f"{RELEASE}-worker"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


class Replica:
    """A replica, from `with` to its end; the webhooks' Service leads to the one started last."""

    def __init__(
        self, cluster: Cluster, name: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.kubeconfig = cluster.kubeconfig(USER)
        self._routes = cluster.webhooks.routes
        self._kube = connect(str(self.kubeconfig))
        options = WorkerOptions(
            namespace=NAMESPACE,
            model_manager_service_account=f"{RELEASE}-model-manager",
            host="127.0.0.1",
            webhook_port=0,
            webhook_service=ACCOUNT,
            webhook_configuration=RELEASE,
            replica=name,
            environment=environment or {},
            own_token=self._token,
        )
        self.worker = Worker(options, cluster.clock, self._kube)

    def __enter__(self) -> Self:
        """Start it, unless that is refused."""
        try:
            self.worker.start()
        except ConfigurationFault:
            self.__exit__()
            raise
        self.serve()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it in order."""
        self.worker.stop()
        self._kube.close()

    def serve(self) -> None:
        """Let the webhooks' Service lead here."""
        port = int(self.worker.url.rpartition(":")[2])
        self._routes[NAMESPACE, ACCOUNT] = ("127.0.0.1", port)

    def _token(self) -> Token:
        (user,) = json.loads(self.kubeconfig.read_text("utf-8"))["users"]
        return Token(user["user"]["token"])
