"""How values merge: as one leaf, member by member, or item by item.

`Shape` is asked about one value; `root_shape` gives the shape of a whole object, from the schema of
a custom resource or, for a built-in kind, from the table of its fields and the names in `builtin`.
"""

from __future__ import annotations

from typing import Any, Protocol

from emulator.contracts import Json
from emulator.kinds import typed
from emulator.patches import builtin

LEAF, MAP, KEYED, SET = "leaf", "map", "keyed", "set"


class Shape(Protocol):
    """What is known about the values that stand at one place."""

    def form(self, value: Any) -> str:
        """Return LEAF, MAP, KEYED or SET for a value found here."""

    def member(self, name: str) -> Shape | None:
        """Return the shape of a map's member; None when the schema has no such member."""

    def declares(self, name: str) -> bool:
        """Return whether a member is a declared field, rather than a key that the writer chose."""

    def element(self) -> Shape:
        """Return the shape of a list's items."""

    def keys(self) -> tuple[str, ...]:
        """Return the keys of a KEYED list."""

    def key_default(self, name: str) -> Any:
        """Return what a key is when an item leaves it out."""

    def complaint(self, value: Any) -> str:
        """Return why a value cannot stand here, or ""."""


class Named:
    """A place in a built-in kind, or in any object's metadata.

    Its members and types come from the table of built-in kinds, how its lists merge from its name
    and its parent's. `kind` is the place's type as the table writes it, "" where it is not known.
    """

    __slots__ = ("_kind", "_name", "_parent")

    def __init__(self, name: str = "", parent: str = "", kind: str = "") -> None:
        self._name, self._parent, self._kind = name, parent, kind

    def form(self, value: Any) -> str:
        """See `Shape`."""
        if isinstance(value, dict):
            return LEAF if self._name in builtin.LEAVES else MAP
        if isinstance(value, list):
            if self.keys() and all(isinstance(item, dict) for item in value):
                return KEYED
            return SET if self._name in builtin.SET_LISTS else LEAF
        return LEAF

    def member(self, name: str) -> Shape | None:
        """See `Shape`."""
        if self._kind.startswith("map:"):
            return Named(name, self._name, self._kind.removeprefix("map:"))
        if not self._is_class():
            return Named(name, self._name)
        kind = typed.fields(self._kind).get(name)
        return None if kind is None else Named(name, self._name, kind)

    def declares(self, name: str) -> bool:
        """See `Shape`."""
        return not self._kind.startswith("map:")

    def element(self) -> Shape:
        """See `Shape`."""
        return Named(self._name, self._parent, self._kind.removeprefix("list:"))

    def keys(self) -> tuple[str, ...]:
        """See `Shape`."""
        return builtin.list_keys(self._name, self._parent)

    def key_default(self, name: str) -> Any:
        """See `Shape`."""
        return builtin.KEY_DEFAULTS.get(name)

    def complaint(self, value: Any) -> str:
        """See `Shape`."""
        form = self._kind.partition(":")[0]
        fallback = "object" if self._is_class() else ""
        return _mismatch(_JSON_TYPES.get(form, fallback), value)

    def _is_class(self) -> bool:
        return self._kind[:1].isupper()


class Deduced(Named):
    """A place that a schema leaves open: maps merge by member, everything else is one leaf."""

    __slots__ = ()

    def form(self, value: Any) -> str:
        """See `Shape`."""
        return MAP if isinstance(value, dict) else LEAF

    def member(self, name: str) -> Shape | None:
        """See `Shape`."""
        return self

    def declares(self, name: str) -> bool:
        """See `Shape`."""
        return False

    def element(self) -> Shape:
        """See `Shape`."""
        return self


_DEDUCED = Deduced()
_METADATA = Named("metadata", "", "V1ObjectMeta")
_JSON_TYPES = {
    "bool": "boolean",
    "float": "number",
    "int": "integer",
    "list": "array",
    "map": "object",
    "str": "string",
}
_SCALAR_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}
_GO_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}


class Declared:
    """A place that a structural schema describes."""

    __slots__ = ("_members", "_object", "_schema")

    def __init__(self, schema: Json, *, is_object: bool = False) -> None:
        """`is_object` marks a whole Kubernetes object, whose metadata no schema describes."""
        self._schema = schema
        self._object = is_object or bool(schema.get("x-kubernetes-embedded-resource"))
        self._members: dict[str, Shape | None] = {}

    def form(self, value: Any) -> str:
        """See `Shape`."""
        schema = self._schema
        if isinstance(value, dict):
            return LEAF if schema.get("x-kubernetes-map-type") == "atomic" else MAP
        if isinstance(value, list):
            return {"map": KEYED, "set": SET}.get(schema.get("x-kubernetes-list-type", ""), LEAF)
        return LEAF

    def member(self, name: str) -> Shape | None:
        """See `Shape`."""
        if name not in self._members:
            self._members[name] = self._member(name)
        return self._members[name]

    def _member(self, name: str) -> Shape | None:
        if self._object and name in {"apiVersion", "kind", "metadata"}:
            return _METADATA if name == "metadata" else _DEDUCED
        properties = self._schema.get("properties") or {}
        if name in properties:
            return Declared(properties[name])
        additional = self._schema.get("additionalProperties")
        if isinstance(additional, dict):
            return Declared(additional)
        if additional or self._schema.get("x-kubernetes-preserve-unknown-fields"):
            return _DEDUCED
        return None

    def declares(self, name: str) -> bool:
        """See `Shape`."""
        return self._object or name in (self._schema.get("properties") or {})

    def element(self) -> Shape:
        """See `Shape`."""
        return Declared(self._schema.get("items") or {"x-kubernetes-preserve-unknown-fields": True})

    def keys(self) -> tuple[str, ...]:
        """See `Shape`."""
        return tuple(self._schema.get("x-kubernetes-list-map-keys") or ())

    def key_default(self, name: str) -> Any:
        """See `Shape`."""
        item = self._schema.get("items") or {}
        return ((item.get("properties") or {}).get(name) or {}).get("default")

    def complaint(self, value: Any) -> str:
        """See `Shape`."""
        if self._schema.get("x-kubernetes-int-or-string"):
            return ""
        return _mismatch(self._schema.get("type") or "", value)


def _mismatch(kind: str, value: Any) -> str:
    """Return why a value is not of a JSON schema type, or "" when it is, or the type is open."""
    if value is None or not kind:
        return ""
    if kind in {"object", "array"}:
        noun = "map" if kind == "object" else "list"
        fits = isinstance(value, dict if kind == "object" else list)
        return "" if fits else f"expected {noun}, got &{{{value}}}"
    if isinstance(value, _SCALAR_TYPES[kind]) and (kind == "boolean") == isinstance(value, bool):
        return ""
    if kind == "string":
        return f"expected string, got &value.valueUnstructured{{Value:{value}}}"
    if kind == "boolean":
        return f"expected boolean, got &{{{value}}}"
    return f"expected numeric (int or float), got {_GO_TYPES[type(value)]}"


def root_shape(schema: Json | None, api_version: str, kind: str) -> Shape:
    """Return the shape of a whole object: from its schema, or from the table of built-in kinds."""
    if schema is not None:
        return Declared(schema, is_object=True)
    return Named(kind=typed.class_of(api_version, kind) or "")
