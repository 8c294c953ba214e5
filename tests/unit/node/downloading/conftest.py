"""Fixtures of the download engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.node.downloading.site import Site
from tests.unit.origin import Handler, Origin


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Handler], tuple[Site, Origin]]]:
    """Give a way to start an origin with a handler, and a site that downloads from it."""
    with ExitStack() as stack:

        def start(handler: Handler) -> tuple[Site, Origin]:
            origin = stack.enter_context(Origin(handler))
            site = Site(tmp_path, origin.url)
            stack.callback(site.close)
            return site, origin

        yield start
