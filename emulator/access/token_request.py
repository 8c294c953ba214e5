"""serviceaccounts/token: issues a token, bound or not, as kubelet, kubectl and controllers ask for
it.
"""

from __future__ import annotations

import copy
from typing import Any

from emulator.access.accounts import Grant, Objects, Reference, ServiceAccounts
from emulator.access.answers import Stamp, cleaned, timestamp
from emulator.access.features import Features
from emulator.contracts import (
    Admission,
    Attributes,
    Caller,
    Json,
    Outcome,
    Resource,
    Target,
    WriteOptions,
)
from emulator.errors import bad_request, conflict, invalid, invalid_value, not_found

GROUP = "authentication.k8s.io"
RESOURCE = Resource(GROUP, "v1", "tokenrequests", "TokenRequest")
_SHORTEST_SECONDS = 600
_LONGEST_SECONDS = 1 << 32
_DEFAULT_SECONDS = 3600
_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_ANOTHER_UID = (
    "the UID in the bound object reference ({}) does not match the UID in record. "
    "The object might have been deleted and then recreated"
)
_BINDABLE = {
    "Pod": Resource("", "v1", "pods", "Pod"),
    "Secret": Resource("", "v1", "secrets", "Secret"),
    "Node": Resource("", "v1", "nodes", "Node", namespaced=False),
}


class TokenRequests:
    """The `contracts.Virtual` of serviceaccounts/token."""

    def __init__(
        self,
        accounts: ServiceAccounts,
        objects: Objects,
        stamp: Stamp,
        audiences: tuple[str, ...],
        features: Features,
        admission: Admission | None = None,
    ) -> None:
        """`audiences` are those of a token whose request names none."""
        self._accounts, self._objects, self._stamp = accounts, objects, stamp
        self._audiences, self._features, self._admission = audiences, features, admission

    def __call__(
        self, caller: Caller, target: Target, body: Json, options: WriteOptions
    ) -> Outcome:
        """Return the TokenRequest with its token. Raises ApiError 400, 404, 409 or 422."""
        request = self._decoded(body, caller, options)
        account = self._account(target)
        metadata = request["metadata"]
        metadata.setdefault("name", target.name)
        metadata.setdefault("namespace", target.namespace)
        metadata["uid"] = account["metadata"]["uid"]
        metadata["creationTimestamp"] = timestamp(self._stamp.now)
        spec = request["spec"]
        spec["audiences"] = spec.get("audiences") or list(self._audiences)
        spec.setdefault("boundObjectRef", None)
        request["status"] = {"token": "", "expirationTimestamp": None}
        warnings = self._admit(caller, target, request, options)
        _validate(spec)
        bound = self._bound(spec["boundObjectRef"], target)
        owner = Reference(target.name, account["metadata"]["uid"])
        seconds = int(spec["expirationSeconds"])
        grant = Grant(target.namespace, owner, spec["audiences"], seconds, bound)
        if not options.dry_run:
            token, expires = self._accounts.issue(grant)
            request["status"] = {"token": token, "expirationTimestamp": timestamp(expires)}
        return Outcome(request, 201, warnings)

    def _decoded(self, body: Json, caller: Caller, options: WriteOptions) -> Json:
        sent = cleaned(body)
        spec: Json = sent.get("spec") or {}
        spec.setdefault("expirationSeconds", _DEFAULT_SECONDS)
        metadata: Json = dict(sent.get("metadata") or {})
        request: Json = {
            "kind": "TokenRequest",
            "apiVersion": RESOURCE.api_version,
            "metadata": metadata,
            "spec": spec,
        }
        self._stamp.track(request, RESOURCE, caller, options, "token")
        return request

    def _account(self, target: Target) -> Json:
        found = self._objects.get(("", "serviceaccounts"), target.namespace, target.name)
        if found is None:
            raise not_found(_SERVICE_ACCOUNTS, target.name)
        return found

    def _admit(
        self, caller: Caller, target: Target, request: Json, options: WriteOptions
    ) -> tuple[str, ...]:
        if self._admission is None:
            return ()
        warnings: list[str] = []
        attributes = Attributes(
            caller,
            "CREATE",
            target,
            copy.deepcopy(request),
            None,
            options.to_wire("CreateOptions"),
            options.dry_run,
        )
        mutated = self._admission.mutate(attributes, warnings.append)
        if mutated is not None:
            request.update(mutated)
        self._admission.validate(attributes, warnings.append)
        return tuple(warnings)

    def _bound(self, reference: Any, target: Target) -> dict[str, Reference]:
        if not reference:
            return {}
        kind, version = reference.get("kind", ""), reference.get("apiVersion", "")
        resource = _BINDABLE.get(kind) if version == "v1" else None
        if resource is None or (kind == "Node" and not self._features.token_binds_node):
            group, _, bare = version.rpartition("/")
            raise bad_request(f"cannot bind token to object of type {group}/{bare}, Kind={kind}")
        namespace = target.namespace if resource.namespaced else ""
        name = reference.get("name", "")
        found = self._objects.get(resource.collection, namespace, name)
        if found is None:
            raise not_found(resource, name)
        if kind == "Pod" and found["spec"].get("serviceAccountName", "default") != target.name:
            raise bad_request(
                f'cannot bind token for serviceaccount "{target.name}" '
                "to pod running with different serviceaccount name."
            )
        uid = found["metadata"]["uid"]
        if reference.get("uid") not in {None, uid}:
            raise conflict("", kind, name, _ANOTHER_UID.format(reference["uid"]))
        bound = {kind.lower(): Reference(name, uid)}
        node = found["spec"].get("nodeName") if kind == "Pod" else ""
        if node and self._features.token_names_node:
            known = self._objects.get(("", "nodes"), "", node)
            bound["node"] = Reference(node, known["metadata"]["uid"] if known else "")
        return bound


def _validate(spec: Json) -> None:
    seconds = spec["expirationSeconds"]
    detail = ""
    if seconds < _SHORTEST_SECONDS:
        detail = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST_SECONDS:
        detail = "may not specify a duration larger than 2^32 seconds"
    if detail:
        cause = invalid_value("spec.expirationSeconds", seconds, detail)
        raise invalid(GROUP, "TokenRequest", "", [cause])
