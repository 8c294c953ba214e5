"""Broken configurations: each loses or bends one layer on its way, as its name says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustack_delivery.decisions import configuration
from gpustack_delivery.decisions.configuration import read_thresholds
from gpustack_delivery.decisions.settings import check, check_seeds, effective
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.vocabulary.node_store import KubeletThresholds
from gpustack_delivery.worker import kubelets, options
from gpustack_delivery.worker.kubelets import Kubelets, Reading
from gpustack_delivery.worker.settings import Settings
from tests.mutants.seams import Patch, breaks, idle


@breaks("MP-RES-01")
def takes_zero_for_unstated(patch: Patch) -> None:
    """Keep the cluster's limit where a pool says that there is none."""
    _limit(patch, lambda spec: replace(spec, bytes_per_second=spec.bytes_per_second or None))


@breaks("MP-RES-01")
def takes_unstated_for_zero(patch: Patch) -> None:
    """Free a pool of the cluster's limit that states another one alone."""
    _limit(patch, lambda spec: replace(spec, bytes_per_second=spec.bytes_per_second or 0))


@breaks("MP-RES-02")
def knows_no_pool(patch: Patch) -> None:
    """Configure every node by the Settings alone."""
    patch.setattr(configuration, "winner", lambda *_: None)


@breaks("MP-RES-03")
def lets_the_last_name_win(patch: Patch) -> None:
    """Prefer the store that comes last in the alphabet."""
    patch.setattr(
        configuration,
        "winner",
        lambda stores, labels: max(
            (each for each in stores if each.spec.node_selector.matches(labels)),
            key=lambda each: each.metadata.name,
            default=None,
        ),
    )


@breaks("NS-OWN-04")
def hears_no_setting(patch: Patch) -> None:
    """Come to know of a Setting when something else happens to a node."""
    patch.setattr(Settings, "subscribe", idle)


@breaks("NS-OWN-05")
def falls_back_to_the_default(patch: Patch) -> None:
    """Put the built-in value in the place of a bad one."""
    judge = Settings._judge

    def judged(self: Any, key: Any, old: Any, stored: Any) -> None:
        judge(self, key, old, stored)
        bad = check(effective(stored.values if stored else {}, {}))
        defaults = effective({}, {})
        self._values |= {name: defaults[name] for name in bad}

    patch.setattr(Settings, "_judge", judged)


@breaks("NS-OWN-06")
def reads_kubelets_once(patch: Patch) -> None:
    """Take a good reading for good."""
    patch.setattr(kubelets, "READ_SECONDS", 1e9)


@breaks("NS-OWN-06")
def reads_kubelets_by_the_clock_alone(patch: Patch) -> None:
    """Write a node's object without looking at its kubelet."""
    read = Kubelets.read

    def unread(self: Any, node: str) -> None:
        if self.reading(node) is None:
            read(self, node)

    patch.setattr(Kubelets, "read", unread)


@breaks("NS-OWN-07")
def takes_silence_for_no_thresholds(patch: Patch) -> None:
    """Believe that a kubelet which does not answer is set to nothing."""
    ask = Kubelets._ask

    def asked(self: Any, node: str, _last: Any) -> tuple[Reading, float]:
        reading, again = ask(self, node, None)
        return Reading(reading.thresholds or KubeletThresholds()), again

    patch.setattr(Kubelets, "_ask", asked)


@breaks("NS-RES-03")
def knows_one_filesystem(patch: Patch) -> None:
    """Leave out kubelet's threshold of the filesystem for images."""
    patch.setattr(
        kubelets,
        "read_thresholds",
        lambda configz: replace(read_thresholds(configz), imagefs_available=""),
    )


@breaks("OP-SET-02")
def starts_on_a_bad_seed(patch: Patch) -> None:
    """Leave it to whoever uses a seed to judge it."""
    patch.setattr(options, "check_seeds", idle)


@breaks("OP-SET-02")
def names_no_variable(patch: Patch) -> None:
    """Say what is wrong with a seed, and not with which."""

    def judged(environment: Any) -> None:
        try:
            check_seeds(environment)
        except ConfigurationFault:
            raise ConfigurationFault("the worker's environment holds a bad seed") from None

    patch.setattr(options, "check_seeds", judged)


def _limit(patch: Patch, change: Any) -> None:
    """Let downloads be limited by something else than the store says."""
    limits = configuration._limits

    def limited(parts: Any, store: Any, last: Any) -> Any:
        return limits(parts, store and replace(store, spec=change(store.spec)), last)

    patch.setattr(configuration, "_limits", limited)
