"""Two replicas of the worker among everybody else, for hours of a clock that does not run.

Each step is one act: a write by somebody, a trouble of the API server, a restart of a replica, a
change of the leader. Then nothing more happens until the cluster holds what its objects ask for: an
update that was lost stays lost, and the walk ends with it.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Self

from emulator.clock import ManualClock
from emulator.cluster import Cluster
from emulator.faults import Refuse
from gpustack_delivery.embedded import Embedded, host_fault
from gpustack_delivery.vocabulary.settings import (
    DOWNLOAD_CONCURRENCY,
    HUGGING_FACE_ENDPOINT,
    SECRET_NAME,
)
from tests.unit.worker.replica import ACCOUNT, NAMESPACE, RELEASE, Replica
from tests.writers.invariants import API, DRIVER, TEAM, Facts, faults
from tests.writers.people import GRANT, MODELS, NODES, People, source

STEP_SECONDS: Final = 20.0
# Mirrors pause for half a minute at most, controllers after many failures for five.
REST_STEPS: Final = 45
_REPORTS_GUARD: Final = "nodemodelstores-status.validate.worker.gpustack.ai"


class LostUpdateError(AssertionError):
    """Something is not as the objects ask, and nothing happens any more that would mend it."""


class Walk:
    """One cluster and its two replicas, from `with` to its end."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - repeatable
        random.seed(seed)  # what the worker itself leaves to chance
        self.clock = ManualClock()
        self.acts: list[str] = []
        self._cluster = Cluster(clock=self.clock, translate=host_fault, seed=seed)
        self._stack = ExitStack()
        self._replicas: dict[str, Replica] = {}
        self._concurrency = 8

    def __enter__(self) -> Self:
        """Start the cluster, install the chart, and begin with two replicas."""
        with ExitStack() as stack:
            cluster = stack.enter_context(self._cluster)
            hub = cluster.add_hub()
            for name in MODELS:
                hub.add_repository(f"org/{name}", {"model.bin": name.encode() * 9})
            Embedded(cluster, values={"publicApi": {"enabled": False}}).install()
            _let_anybody_report(cluster)
            self._environment = {
                HUGGING_FACE_ENDPOINT.seed_variable: hub.url,
                DOWNLOAD_CONCURRENCY.seed_variable: str(self._concurrency),
            }
            stack.callback(self._stop_all)
            for name in ("r1", "r2"):
                self._start(name)
            for name in NODES:
                cluster.paper_nodes.add(name, labels={"pool": "gpu"}, drivers=[DRIVER])
            create = cluster.client.create
            create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
            store = {"apiVersion": API, "kind": "ModelStore", "metadata": {"name": "pool"}}
            create({**store, "spec": {"nodeSelector": {}}})
            create(_of_the_team("ModelStoreBinding", "grant", GRANT))
            for name in MODELS:
                create(_of_the_team("ModelArtifact", name, {"source": source(name)}))
            self._people = People(cluster, self._dice)
            self._rest()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._stack.close()

    def step(self) -> None:
        """Let one thing happen, and the cluster come to what its objects ask for.

        Raises:
            LostUpdateError: it does not.
        """
        acts: list[Callable[[], str]] = [self._restart, self._crash, self._depose, self._configure]
        chosen = self._dice.choice([*acts, *[self._people.act] * 16])
        self.acts.append(chosen())
        if self._dice.random() < 0.3:  # the next one comes before the first is done with
            return
        self._rest()

    def _rest(self) -> None:
        for _ in range(REST_STEPS):
            self._pass_time()
            found = faults(Facts(self._cluster.client), self._concurrency)
            if not found:
                return
        self._cluster.faults.clear()
        raise LostUpdateError("; ".join(found))

    def _pass_time(self) -> None:
        self._cluster.paper_nodes.renew()
        self._people.bury()
        self.clock.advance(STEP_SECONDS)
        self._cluster.settle()

    def _configure(self) -> str:
        self._concurrency = self._concurrency % 20 + 1
        value = base64.b64encode(b"%d" % self._concurrency).decode()
        metadata = {"name": SECRET_NAME, "namespace": NAMESPACE}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        self._cluster.apply({**secret, "data": {DOWNLOAD_CONCURRENCY.name: value}})
        return "configure"

    def _restart(self) -> str:
        """End a replica in order, and start it again."""
        name = self._dice.choice(sorted(self._replicas))
        self._stop(name)
        self._start(name)
        return f"restart {name}"

    def _crash(self) -> str:
        """End a replica that does not give its Lease back, and start another."""
        name = self._dice.choice(sorted(self._replicas))
        rule = self._cluster.faults.add(Refuse(503), verb="update", resource="leases")
        self._stop(name)
        self._cluster.faults.remove(rule)
        self._start(f"{name}'")
        return f"crash {name}"

    def _depose(self) -> str:
        """Let nobody hold the Lease: whoever asks first has it."""
        patch = {"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 1}}
        client = self._cluster.client
        client.patch("coordination.k8s.io/v1", "Lease", ACCOUNT, patch, namespace=NAMESPACE)
        return "depose"

    def _start(self, name: str) -> None:
        replica = Replica(self._cluster, name, self._environment)
        self._cluster.faults.clear()  # a start that is refused is another test's
        self._replicas[name] = replica.__enter__()

    def _stop(self, name: str) -> None:
        self._replicas.pop(name).__exit__()
        for other in self._replicas.values():
            other.serve()

    def _stop_all(self) -> None:
        for name in list(self._replicas):
            self._stop(name)


def _of_the_team(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "namespace": TEAM}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def _let_anybody_report(cluster: Cluster) -> None:
    """Take the guard of reports away: paper nodes run no Pod of a plugin."""
    kind = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
    found = cluster.client.get(*kind, RELEASE)
    found["webhooks"] = [hook for hook in found["webhooks"] if hook["name"] != _REPORTS_GUARD]
    cluster.client.update(found)
