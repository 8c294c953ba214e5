"""get and list: versions, pages, continue tokens."""

from __future__ import annotations

import base64
import binascii
import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from emulator.contracts import Json, ListOptions, ListResult, Target
from emulator.errors import (
    ApiError,
    Cause,
    bad_request,
    expired,
    invalid,
    not_supported,
    refused_field,
    unparsable_version,
)
from emulator.objects import Collection
from emulator.selectors import Selection, selection
from emulator.state import State, collection_of

_TOO_OLD_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that "
    "were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in "
    "the list."
)
_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - a format's name


@dataclass(frozen=True, slots=True)
class _Page:
    """Where a list begins: at which version (None: now, whatever that is) and from which key on."""

    version: int | None
    start: str = ""


class Reads:
    """The reading verbs but watch."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, target: Target, resource_version: str) -> Json:
        """Return a stored object in the version asked for. Raises ApiError 404, 504."""
        kind = self._state.kind(target.resource)
        version = parsed_version(resource_version, "resourceVersion")
        if version:
            self._state.await_version(version)
        return kind.convert(self._state.stored(target))

    def list(self, target: Target, options: ListOptions) -> ListResult:
        """Return one page. Raises ApiError 400, 410, 422, 504."""
        state, kind = self._state, self._state.kind(target.resource)
        check_list_options(options, watch=False)
        chosen = selection(kind, options.label_selector, options.field_selector)
        page = self._page(target, options)
        limit = max(options.limit, 0)
        if options.resource_version == "0":
            limit = 0  # the real server answers this from its cache, whole
        with state.store.lock:
            collection = state.store.collection(collection_of(target.resource))
            if collection is None:
                raise state.registry.missing(target.resource.group, target.resource.version)
            version = state.store.version if page.version is None else page.version
            keys, objects = _contents(collection, target, page, state.store.version)
            found, position = _take(keys, objects, (chosen, limit))
        rest = len(keys) - position
        more = limit and rest > 0
        converted = (
            [kind.convert(one) for one in found]
            if found and kind.convert(found[0]) is not found[0]
            else found
        )
        return ListResult(
            items=converted,
            resource_version=str(version),
            continue_token=_token(version, keys[position - 1], target.namespace) if more else "",
            remaining=rest if more and not chosen else None,
        )

    def _page(self, target: Target, options: ListOptions) -> _Page:
        if options.continue_token:
            if options.resource_version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            version, start = _read_token(options.continue_token)
            prefix = (
                f"{target.namespace}/"
                if target.namespace
                else ("" if target.resource.namespaced else "/")
            )
            return _Page(None if version < 0 else version, prefix + start)
        version = parsed_version(options.resource_version, "resourceVersion")
        if not version:
            return _Page(None)
        self._state.await_version(version)
        exact = options.resource_version_match == "Exact"
        legacy = not options.resource_version_match and options.limit > 0
        return _Page(version if exact or legacy else None)


def _contents(
    collection: Collection, target: Target, page: _Page, current: int
) -> tuple[Sequence[str], dict[str, Json]]:
    """Return the keys from the page's start on, and the objects, as of the page's version."""
    if page.version is None or page.version == current:
        span = collection.span(target.namespace, page.start)
        return [collection.keys[index] for index in span], collection.objects
    if page.version < collection.oldest:
        if not page.start:
            raise expired("The resourceVersion for the provided list is too old.")
        error = expired(_TOO_OLD_PAGE)
        start = page.start.removeprefix(f"{target.namespace}/").removeprefix("/")
        error.status["metadata"] = {"continue": _encoded(-1, start)}
        raise error
    objects = collection.at(page.version)
    prefix = f"{target.namespace}/" if target.namespace else ""
    keys = sorted(key for key in objects if key.startswith(prefix))
    return keys[bisect_left(keys, page.start) :], objects


def _take(
    keys: Sequence[str], objects: dict[str, Json], how: tuple[Selection, int]
) -> tuple[list[Json], int]:
    """Return the selected objects up to the limit (0: all), and how many keys were used up."""
    chosen, limit = how
    if not chosen:
        taken = keys[:limit] if limit else keys
        return [objects[key] for key in taken], len(taken)
    found: list[Json] = []
    used = 0
    for key in keys:
        used += 1
        if chosen.matches(objects[key]):
            found.append(objects[key])
            if len(found) == limit:
                break
    return found, used


def _token(version: int, last_key: str, namespace: str) -> str:
    start = last_key.removeprefix(f"{namespace}/") if namespace else last_key.removeprefix("/")
    return _encoded(version, f"/{start}\0")


def _encoded(version: int, start: str) -> str:
    text = json.dumps({"v": _TOKEN_VERSION, "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        text = raw.decode("utf-8", "replace")
        fields = json.loads(text)
        version, start = int(fields["rv"]), str(fields["start"])
    except json.JSONDecodeError as error:
        at = error.doc[error.pos : error.pos + 1]
        reason = (
            f"invalid character '{at}' looking for beginning of value"
            if at
            else "unexpected end of JSON input"
        )
        raise bad_request(f"invalid continue token: continue key is not valid: {reason}") from None
    except (binascii.Error, ValueError, KeyError, TypeError):
        text = (
            "invalid continue token: continue key is not valid: incorrect encoded start "
            "resourceVersion"
        )
        raise bad_request(f"{text} (version meta.k8s.io/v1)") from None
    return version, start.removeprefix("/")


def parsed_version(text: str, field: str = "") -> int:
    """Return a resourceVersion as a number, 0 for none. Raises ApiError 500."""
    if not text:
        return 0
    if not re.fullmatch(r"\d+", text):
        raise unparsable_version(field, text)
    return int(text)


def check_list_options(options: ListOptions, *, watch: bool) -> None:
    """Raise ApiError 422 for parameters that do not go together."""
    faults = [*_option_faults(options, watch=watch)]
    if faults:
        raise list_options_fault(faults)


def list_options_fault(faults: Sequence[Cause]) -> ApiError:
    """Return the 422 for list or watch parameters."""
    return invalid("meta.k8s.io", "ListOptions", "", faults)


def _option_faults(options: ListOptions, *, watch: bool) -> list[Cause]:
    field, match = "resourceVersionMatch", options.resource_version_match
    if watch:
        return _watch_option_faults(options)
    if options.send_initial_events is not None:
        return [refused_field("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    if not match:
        return []
    fault = ""
    if not options.resource_version:
        fault = f"{field} is forbidden unless resourceVersion is provided"
    elif options.continue_token:
        fault = f"{field} is forbidden when continue is provided"
    elif match not in ("Exact", "NotOlderThan"):
        return [not_supported(field, match, ("Exact", "NotOlderThan", ""))]
    elif match == "Exact" and options.resource_version == "0":
        fault = f'{field} "exact" is forbidden for resourceVersion "0"'
    return [refused_field(field, fault)] if fault else []


def _watch_option_faults(options: ListOptions) -> list[Cause]:
    field, initial = "resourceVersionMatch", options.send_initial_events
    fault = ""
    if options.resource_version_match and initial is None:
        fault = f"{field} is forbidden for watch unless sendInitialEvents is provided"
    elif initial is not None and options.resource_version_match != "NotOlderThan":
        fault = f"sendInitialEvents requires setting {field} to NotOlderThan"
    return [refused_field(field, fault)] if fault else []
