"""operations#where-the-configuration-comes-from: seeds fill what nobody set, and must be right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spec_tests.scenario import World
from spec_tests.settings import set_setting
from spec_tests.targets import Ended
from spec_tests.warming import Warming

Worlds = Callable[..., World]
CONCURRENCY = "GPUSTACK_MODEL_STORE_DOWNLOAD_CONCURRENCY"


@pytest.mark.rule("OP-SET-02")
@pytest.mark.parametrize(
    ("variable", "wrong"),
    [
        (CONCURRENCY, "65"),
        ("GPUSTACK_MODEL_STORE_HIGH_WATERMARK", "70"),
        ("GPUSTACK_MODEL_ARTIFACT_HTTPS_PROXY", "http://user:word@proxy.example"),
        ("GPUSTACK_MODEL_ARTIFACT_REVALIDATE_INTERVAL", "59s"),
    ],
)
def test_a_wrong_seed_stops_the_worker_and_is_named(
    worlds: Worlds, variable: str, wrong: str
) -> None:
    """The worker ends at its start, and its last words name the variable and not its value."""
    with pytest.raises(Ended) as end:
        worlds(worker=True, plugins=False, seeds={variable: wrong})
    assert variable in str(end.value)
    assert "user:word" not in str(end.value)


@pytest.mark.rule("OP-SET-02")
def test_a_seed_counts_only_where_nothing_is_set(worlds: Worlds) -> None:
    """It is the default in place of the built-in one; a stored value wins over it."""
    world = worlds(worker=True, plugins=False, seeds={CONCURRENCY: "5"})
    Warming(world).register("node-a")

    def concurrency() -> int:
        return int(world.node.store()["spec"]["download"]["concurrency"])

    assert concurrency() == 5
    set_setting(world, "model-store-download-concurrency", "6")
    world.until(lambda: concurrency() == 6, "the stored value", within_seconds=60)
    set_setting(world, "model-store-download-concurrency", None)
    world.until(lambda: concurrency() == 5, "the seed again", within_seconds=60)
