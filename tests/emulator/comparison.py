"""Compares what was recorded with what came, modulo what no two servers share.

Recorded uids, versions and times are placeholders or numbers of another server. The first time one
is met it is bound to ours; from then on the binding has to hold, in both directions. So a write
that should keep its version, or an object that should keep its uid, is still checked.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

_UID = re.compile(r"<uid-\d+>")
_GENERATED = re.compile(r"^(gen-|kube-api-access-)([a-z0-9]{5})$")
_AGE = re.compile(r"^\d+[smhdy](\d+[smh])?$")
_ADDRESS = re.compile(r"^\d+\.\d+\.\d+\.\d+$")
_SHAPES = {
    "<timestamp>": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "<timestamp-micro>": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"),
    "<pem>": re.compile(r"-----BEGIN [A-Z ]+-----"),
}
_ANY_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBERS = re.compile(
    r"(current: |record \(|resource version: \d+ \()\d+"  # versions that sentences mention
)
_MIXED = re.compile(r"\[(.*)\]$", re.DOTALL)


class Bindings:
    """What stands for what: recorded uids and versions, and ours."""

    def __init__(self, now: float) -> None:
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        moment = datetime.fromtimestamp(now, UTC)
        self._times = {
            "<timestamp>": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "<timestamp-micro>": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }

    # what is sent

    def sent(self, value: Any, key: str = "") -> Any:
        """Return recorded request data with our uids, versions and times in it."""
        if isinstance(value, dict):
            return {name: self.sent(held, name) for name, held in value.items()}
        if isinstance(value, list):
            return [self.sent(held) for held in value]
        if key == "resourceVersion" and isinstance(value, str):
            return self._versions.get(value, value)
        return self.sent_text(value) if isinstance(value, str) else value

    def sent_text(self, text: str) -> str:
        """Return recorded request text with our uids and times in it."""
        for placeholder, moment in self._times.items():
            text = text.replace(placeholder, moment)
        return _UID.sub(lambda found: self._uids.setdefault(found[0], str(uuid.uuid4())), text)

    def parameter(self, name: str, value: str) -> str:
        """Return a query parameter with our versions in it."""
        if name == "resourceVersion":
            return self._versions.get(value, value)
        if name == "continue" and (token := read_token(value)) is not None:
            token["rv"] = int(self._versions.get(str(token["rv"]), token["rv"]))
            raw = json.dumps(token, separators=(",", ":")).encode()
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")
        return value

    # what is compared

    def uid(self, recorded: str, ours: str) -> bool:
        """Bind a recorded uid to ours, or say whether it is bound to it."""
        return _ANY_UID.fullmatch(ours) is not None and self._bound(self._uids, recorded, ours)

    def version(self, recorded: str, ours: str) -> bool:
        """Bind a recorded version to ours, or say whether it is bound to it."""
        if recorded in ("", "0"):
            return recorded == ours
        return self._bound(self._versions, recorded, ours)

    def _bound(self, table: dict[str, str], recorded: str, ours: str) -> bool:
        if recorded in table:
            return table[recorded] == ours
        if ours in table.values():
            return False
        table[recorded] = ours
        return True

    def same(self, recorded: str, ours: str, key: str) -> bool:
        """Say whether two texts are the same, but for uids, versions, times and addresses."""
        if key == "resourceVersion":
            return self.version(recorded, ours)
        if _UID.fullmatch(recorded):
            return self.uid(recorded, ours)
        if recorded in _SHAPES:
            return _SHAPES[recorded].match(ours) is not None
        if recorded.endswith("m...") and ours.startswith(recorded.removesuffix("...")):
            return True  # the recording shortened it
        return bool(self.plain(recorded) == self.plain(ours))

    def unbound(self, text: str) -> str:
        """Return a text of ours with recorded placeholders for our uids."""
        for placeholder, ours in self._uids.items():
            text = text.replace(ours, placeholder)
        return text

    def plain(self, text: str) -> Any:
        """Return what is left of a text without what differs between servers."""
        text = _GENERATED.sub(r"\1xxxxx", self.unbound(text))
        text = _NUMBERS.sub(r"\1N", text)
        for placeholder, pattern in _SHAPES.items():
            text = pattern.sub(placeholder, text)
        text = _ADDRESS.sub("<address>", _AGE.sub("<age>", text))
        found = _MIXED.search(text)
        # Several faults come in the order of a Go map, which is none.
        return (text[: found.start()], sorted(found[1].split(", "))) if found else text


def read_token(token: str) -> dict[str, Any] | None:
    """Return what a continue token holds, None when it is none."""
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def differences(recorded: Any, ours: Any, bindings: Bindings) -> list[str]:
    """Return one line for each place where two answers differ."""
    return list(_Comparison(bindings).lines(recorded, ours, ""))


class _Comparison:
    """Walks two values together."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings

    def lines(self, recorded: Any, ours: Any, path: str) -> Iterator[str]:
        """Yield a line for each difference at or below a path."""
        if isinstance(recorded, dict) and isinstance(ours, dict):
            yield from self._objects(recorded, ours, path)
        elif isinstance(recorded, list) and isinstance(ours, list):
            yield from self._lists(recorded, ours, path)
        elif not self._same(recorded, ours, path.rpartition(".")[2]):
            yield f"{path}: recorded {_short(recorded)}, got {_short(ours)}"

    def _lists(self, recorded: list[Any], ours: list[Any], path: str) -> Iterator[str]:
        if path.rpartition(".")[2] in ("causes", "managedFields"):
            # These come in the order of a Go map, which is none.
            recorded, ours = sorted(recorded, key=self._order), sorted(ours, key=self._order)
        if len(recorded) != len(ours):
            counts = f"recorded {len(recorded)}, got {len(ours)}"
            yield f"{path}: {counts}: {_short(recorded)} and {_short(ours)}"
        for index, (left, right) in enumerate(zip(recorded, ours, strict=False)):
            yield from self.lines(left, right, f"{path}[{index}]")

    def _order(self, value: Any) -> str:
        return str(self._bindings.plain(json.dumps(value, sort_keys=True)))

    def _objects(self, recorded: Any, ours: Any, path: str) -> Iterator[str]:
        ours = {self._bindings.unbound(name): held for name, held in ours.items()}
        for name in sorted({*recorded, *ours}):
            where = f"{path}.{name}"
            if name not in ours:
                yield f"{where}: recorded {_short(recorded[name])}, got nothing"
            elif name not in recorded:
                yield f"{where}: recorded nothing, got {_short(ours[name])}"
            else:
                yield from self.lines(recorded[name], ours[name], where)

    def _same(self, recorded: Any, ours: Any, key: str) -> bool:
        if isinstance(recorded, float) and isinstance(ours, float):
            return ours <= recorded  # how long something took
        if not isinstance(recorded, str):
            return type(recorded) is type(ours) and bool(recorded == ours)
        if not isinstance(ours, str):
            return False
        if key == "continue":
            return self._same_token(recorded, ours)
        return self._bindings.same(recorded, ours, key)

    def _same_token(self, recorded: str, ours: str) -> bool:
        left, right = read_token(recorded), read_token(ours)
        if left is None or right is None:
            return recorded == ours
        versions = (str(left.pop("rv")), str(right.pop("rv")))
        if versions[0] == "-1":
            return versions[1] == "-1" and left == right
        return self._bindings.version(*versions) and left == right


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 400 else f"{text[:400]}..."
