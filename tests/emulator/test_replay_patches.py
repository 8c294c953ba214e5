"""Patches and server-side apply, as a real server answered them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.replay import Hook, Session, cases
from tests.emulator.rig import session

RECORDING = "03-patch-apply"
CONFIG_MAPS = "/api/v1/namespaces/t1/configmaps"


def _config_map(opened: Session) -> None:
    opened.make("POST", CONFIG_MAPS, {"metadata": {"name": "cm"}, "data": {"a": "1"}})
    opened.make("PATCH", f"{CONFIG_MAPS}/cm", {"data": {"a": "2"}}, "application/merge-patch+json")


HOOKS = {"strategic-merge-patch on ConfigMap": Hook(before=_config_map)}


@pytest.fixture(scope="module")
def played() -> Iterator[Session]:
    """The recording, played once."""
    with session() as opened:
        yield opened.play(RECORDING, HOOKS)


@pytest.mark.parametrize("name", cases(RECORDING))
def test_answers_as_recorded(played: Session, name: str) -> None:
    """One exchange has the recorded status, headers and body."""
    played.check(name)
