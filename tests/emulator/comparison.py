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
_TIMES = {
    "<timestamp>": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "<timestamp-micro>": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"),
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

    def uid(self, recorded: str, ours: Any) -> bool:
        """Bind a recorded uid to ours, or say whether it is bound to it."""
        if not isinstance(ours, str) or not _ANY_UID.fullmatch(ours):
            return False
        return self._bound(self._uids, recorded, ours)

    def version(self, recorded: str, ours: Any) -> bool:
        """Bind a recorded version to ours, or say whether it is bound to it."""
        if recorded in ("", "0") or not isinstance(ours, str):
            return recorded == ours
        return self._bound(self._versions, recorded, ours)

    def _bound(self, table: dict[str, str], recorded: str, ours: str) -> bool:
        if recorded in table:
            return table[recorded] == ours
        if ours in table.values():
            return False
        table[recorded] = ours
        return True

    def text(self, recorded: str, ours: str) -> bool:
        """Say whether two sentences or names are the same, but for uids, versions and times."""
        if recorded.endswith("m...") and ours.startswith(recorded.removesuffix("...")):
            return True  # the recording shortened it
        return self._plain(recorded) == self._plain(ours)

    def _plain(self, text: str) -> Any:
        for placeholder, ours in self._uids.items():
            text = text.replace(ours, placeholder)
        text = _GENERATED.sub(r"\1xxxxx", text)
        text = _NUMBERS.sub(r"\1N", text)
        for placeholder, pattern in _TIMES.items():
            text = pattern.sub(placeholder, text)
        text = _ADDRESS.sub("<address>", _AGE.sub("<age>", text))
        found = _MIXED.search(text)
        # Several faults come in the order of a Go map: none.
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
    return list(_differences(recorded, ours, "", bindings))


def _differences(recorded: Any, ours: Any, path: str, bindings: Bindings) -> Iterator[str]:
    key = path.rpartition(".")[2]
    if isinstance(recorded, dict) and isinstance(ours, dict):
        yield from _compared(recorded, ours, path, bindings)
    elif isinstance(recorded, list) and isinstance(ours, list):
        if key in ("causes", "managedFields"):
            recorded, ours = (
                sorted(one, key=lambda held: _order(held, bindings)) for one in (recorded, ours)
            )
        if len(recorded) != len(ours):
            yield f"{path}: recorded {len(recorded)} of {_short(recorded)}, got {len(ours)}: {_short(ours)}"
        for index, (left, right) in enumerate(zip(recorded, ours, strict=False)):
            yield from _differences(left, right, f"{path}[{index}]", bindings)
    elif not _same(recorded, ours, key, bindings):
        yield f"{path}: recorded {_short(recorded)}, got {_short(ours)}"


def _order(value: Any, bindings: Bindings) -> str:
    text = json.dumps(value, sort_keys=True)
    return str(bindings._plain(text))


def _compared(recorded: Any, ours: Any, path: str, bindings: Bindings) -> Iterator[str]:
    ours = {_keyed(name, bindings): held for name, held in ours.items()}
    for name in sorted({*recorded, *ours}):
        where = f"{path}.{name}"
        if name not in ours:
            yield f"{where}: recorded {_short(recorded[name])}, got nothing"
        elif name not in recorded:
            yield f"{where}: recorded nothing, got {_short(ours[name])}"
        else:
            yield from _differences(recorded[name], ours[name], where, bindings)


def _keyed(name: str, bindings: Bindings) -> str:
    for placeholder, ours in bindings._uids.items():
        name = name.replace(ours, placeholder)
    return name


def _same(recorded: Any, ours: Any, key: str, bindings: Bindings) -> bool:
    if isinstance(recorded, float) and isinstance(ours, float):
        return ours <= recorded  # how long something took
    if recorded == "<pem>":
        return str(ours).startswith("-----BEGIN ")
    if not isinstance(recorded, str):
        return bool(recorded == ours) and isinstance(recorded, bool) == isinstance(ours, bool)
    if key == "resourceVersion":
        return bindings.version(recorded, ours)
    if _UID.fullmatch(recorded):
        return bindings.uid(recorded, ours)
    if not isinstance(ours, str):
        return False
    if recorded in _TIMES:
        return bool(_TIMES[recorded].fullmatch(ours))
    if key == "continue":
        return _same_token(recorded, ours, bindings)
    return bindings.text(recorded, ours)


def _same_token(recorded: str, ours: str, bindings: Bindings) -> bool:
    left, right = read_token(recorded), read_token(ours)
    if left is None or right is None:
        return recorded == ours
    versions = (str(left.pop("rv")), str(right.pop("rv")))
    same = versions[0] == versions[1] if versions[0] == "-1" else bindings.version(*versions)
    return same and left == right


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 400 else f"{text[:400]}..."
