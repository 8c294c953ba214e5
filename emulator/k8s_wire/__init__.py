"""Kubernetes protobuf: reading the bodies that clients send in it.

kubectl and Go clients send built-in kinds as protobuf without asking first, and do not fall back.
The emulator reads the kinds of `kubernetes.proto` and `workloads.proto` and answers in JSON, which
every such client accepts; other kinds get an honest 415.
"""

from emulator.k8s_wire.reading import MEDIA_TYPE, decode, openapi_v2_document

__all__ = ["MEDIA_TYPE", "decode", "openapi_v2_document"]
