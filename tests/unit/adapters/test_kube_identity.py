"""The Pod's own way to its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack_delivery.vocabulary.resources import CONFIG_MAPS
from tests.unit.adapters.test_kube import OBJECT, Api


def test_no_proxy_stands_before_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that a Pod's environment names for the hubs is not asked for the API server."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    api = Api()
    with api.server:
        kube = api.service_account(tmp_path, "token")
        assert kube.get(CONFIG_MAPS, "a", "ns") == OBJECT
        kube.close()
