"""Bodies and parameters of requests, in the server's own words where they are wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from emulator import k8s_wire
from emulator.contracts import DeleteOptions, Json, ListOptions, Resource, WriteOptions
from emulator.errors import (
    ApiError,
    Cause,
    bad_request,
    failure,
    invalid,
    invalid_value,
    not_supported,
    refused_field,
)
from emulator.kinds.custom import missing_kind
from emulator.routes import Route
from emulator.stations import APPLY

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
LARGEST_BYTES = 3 * 1024 * 1024


def media_type(header: str | None) -> str:
    """Return a Content-Type without parameters; JSON when there is none."""
    return (header or JSON).partition(";")[0].strip().lower() or JSON


def check_size(body: bytes) -> None:
    """Raise ApiError 413 for a body that is too large."""
    if len(body) > LARGEST_BYTES:
        text = f"Request entity too large: limit is {LARGEST_BYTES}"
        raise failure(413, "RequestEntityTooLarge", text)


def decode_object(
    body: bytes, content_type: str, resource: Resource
) -> tuple[Json, tuple[str, ...]]:
    """Return an object and its duplicate fields. Raises ApiError 400, 413, 415."""
    check_size(body)
    if content_type == PROTOBUF:
        return k8s_wire.decode(body), ()
    if content_type == YAML:
        found: Any = _yaml(body)
        complaints: tuple[str, ...] = ()
    elif content_type == JSON:
        found, complaints = _json(body, resource)
    else:
        accepted = ", ".join((JSON, YAML, PROTOBUF))
        text = (
            f"the body of the request was in an unknown format - accepted media types include: "
            f"{accepted}"
        )
        raise failure(415, "UnsupportedMediaType", text)
    if not isinstance(found, dict):
        raise bad_request(
            _unrecognized(resource, body, "json: cannot unmarshal into Go value of type struct")
        )
    if resource.custom and not found.get("kind"):
        raise bad_request(missing_kind(resource, body.decode("utf-8", "replace")))
    return found, complaints


def decode_patch(body: bytes, content_type: str) -> Any:
    """Return a patch document. Raises ApiError 400, 413."""
    check_size(body)
    if content_type == APPLY:
        return _yaml(body)
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise bad_request(f"error decoding patch: {_go_error(body)}") from None


def _yaml(body: bytes) -> Any:
    try:
        return json.loads(body) if body.lstrip()[:1] == b"{" else _yaml_without_times(body)
    except (yaml.YAMLError, ValueError) as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def _yaml_without_times(body: bytes) -> Any:
    return yaml.load(body, Loader=_YamlLoader)  # noqa: S506 - a safe loader, with one rule less


class _YamlLoader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """YAML as JSON knows it: a time stays the text it was."""


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _unrecognized(resource: Resource, body: bytes, reason: str) -> str:
    text = body.decode("utf-8", "replace")
    short = (f"{text[:30]} ..." if len(text) > 30 else text) if text else "<empty>"
    return (
        f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get "
        f"version/kind; "
        f"json parse error: {reason} ({short})"
    )


def _go_error(body: bytes) -> str:
    """Return what Go's decoder says of a body that is no JSON."""
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        character = error.doc[error.pos : error.pos + 1]
        if character:
            return f"invalid character '{character}' looking for beginning of value"
    except ValueError:
        return "invalid UTF-8 in string"
    return "unexpected end of JSON input"


class _Repeats:
    """Notices objects that name a field twice while a body is decoded."""

    def __init__(self) -> None:
        self.found = False

    def __call__(self, pairs: list[tuple[str, Any]]) -> Json:
        object_ = dict(pairs)
        if len(object_) != len(pairs):
            self.found = True
        return object_


def _json(body: bytes, resource: Resource) -> tuple[Any, tuple[str, ...]]:
    repeats = _Repeats()
    try:
        found = json.loads(body, object_pairs_hook=repeats)
    except ValueError:
        raise bad_request(_unrecognized(resource, body, _go_error(body))) from None
    if not repeats.found:
        return found, ()
    pairs = json.loads(body, object_pairs_hook=_Pairs)
    return found, tuple(f'duplicate field "{path}"' for path in _repeated(pairs, ""))


class _Pairs(list[tuple[str, Any]]):
    """An object as the pairs it was written in."""


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, below in value:
            where = f"{path}.{name}" if path else name
            if name in seen:
                yield where
            seen.add(name)
            yield from _repeated(below, where)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _repeated(below, f"{path}[{index}]")


