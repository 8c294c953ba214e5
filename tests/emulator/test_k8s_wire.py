"""Kubernetes protobuf: bodies as kubectl and Go clients send them."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.contracts import Json
from emulator.errors import ApiError
from emulator.k8s_wire import decode, kubernetes_pb2

# As kubectl 1.32 sent them: Go writes empty members that JSON leaves out.
CONFIG_MAP = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1b\n\x11\n\x01a\x12\x00\x1a\x00"\x00*\x002\x008\x00'
    b'B\x00\x12\x06\n\x01a\x12\x01b\x1a\x00"\x00'
)
TOKEN_REQUEST = (
    b"k8s\x00\n(\n\x18authentication.k8s.io/v1\x12\x0cTokenRequest\x12\x1a\n\x10\n\x00\x12\x00\x1a"
    b'\x00"\x00*\x002\x008\x00B\x00\x12\x00\x1a\x04\n\x00\x12\x00\x1a\x00"\x00'
)


def wrapped(api_version: str, kind: str, message: Any) -> bytes:
    """Return a message as a body."""
    unknown = kubernetes_pb2.Unknown(raw=message.SerializeToString())
    unknown.typeMeta.apiVersion, unknown.typeMeta.kind = api_version, kind
    encoded: bytes = unknown.SerializeToString()
    return b"k8s\x00" + encoded


WHO_AM_I = wrapped(
    "authentication.k8s.io/v1", "SelfSubjectReview", kubernetes_pb2.SelfSubjectReview()
)


def can_i(verb: str, resource: str, subresource: str = "") -> bytes:
    """Return the review that `kubectl auth can-i` asks for."""
    review = kubernetes_pb2.SelfSubjectAccessReview()
    asked = review.spec.resourceAttributes
    asked.namespace, asked.verb, asked.group = "t1", verb, "rig.example.io"
    asked.resource, asked.subresource = resource, subresource
    return wrapped("authorization.k8s.io/v1", "SelfSubjectAccessReview", review)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            CONFIG_MAP,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "a"},
                "data": {"a": "b"},
            },
        ),
        (TOKEN_REQUEST, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}),
    ],
)
def test_bodies_of_kubectl(body: bytes, expected: Json) -> None:
    """A body reads as the JSON object it stands for, without what Go writes for nothing."""
    assert decode(body) == expected


def test_times_bytes_numbers_and_references() -> None:
    """Times, binary data, zeros that mean something, maps and lists keep their meaning."""
    secret = kubernetes_pb2.Secret()
    secret.metadata.name = "s"
    secret.metadata.labels["a"] = "b"
    secret.metadata.creationTimestamp.seconds = 1_767_225_600
    secret.metadata.ownerReferences.add(kind="Pod", name="p", uid="u", controller=False)
    secret.metadata.managedFields.add(manager="m").fieldsV1.Raw = b'{"f:data":{}}'
    secret.data["k"] = b"\x00\x01"
    read = decode(wrapped("v1", "Secret", secret))
    assert read["data"] == {"k": "AAE="}
    assert read["metadata"] == {
        "name": "s",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "controller": False}],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}],
    }
    lease = kubernetes_pb2.Lease()
    lease.spec.leaseTransitions = 0
    lease.spec.renewTime.seconds, lease.spec.renewTime.nanos = 1_767_225_600, 5_000
    assert decode(wrapped("coordination.k8s.io/v1", "Lease", lease))["spec"] == {
        "leaseTransitions": 0,
        "renewTime": "2026-01-01T00:00:00.000005Z",
    }
    options = kubernetes_pb2.DeleteOptions(gracePeriodSeconds=0)
    assert decode(wrapped("v1", "DeleteOptions", options))["gracePeriodSeconds"] == 0


def test_extra_values_are_lists() -> None:
    """The extra of an access review is a map of lists."""
    review = kubernetes_pb2.SubjectAccessReview()
    review.spec.extra["scopes"].items.append("a")
    read = decode(wrapped("authorization.k8s.io/v1", "SubjectAccessReview", review))
    assert read["spec"]["extra"] == {"scopes": ["a"]}


def test_a_field_that_is_not_known_is_refused() -> None:
    """A body with an undeclared field is 415: it would lose what it says."""
    attributes = kubernetes_pb2.ResourceAttributes(verb="get")
    spec = b"\x0a" + bytes([len(attributes.SerializeToString()) + 2])
    spec += attributes.SerializeToString() + b"\x42\x00"  # field 8: a field selector
    review = kubernetes_pb2.SelfSubjectAccessReview()
    review.spec.ParseFromString(spec)
    with pytest.raises(ApiError, match="field 8 of ResourceAttributes") as caught:
        decode(wrapped("authorization.k8s.io/v1", "SelfSubjectAccessReview", review))
    assert caught.value.code == 415


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{}", 400),
        (b"k8s\x00\xff\xff\xff", 400),
        (wrapped("apps/v1", "ReplicaSet", kubernetes_pb2.Namespace()), 415),
        (wrapped("v2", "ConfigMap", kubernetes_pb2.ConfigMap()), 415),
    ],
)
def test_bodies_that_are_refused(body: bytes, code: int) -> None:
    """What is no Kubernetes protobuf is 400, a kind that is not known 415."""
    with pytest.raises(ApiError) as caught:
        decode(body)
    assert caught.value.code == code
