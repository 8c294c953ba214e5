"""From a protobuf body to the JSON object it stands for.

Go writes empty strings and empty messages where JSON leaves members out, so they are left out here
as well; numbers and booleans that were sent stay, because zero and false can mean something.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from emulator.contracts import Json
from emulator.errors import bad_request, failure
from emulator.k8s_wire import kubernetes_pb2, workloads_pb2

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
# Members that Go always writes, and that JSON leaves out when they are zero or false.
_ZERO_IS_ABSENT = frozenset(
    {
        "count",
        "generation",
        "globalDefault",
        "healthCheckNodePort",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPort",
        "minReadySeconds",
        "nodePort",
        "paused",
        "publishNotReadyAddresses",
        "stdin",
        "stdinOnce",
        "tty",
    }
)
_VERSIONS: dict[str, tuple[str, ...]] = {
    "v1": (
        "Binding",
        "ConfigMap",
        "DeleteOptions",
        "Event",
        "Namespace",
        "Secret",
        "Service",
        "ServiceAccount",
    ),
    "apps/v1": ("Deployment",),
    "authentication.k8s.io/v1": ("SelfSubjectReview", "TokenRequest", "TokenReview"),
    "authorization.k8s.io/v1": (
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    ),
    "batch/v1": ("CronJob", "Job"),
    "coordination.k8s.io/v1": ("Lease",),
    "meta.k8s.io/v1": ("DeleteOptions",),
    "policy/v1": ("Eviction", "PodDisruptionBudget"),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "scheduling.k8s.io/v1": ("PriorityClass",),
}


def decode(body: bytes) -> Json:
    """Return the object that a protobuf body holds, apiVersion and kind included.

    Raises:
        ApiError: 400 for a body that is not Kubernetes protobuf, 415 for a kind that is not known
            here.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not Kubernetes protobuf: it does not start with k8s\\x00")
    unknown = kubernetes_pb2.Unknown()
    try:
        unknown.ParseFromString(body[len(_MAGIC) :])
        api_version, kind = unknown.typeMeta.apiVersion, unknown.typeMeta.kind
        if kind not in _VERSIONS.get(api_version, ()):
            raise failure(
                415,
                "UnsupportedMediaType",
                f"the emulator does not read {api_version} {kind} as protobuf: send it as JSON",
            )
        declared = kubernetes_pb2 if hasattr(kubernetes_pb2, kind) else workloads_pb2
        message = getattr(declared, kind)()
        message.ParseFromString(unknown.raw)
    except DecodeError as fault:
        raise bad_request(f"the body is not Kubernetes protobuf: {fault}") from None
    strange = _undeclared(message)
    if strange:
        raise failure(
            415,
            "UnsupportedMediaType",
            f"the emulator does not read {strange} of {kind} as protobuf: send it as JSON",
        )
    return {"apiVersion": api_version, "kind": kind, **_object(message)}


def openapi_v2_document(title: str, version: str) -> bytes:
    """Return an OpenAPI v2 document without paths and definitions, as protobuf."""
    document = kubernetes_pb2.OpenApiDocument(swagger="2.0")
    document.info.title, document.info.version = title, version
    encoded: bytes = document.SerializeToString()
    return encoded


def _undeclared(message: Message) -> str:
    """Return the first field, by its message and number, that the proto file does not declare."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        return f"field {unknown[0].field_number} of {message.DESCRIPTOR.name}"
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        entry = field.message_type.GetOptions().map_entry
        parts = value.values() if entry else value if field.is_repeated else (value,)
        for part in parts:
            found = _undeclared(part) if isinstance(part, Message) else ""
            if found:
                return found
    return ""


def _object(message: Message) -> Json:
    found: Json = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            content: Any = {key: _value(item) for key, item in value.items()}
        elif field.is_repeated:
            content = [_value(item) for item in value]
        else:
            content = _value(value)
        if (
            field.name != "status"
            and content not in ("", {}, [], None)
            and (content or field.name not in _ZERO_IS_ABSENT)
        ):
            found[field.name] = content
    return found


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if not isinstance(value, Message):
        return value
    read = _SPECIAL.get(value.DESCRIPTOR.name, _object)
    return read(value)


def _time(value: Any) -> str | None:
    """Return a time as JSON writes it; the zero time, which has no fields, is none."""
    if not value.ListFields():
        return None
    return f"{datetime.fromtimestamp(value.seconds, UTC):%Y-%m-%dT%H:%M:%S}Z"


def _micro_time(value: Any) -> str | None:
    whole = _time(value)
    return f"{whole[:-1]}.{value.nanos // 1000:06}Z" if whole else None


def _fields(value: Any) -> Any:
    return json.loads(value.Raw) if value.Raw else None


def _number_or_text(value: Any) -> int | str:
    found: int | str = value.strVal if value.type else value.intVal
    return found


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "ExtraValue": lambda value: list(value.items),
    "FieldsV1": _fields,
    "IntOrString": _number_or_text,
    "MicroTime": _micro_time,
    "Quantity": lambda value: value.string,
    "Time": _time,
}
"""Messages whose JSON is no object of their members."""
