"""The Settings as objects over the one Secret that holds them.

A Setting always exists: `spec.value` is what somebody stored, absent while nobody has, and
`status.value` is what it comes to with its seed and default. Its version is the Secret's, so two
edits from the same reading conflict, whichever Setting they are of.

Rule: OP-SET-01.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpustack_delivery.decisions.settings import (
    NODE_DELIVERY,
    check,
    edit_fault,
    edited,
    effective,
)
from gpustack_delivery.errors import AlreadyExists, Conflict, NotFound
from gpustack_delivery.ports import Kube, Selection
from gpustack_delivery.vocabulary.resources import CSI_DRIVERS, DRIVER_NAME, SECRETS, Json
from gpustack_delivery.vocabulary.settings import DELIVERY_MODE, SECRET_NAME, SETTINGS, read_secret
from gpustack_delivery.vocabulary.wire import present
from gpustack_delivery.worker.public_api import targets
from gpustack_delivery.worker.public_api.statuses import Refused, not_found

_RESOURCE: Final = targets.SETTINGS
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Held:
    """The Secret as it was read; `secret_version` is empty while there is none.

    `version` is what a watch begins after.
    """

    stored: Mapping[str, str]
    version: str
    secret_version: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of a Setting: the value wanted, and the version it was made from if any.

    A value of None gives the Setting its seed or default back.
    """

    name: str
    value: str | None
    version: str = ""
    dry: bool = False


class SettingsStore:
    """Reads and edits the Settings of one worker; safe on any number of threads."""

    def __init__(self, kube: Kube, namespace: str, environment: Mapping[str, str]) -> None:
        self.namespace = namespace
        self.selection = Selection(
            SECRETS, namespace, field_selector=f"metadata.name={SECRET_NAME}"
        )
        self._kube = kube
        self._environment = environment

    def read(self) -> Held:
        """Read the Secret.

        Raises:
            ApiFault: the API server does not give it.
        """
        page = self._kube.list_page(self.selection)
        secret = next(iter(page.items), None)
        if secret is None:
            return Held({}, page.resource_version)
        version = secret["metadata"]["resourceVersion"]
        return Held(read_secret(secret), page.resource_version, version)

    def objects(self, held: Held) -> dict[str, Json]:
        """Return every Setting as an object, by name."""
        values = effective(held.stored, self._environment)
        faults = check(values)
        return {
            setting.name: {
                "apiVersion": _RESOURCE.api_version,
                "kind": _RESOURCE.kind,
                "metadata": {"name": setting.name, "namespace": self.namespace}
                | present({"resourceVersion": held.secret_version}),
                "spec": {"value": held.stored[setting.name]} if setting.name in held.stored else {},
                "status": {"value": values[setting.name], "description": setting.description}
                | _message(faults.get(setting.name, "")),
            }
            for setting in SETTINGS
        }

    def edit(self, edit: Edit) -> Json:
        """Judge an edit, store it unless it is a dry run, and return the Setting as it is then.

        Raises:
            Refused: there is no such Setting, the value is bad, or it was made from an old reading.
            ApiFault: the API server does not store it.
        """
        for _ in range(_ATTEMPTS):
            held = self.read()
            self._judge(edit, held)
            after = edited(held.stored, edit.name, edit.value)
            if edit.dry:
                return self.objects(Held(after, held.version, held.secret_version))[edit.name]
            try:
                secret = self._write(edit.name, after.get(edit.name), held)
            except (Conflict, AlreadyExists, NotFound):
                continue  # somebody else wrote meanwhile: judge again what is there now
            version = secret["metadata"]["resourceVersion"]
            return self.objects(Held(read_secret(secret), version, version))[edit.name]
        raise _conflict(edit.name)

    def _judge(self, edit: Edit, held: Held) -> None:
        if edit.name not in {setting.name for setting in SETTINGS}:
            raise not_found(_RESOURCE.group, _RESOURCE.plural, edit.name)
        if edit.version and edit.version != held.secret_version:
            raise _conflict(edit.name)
        fault = edit_fault(held.stored, self._environment, edit.name, edit.value)
        if not fault and edit.name == DELIVERY_MODE.name and self._lacks_driver(edit, held):
            fault = (
                f"{edit.name} can be {NODE_DELIVERY} only where the CSIDriver {DRIVER_NAME} is "
                "installed"
            )
        if fault:
            raise _invalid(edit, fault)

    def _lacks_driver(self, edit: Edit, held: Held) -> bool:
        after = effective(edited(held.stored, edit.name, edit.value), self._environment)
        if after[edit.name] != NODE_DELIVERY:
            return False
        try:
            self._kube.get(CSI_DRIVERS, DRIVER_NAME)
        except NotFound:
            return True
        return False

    def _write(self, name: str, value: str | None, held: Held) -> Json:
        encoded = None if value is None else base64.b64encode(value.encode()).decode()
        if held.secret_version:
            metadata = {"resourceVersion": held.secret_version}
            patch = {"metadata": metadata, "data": {name: encoded}}
            return self._kube.merge_patch(SECRETS, SECRET_NAME, patch, self.namespace)
        secret = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": SECRET_NAME, "namespace": self.namespace},
            "data": {} if encoded is None else {name: encoded},
        }
        return self._kube.create(SECRETS, secret, self.namespace)


def _message(fault: str) -> Json:
    return {"message": f"{fault}; the last valid value stays in force"} if fault else {}


def _invalid(edit: Edit, fault: str) -> Refused:
    cause = {"reason": "FieldValueInvalid", "message": fault, "field": "spec.value"}
    details = {
        "name": edit.name,
        "group": _RESOURCE.group,
        "kind": _RESOURCE.kind,
        "causes": [cause],
    }
    message = f'{_RESOURCE.kind}.{_RESOURCE.group} "{edit.name}" is invalid: spec.value: {fault}'
    return Refused(422, "Invalid", message, details=details)


def _conflict(name: str) -> Refused:
    message = (
        f'Operation cannot be fulfilled on {_RESOURCE.plural}.{_RESOURCE.group} "{name}": the '
        "Settings have been modified; please apply your changes to the latest version and try again"
    )
    details = {"name": name, "group": _RESOURCE.group, "kind": _RESOURCE.plural}
    return Refused(409, "Conflict", message, details=details)
