"""Merging and comparing by shape: the five walks that server-side apply is made of.

`complaints` checks a document, `owned` lists what it says, `compare` tells what changed, `merge`
lays one document over another, `prune` takes out what an applier no longer says and nobody else
owns.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from emulator.contracts import Json
from emulator.patches import fields
from emulator.patches.fields import FieldSet, Path
from emulator.patches.shapes import KEYED, LEAF, MAP, SET, Shape

Parts = dict[str, tuple[Any, Shape]]
ABSENT: Any = object()


def complaints(document: Any, shape: Shape, path: Path = ()) -> list[str]:
    """Return everything in a document that its shape does not know or allow, each with its path."""
    wrong = shape.complaint(document)
    if wrong:
        return [f"{fields.text(path)}: {wrong}"]
    form = shape.form(document)
    found: list[str] = []
    if form == MAP:
        for name in sorted(document):
            here, below = (*path, fields.member(name)), shape.member(name)
            if below is None:
                found.append(f"{fields.text(here)}: field not declared in schema")
            else:
                found.extend(complaints(document[name], below, here))
    elif form in {KEYED, SET}:
        found.extend(_list_complaints(document, shape, path))
    return found


def _list_complaints(items: list[Any], shape: Shape, path: Path) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for at, content in enumerate(items):
        element = _element(content, shape)
        if element is None:
            found.append(f"{fields.text(path)}: element {at}: the keys of the list are missing")
            continue
        if element in seen:
            found.append(
                f"{fields.text(path)}: duplicate entries for key {fields.text((element,))}"
            )
        seen.add(element)
        if shape.form(items) == KEYED:
            found.extend(complaints(content, shape.element(), (*path, element)))
    return found


def owned(document: Any, shape: Shape) -> FieldSet:
    """Return the paths that a document says, as an apply owns them: leaves, list items and chosen
    keys.
    """
    result = FieldSet()
    for element, (content, below) in (_parts(document, shape) or {}).items():
        inside = owned(content, below) if _parts(content, below) else FieldSet()
        if inside:
            result.children[element] = inside
        is_field = element.startswith("f:") and shape.declares(element[2:])
        if not inside or not is_field:
            result.members.add(element)
    return result


@dataclass(slots=True)
class Comparison:
    """What one document has over another, by path."""

    added: FieldSet = field(default_factory=FieldSet)
    removed: FieldSet = field(default_factory=FieldSet)
    modified: FieldSet = field(default_factory=FieldSet)


def compare(before: Any, after: Any, shape: Shape) -> Comparison:
    """Return what changed between two documents, containers included when they came or went."""
    result = Comparison()
    _compare(before, after, shape, (), result)
    return result


def _compare(before: Any, after: Any, shape: Shape, path: Path, result: Comparison) -> None:
    if before == after:
        return  # most of an object is as it was: this is what makes small changes cheap
    if isinstance(before, dict) and isinstance(after, dict):
        places = _differing(before, after, shape)
        for name, inner in places.items():
            inside = (*path, fields.member(name))
            _compare(before.get(name, ABSENT), after.get(name, ABSENT), inner, inside, result)
        if places:
            return
    old = _parts(before, shape) if before is not ABSENT else {}
    new = _parts(after, shape) if after is not ABSENT else {}
    # A container against null, or two empty ones, is compared as one value: so is whatever has no
    # parts.
    both_plain = not old and not new
    if path:
        if before is ABSENT:
            result.added.insert(path)
        elif after is ABSENT:
            result.removed.insert(path)
        elif (both_plain and before != after) or _plain(before, old) != _plain(after, new):
            result.modified.insert(path)
    for element in (old or {}).keys() | (new or {}).keys():
        old_content, below = (old or {}).get(element, (ABSENT, None))
        new_content, new_below = (new or {}).get(element, (ABSENT, None))
        place = below or new_below
        if place is not None:
            _compare(old_content, new_content, place, (*path, element), result)


def _differing(before: Json, after: Json, shape: Shape) -> dict[str, Shape]:
    """Return the members of two maps that differ, and their shapes; none unless both are maps."""
    if shape.form(before) != MAP or shape.form(after) != MAP:
        return {}
    names = [
        name
        for name in before.keys() | after.keys()
        if before.get(name, ABSENT) != after.get(name, ABSENT)
    ]
    places = ((name, shape.member(name)) for name in names)
    return {name: place for name, place in places if place is not None}


def _plain(value: Any, parts: Parts | None) -> bool:
    """Return whether a value is a true leaf: no container, nor the null that stands for one."""
    return parts is None and value is not None


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """Return `live` with `config` laid over it: maps by member, keyed lists and sets by item, the
    rest as a whole.
    """
    if config is ABSENT:
        return copy.deepcopy(live)
    form = shape.form(config)
    if config is None and live is not ABSENT and shape.form(live) != LEAF:
        return copy.deepcopy(
            live
        )  # null takes nothing away from a container: only no longer saying a field does
    if live is ABSENT or shape.form(live) != form or form == LEAF:
        return copy.deepcopy(config)
    return _merge_maps(live, config, shape) if form == MAP else _merge_lists(live, config, shape)


def _merge_maps(live: Json, config: Json, shape: Shape) -> Json:
    merged: Json = {}
    for name in [*live, *(name for name in config if name not in live)]:
        below = shape.member(name)
        if below is None:
            merged[name] = copy.deepcopy(config.get(name, live.get(name)))
        else:
            merged[name] = merge(live.get(name, ABSENT), config.get(name, ABSENT), below)
    return merged


def _merge_lists(live: list[Any], config: list[Any], shape: Shape) -> list[Any]:
    """Lay one list over another; what only `live` has comes as early as its own order allows."""
    old, new = _parts(live, shape) or {}, _parts(config, shape) or {}
    merged: dict[str, Any] = {}
    waiting = list(old)
    for element, (content, below) in new.items():
        while waiting and (waiting[0] not in new or waiting[0] in merged):
            earlier = waiting.pop(0)
            if earlier not in new:
                merged[earlier] = copy.deepcopy(old[earlier][0])
        merged[element] = merge(old[element][0] if element in old else ABSENT, content, below)
    for element in waiting:
        if element not in new:
            merged[element] = copy.deepcopy(old[element][0])
    return list(merged.values())


def prune(document: Any, shape: Shape, dropped: FieldSet, kept: FieldSet) -> Any:
    """Return the document without what is in `dropped` and not in `kept`; what is in neither stays.

    A container goes whole when nothing in it is kept; an emptied one goes too, unless it is kept
    itself. List items and chosen keys are kept by owning them, not by owning something inside: half
    an item is none.
    """
    form = shape.form(document)
    if form == LEAF or not dropped:
        return document
    result: dict[str, Any] = {}
    for element, (content, below) in (_parts(document, shape) or {}).items():
        is_field = element.startswith("f:") and shape.declares(element[2:])
        if kept.holds(element) if is_field else element in kept.members:
            remaining = prune(content, below, dropped.below(element), kept.below(element))
        elif dropped.holds(element):
            continue
        else:
            remaining = content
        if element in kept.members or remaining not in ({}, []) or content in ({}, []):
            result[element] = remaining
    if form == MAP:
        return {element[2:]: content for element, content in result.items()}
    return list(result.values())


def _parts(value: Any, shape: Shape) -> Parts | None:
    """Return the parts of a container by path element; None for a leaf."""
    form = shape.form(value)
    if form == LEAF:
        return None
    if form == MAP:
        members = ((name, content, shape.member(name)) for name, content in value.items())
        return {
            fields.member(name): (content, below)
            for name, content, below in members
            if below is not None
        }
    parts: Parts = {}
    for content in value:
        element = _element(content, shape)
        if element is not None:
            parts[element] = (content, shape.element())
    return parts


def _element(content: Any, shape: Shape) -> str | None:
    """Return the path element of a list item; None when it lacks its key."""
    keys = shape.keys()
    if not keys:
        return fields.value(content)
    if not isinstance(content, dict):
        return None
    named = {name: content.get(name, shape.key_default(name)) for name in keys}
    named = {name: content for name, content in named.items() if content is not None}
    return fields.item(named) if named else None
