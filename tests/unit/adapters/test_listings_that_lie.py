"""Hubs whose answers hold anything anywhere: each ends in a verdict, none in an error of ours."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
import responses

from gpustack_delivery.adapters.http import Http
from gpustack_delivery.adapters.huggingface import HuggingFace
from gpustack_delivery.adapters.modelscope import ModelScope
from gpustack_delivery.errors import HubFault
from gpustack_delivery.ports import Hub
from gpustack_delivery.vocabulary.manifest import Manifest

Place: TypeAlias = tuple[str | int, ...]
COMMIT = "0" * 40
ANYWHERE = re.compile(".*")
ODD: tuple[object, ...] = (
    None,
    [],
    {},
    "",
    -1,
    1.5,
    10**30,
    True,
    " \ud800",
    "x\n\0",
    [None],
    {"a": []},
    "*" * 64,
)
"""What may stand in a place of another kind; the lone surrogate is valid JSON and no UTF-8."""

FILES: list[Any] = [
    {"type": "file", "path": "a", "size": 3, "oid": "b" * 40},
    {"type": "file", "path": "b", "size": 3, "oid": "b" * 40, "lfs": {"oid": "b" * 64, "size": 3}},
    {"type": "directory", "path": "d"},
]
BLOBS: list[Any] = [
    {"Type": "blob", "Path": "a", "Size": 3, "Sha256": "b" * 64},
    {"Type": "tree", "Path": "d"},
]
ASKED: dict[str, Callable[[Hub], object]] = {
    "resolve": lambda hub: hub.resolve("org/model", "branch", None),
    "list": lambda hub: Manifest.of(hub.list_tree("org/model", COMMIT, None)).digest,
    "probe": lambda hub: hub.probe("org/model", COMMIT, None),
}


def enveloped(data: object) -> object:
    """Return an answer of ModelScope."""
    return {"Code": 200, "Data": data}


CASES: list[tuple[type[HuggingFace | ModelScope], str, Any]] = [
    (HuggingFace, "resolve", {"sha": COMMIT}),
    (HuggingFace, "list", FILES),
    (HuggingFace, "probe", FILES),
    (ModelScope, "resolve", enveloped({"Commit": [{"Id": COMMIT}]})),
    (ModelScope, "list", enveloped({"Files": BLOBS})),
    (ModelScope, "probe", enveloped({"Files": BLOBS})),
]


def places(value: object, here: Place = ()) -> Iterator[Place]:
    """Yield the way to each value in an answer, the answer itself first."""
    yield here
    members = value.items() if isinstance(value, dict) else ()
    for step, member in enumerate(value) if isinstance(value, list) else members:
        yield from places(member, (*here, step))


def replaced(value: Any, place: Place, odd: object) -> Any:
    """Return an answer with another value in one place."""
    if not place:
        return odd
    changed = copy.deepcopy(value)
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = odd
    return changed


@pytest.mark.parametrize(("kind", "asked", "good"), CASES)
def test_anything_anywhere_is_a_verdict(
    kind: type[HuggingFace | ModelScope], asked: str, good: Any
) -> None:
    """Whatever stands where in an answer: the hub is believed, or it ends as the hub's fault."""
    http = Http(environment={})
    hub = kind("https://hub.example", http)
    for place in places(good):
        for odd in ODD:
            with responses.RequestsMock(assert_all_requests_are_fired=False) as web:
                web.get(ANYWHERE, body=json.dumps(replaced(good, place, odd)))
                web.head(ANYWHERE)
                with suppress(HubFault):
                    ASKED[asked](hub)
    http.close()