def write_options(route: Route, kind: str, complaints: tuple[str, ...] = ()) -> WriteOptions:
    """Return write parameters; `kind` names them in a refusal. Raises ApiError 422."""
    faults = [*_dry_run_faults(route.query.get("dryRun", ()))]
    validation = route.parameter("fieldValidation")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        faults.append(
            not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn"))
        )
    manager = route.parameter("fieldManager")
    if len(manager) > 128:
        faults.append(
            Cause("fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes")
        )
    if faults:
        raise _options_fault(kind, faults)
    return WriteOptions(
        dry_run=bool(route.query.get("dryRun")),
        field_manager=manager,
        field_validation=validation or "Warn",
        force=bool(route.flag("force")),
        complaints=complaints,
    )


def check_patch_options(route: Route, content_type: str) -> None:
    """Raise ApiError 422 for parameters that only an apply may have."""
    if route.flag("force") is not None and content_type != APPLY:
        raise _options_fault(
            "PatchOptions", [refused_field("force", "may not be specified for non-apply patch")]
        )


def _dry_run_faults(values: tuple[str, ...]) -> Iterator[Cause]:
    if values and any(value != "All" for value in values):
        yield not_supported("dryRun", list(values), ("All",))


def _options_fault(kind: str, faults: list[Cause]) -> ApiError:
    return invalid("meta.k8s.io", kind, "", faults)


def delete_options(route: Route, body: bytes, content_type: str) -> DeleteOptions:
    """Return delete parameters, from body or query. Raises ApiError 400, 415, 422."""
    wire: Json = {}
    if body:
        resource = Resource("", "v1", "deleteoptions", "DeleteOptions")
        wire, _ = decode_object(body, content_type, resource)
    else:
        for name in ("propagationPolicy", "orphanDependents", "gracePeriodSeconds"):
            if name in route.query:
                wire[name] = _parameter(name, route.parameter(name))
        if "dryRun" in route.query:
            wire["dryRun"] = list(route.query["dryRun"])
    return read_delete_options(wire)


def read_delete_options(sent: Json) -> DeleteOptions:
    """Return delete parameters from their wire form. Raises ApiError 400, 422."""
    wire = {name: part for name, part in sent.items() if name not in ("kind", "apiVersion")}
    if not isinstance(wire.get("gracePeriodSeconds"), int | None):
        raise bad_request("DeleteOptions.gracePeriodSeconds is to be a number of seconds")
    faults = [*_dry_run_faults(tuple(wire.get("dryRun") or ()))]
    if wire.get("propagationPolicy") is not None and wire.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        faults.append(invalid_value("propagationPolicy", wire["propagationPolicy"], text))
    if faults:
        raise _options_fault("DeleteOptions", faults)
    preconditions = wire.get("preconditions") or {}
    policy = wire.get("propagationPolicy") or ""
    if not policy and wire.get("orphanDependents") is not None:
        policy = "Orphan" if wire["orphanDependents"] else "Background"
    return DeleteOptions(
        dry_run=bool(wire.get("dryRun")),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        propagation_policy=policy,
        grace_period_seconds=wire.get("gracePeriodSeconds"),
        wire=wire,
    )


def _parameter(name: str, value: str) -> Any:
    if name == "gracePeriodSeconds":
        return _integer(value)
    return value.lower() in ("true", "1") if name == "orphanDependents" else value


def _integer(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None


def list_options(route: Route) -> ListOptions:
    """Return list and watch parameters. Raises ApiError 400."""
    timeout = route.parameter("timeoutSeconds")
    limit = route.parameter("limit")
    selectors = [route.parameter("fieldSelector")]
    if route.name and route.verb == "watch":  # the path names the object, as it did in old times
        selectors.append(f"metadata.name={route.name}")
    return ListOptions(
        label_selector=route.parameter("labelSelector"),
        field_selector=",".join(filter(None, selectors)),
        limit=_integer(limit) if limit else 0,
        continue_token=route.parameter("continue"),
        resource_version=route.parameter("resourceVersion"),
        resource_version_match=route.parameter("resourceVersionMatch"),
        timeout_seconds=float(_integer(timeout)) if timeout and _integer(timeout) > 0 else None,
        allow_watch_bookmarks=bool(route.flag("allowWatchBookmarks")),
        send_initial_events=route.flag("sendInitialEvents"),
    )
