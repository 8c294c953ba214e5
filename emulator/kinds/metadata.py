"""Names, labels, annotations, finalizers and owner references: what every object's metadata must
satisfy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from emulator.contracts import Json
from emulator.errors import Cause, invalid_value, refused_field, required

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_QUALIFIED})?"

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation "
    f"is '{_LABEL}')"
)
DNS1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is "
    f"'{_VALUE}')"
)
_ANNOTATION_BYTES = 256 * 1024


def subdomain_faults(name: str) -> list[str]:
    """Return what is wrong with a DNS subdomain."""
    faults = ["must be no more than 253 characters"] if len(name) > 253 else []
    return faults if re.fullmatch(_SUBDOMAIN, name) else [*faults, SUBDOMAIN_TEXT]


def label_faults(name: str) -> list[str]:
    """Return what is wrong with a DNS label, as namespaces are named."""
    faults = ["must be no more than 63 characters"] if len(name) > 63 else []
    return faults if re.fullmatch(_LABEL, name) else [*faults, LABEL_TEXT]


def dns1035_faults(name: str) -> list[str]:
    """Return what is wrong with a Service's name."""
    faults = ["must be no more than 63 characters"] if len(name) > 63 else []
    return faults if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) else [*faults, DNS1035_TEXT]


def path_segment_faults(name: str) -> list[str]:
    """Return what is wrong with a name that has to fit into a URL path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{piece}'" for piece in ("/", "%") if piece in name]


def qualified_faults(name: str) -> list[str]:
    """Return what is wrong with a qualified name: a label key, a finalizer."""
    prefix, slash, local = name.rpartition("/")
    faults = []
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        elif not re.fullmatch(_SUBDOMAIN, prefix):
            faults.append(f"prefix part {SUBDOMAIN_TEXT}")
    if not local:
        faults.append("name part must be non-empty")
    elif len(local) > 63:
        faults.append("name part must be no more than 63 characters")
    return faults if re.fullmatch(_QUALIFIED, local) else [*faults, _QUALIFIED_TEXT]


def label_value_faults(value: str) -> list[str]:
    """Return what is wrong with a label's value."""
    faults = ["must be no more than 63 characters"] if len(value) > 63 else []
    return faults if re.fullmatch(_VALUE, value) else [*faults, _VALUE_TEXT]


def labels(found: Json, field: str) -> Iterator[Cause]:
    """Yield what is wrong with a map of labels."""
    for key, value in found.items():
        for fault in qualified_faults(key):
            yield invalid_value(field, key, fault)
        for fault in label_value_faults(value):
            yield invalid_value(field, value, fault)


def general(metadata: Json) -> Iterator[Cause]:
    """Yield what is wrong with metadata, its name and namespace apart."""
    yield from labels(metadata.get("labels", {}), "metadata.labels")
    annotations = metadata.get("annotations", {})
    for key in annotations:
        for fault in qualified_faults(key.lower()):
            yield invalid_value("metadata.annotations", key, fault)
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        text = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        yield Cause("metadata.annotations", "FieldValueTooLong", text)
    for finalizer in metadata.get("finalizers", []):
        for fault in qualified_faults(finalizer):
            yield invalid_value("metadata.finalizers", finalizer, fault)
    yield from _owners(metadata.get("ownerReferences", []))


def _owners(references: list[Json]) -> Iterator[Cause]:
    field = "metadata.ownerReferences"
    for reference in references:
        for part in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(part):
                text = "version must not be empty" if part == "apiVersion" else "must not be empty"
                yield invalid_value(f"{field}.{part}", "", text)
    controllers = [one for one in references if one.get("controller")]
    if len(controllers) > 1:
        names = " and ".join(f"{one['kind']}/{one['name']}" for one in controllers[:2])
        text = (
            f'Only one reference can have Controller set to true. Found "true" in references for '
            f"{names}"
        )
        yield invalid_value(field, references, text)


def update(metadata: Json, old: Json) -> Iterator[Cause]:
    """Yield what an update changes that it may not."""
    if old.get("deletionTimestamp"):
        known = old.get("finalizers", [])
        added = [one for one in metadata.get("finalizers", []) if one not in known]
        if added:
            listed = ", ".join(f'"{one}"' for one in added)
            yield refused_field(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                "finalizers "
                f"[]string{{{listed}}}",
            )
    for part in ("name", "namespace", "uid", "creationTimestamp"):
        if metadata.get(part) != old.get(part):
            yield invalid_value(f"metadata.{part}", metadata.get(part, ""), "field is immutable")


def named(metadata: Json) -> Iterator[Cause]:
    """Yield the missing name of an object that has none; generated names are resolved by now."""
    if not metadata.get("name"):
        yield required("metadata.name", "name or generateName is required")
