"""What a cluster of a version can do."""

from __future__ import annotations

import pytest

from gpustack_delivery.decisions.cluster import mounts_images


@pytest.mark.parametrize(
    ("version", "mounts"),
    [
        ({"major": "1", "minor": "35"}, True),
        ({"major": "1", "minor": "36+"}, True),
        ({"major": "2", "minor": "0"}, True),
        ({"major": "1", "minor": "34"}, False),
        ({"major": "1", "minor": ""}, False),
        ({"major": "1"}, False),
        ({}, False),
        ("1.36", False),
        (None, False),
    ],
)
def test_images_are_mounted_from_1_35_on(version: object, *, mounts: bool) -> None:
    """An unknown version counts as too old."""
    assert mounts_images(version) is mounts
