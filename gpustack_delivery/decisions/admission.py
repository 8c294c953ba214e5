"""What the API server may store: the verdicts of the worker's webhooks.

A denial names the field and says in one line what to change. The beginnings of the messages are
part of the contract: people and programs look for them.

Two guards protect trust that others build on. Mounts trust an artifact's status, so only the worker
writes it. The cluster's views trust a node's status, so only the plugin whose Pod runs on that node
writes it; a token says which Pod it belongs to, from Kubernetes 1.30 on also which node, and before
that the Pod is looked up.

Rules: AR-RES-01..06, NS-OWN-12..18.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpustack_delivery.decisions.addresses import is_repository, object_name_fault
from gpustack_delivery.vocabulary.artifact import (
    ClaimSource,
    HubKind,
    HubSource,
    ImageSource,
    Source,
    Spec,
)
from gpustack_delivery.vocabulary.manifest import is_digest
from gpustack_delivery.vocabulary.resources import Json

POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"

IDENTITY: Final = "a ModelArtifact is an identity"
WORKER_ONLY: Final = "only the worker writes a ModelArtifact's status"
PLUGIN_ONLY: Final = "only the model-manager plugin writes a NodeModelStore's status"
BOUND_TOKEN: Final = "the plugin's token must be bound to its Pod"  # noqa: S105 - a sentence
OWN_NODE: Final = "the plugin writes only the status of the node its Pod runs on"

_SOURCES: Final = ("huggingFace", "modelScope", "persistentVolumeClaim", "image")
_IMAGE: Final = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_MAX_PATTERNS: Final = 32
_MAX_PATTERN_LENGTH: Final = 256
_MAX_REVISION_LENGTH: Final = 255
_MAX_CLAIM_PATH_LENGTH: Final = 1024


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is refused: the field, and one line that says what to change."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks: the username, and what the API server knows of the token."""

    username: str
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def only(self, key: str) -> str:
        """Return the single value of an extra; "" if it is absent, empty or not single."""
        values = self.extra.get(key, ())
        return values[0] if len(values) == 1 else ""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The Pod a token is bound to, which must be looked up before the verdict."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the look-up found: the Pod's UID, and the node it runs on ("" for none yet)."""

    uid: str
    node_name: str


def default_revision(spec: object) -> list[Json]:
    """Return the JSON patch that gives a hub source without a revision its hub's default branch.

    The schema is asked after us: what is of a wrong form is left as it is, for the API server to
    refuse by its name.
    """
    source = spec.get("source") if isinstance(spec, dict) else None
    if not isinstance(source, dict):
        return []
    return [
        {"op": "add", "path": f"/spec/source/{hub}/revision", "value": hub.default_revision}
        for hub in HubKind
        if isinstance(member := source.get(hub.value), dict)
        and member.get("revision") in (None, "")
    ]


def judge_artifact_update(old_spec: Json, new_spec: Json) -> tuple[Denial, ...]:
    """Judge an update: the whole spec stays, and what stays is not judged again."""
    if old_spec == new_spec:
        return ()
    message = f"{IDENTITY}: its spec cannot change; create another ModelArtifact instead"
    return (Denial("spec", message),)


def judge_artifact(spec: Json, *, image_volumes: bool) -> tuple[Denial, ...]:
    """Judge a new artifact's spec, revisions defaulted.

    Args:
        spec: the spec on the wire.
        image_volumes: whether the cluster is known to mount images, as 1.35 and later do.
    """
    read = Spec.from_wire(spec)
    given = [name for name in _SOURCES if (spec.get("source") or {}).get(name) is not None]
    if read.source is None or len(given) != 1:
        named = f"{' and '.join(given)} are" if given else "none is"
        message = f"exactly one of {', '.join(_SOURCES)} must be set; {named} set"
        return (Denial("spec.source", message),)
    of_source = _judge_source(read.source, image_volumes=image_volumes)
    return (*_judge_hub_only(read), *of_source)


def _judge_source(source: Source, *, image_volumes: bool) -> list[Denial]:
    if isinstance(source, HubSource):
        return _judge_hub(source)
    if isinstance(source, ClaimSource):
        return _judge_claim(source)
    return _judge_image(source, image_volumes=image_volumes)


def _judge_hub(source: HubSource) -> list[Denial]:
    where = f"spec.source.{source.hub}"
    denials = []
    if not is_repository(source.repository):
        message = (
            "must be NAME or OWNER/NAME, each of at most 96 letters, digits, '_', '-' and '.', "
            "without '--' and '..', beginning and ending with a letter, a digit or '_'"
        )
        denials.append(Denial(f"{where}.repository", message))
    revision = source.revision
    if not revision or len(revision) > _MAX_REVISION_LENGTH or not _is_one_word(revision):
        message = (
            "must be a branch, tag or commit of at most 255 characters, without spaces or control "
            "characters"
        )
        denials.append(Denial(f"{where}.revision", message))
    if source.secret_name and (fault := object_name_fault(source.secret_name)):
        denials.append(Denial(f"{where}.secretRef.name", fault))
    return denials


def _judge_claim(source: ClaimSource) -> list[Denial]:
    where = "spec.source.persistentVolumeClaim"
    denials = []
    if fault := object_name_fault(source.claim_name):
        denials.append(Denial(f"{where}.claimName", fault))
    path = source.path
    if len(path) > _MAX_CLAIM_PATH_LENGTH or path.startswith("/") or ".." in path.split("/"):
        message = "must be a path of at most 1024 characters below the claim's root, without '..'"
        denials.append(Denial(f"{where}.path", message))
    return denials


def _judge_image(source: ImageSource, *, image_volumes: bool) -> list[Denial]:
    where = "spec.source.image"
    denials = []
    if _IMAGE.fullmatch(source.reference) is None:
        message = "must be pinned as NAME@sha256:<64 lowercase hex digits>; a tag can move"
        denials.append(Denial(f"{where}.reference", message))
    if not image_volumes:
        message = "image sources need Kubernetes 1.35 or later; use a hub or a claim"
        denials.append(Denial(where, message))
    return denials


def _judge_hub_only(spec: Spec) -> list[Denial]:
    """Judge what only hub sources may carry: patterns and the expected digest."""
    of_hub = isinstance(spec.source, HubSource)
    denials = []
    for name, patterns in (
        ("spec.allowPatterns", spec.patterns.allow),
        ("spec.ignorePatterns", spec.patterns.ignore),
    ):
        if patterns and not of_hub:
            message = "patterns select files of a hub source; remove them for a claim or an image"
            denials.append(Denial(name, message))
        if len(patterns) > _MAX_PATTERNS:
            denials.append(Denial(name, f"must hold at most {_MAX_PATTERNS} patterns"))
        denials += [
            Denial(f"{name}[{index}]", "must be 1 to 256 characters, none of them a control one")
            for index, pattern in enumerate(patterns)
            if not 1 <= len(pattern) <= _MAX_PATTERN_LENGTH or _has_control(pattern)
        ]
    if spec.expected_digest and not of_hub:
        message = "an expected digest speaks of a hub source; remove it for a claim or an image"
        denials.append(Denial("spec.expectedDigest", message))
    elif spec.expected_digest and not is_digest(spec.expected_digest):
        message = "must be sha256: and 64 lowercase hex digits"
        denials.append(Denial("spec.expectedDigest", message))
    return denials


def judge_artifact_status(requester: Requester, worker: str) -> tuple[Denial, ...]:
    """Judge an update of an artifact's status; `worker` is the worker's own username."""
    if requester.username == worker:
        return ()
    return (Denial("status", f"{WORKER_ONLY}; this request is by {_shown(requester.username)}"),)


def judge_store_status(
    requester: Requester, store_name: str, plugin: str
) -> tuple[Denial, ...] | BoundPod:
    """Judge an update of a node's status, as far as the request alone tells.

    Args:
        requester: who asks.
        store_name: the object's name, which is its node's.
        plugin: the username of the plugin's ServiceAccount.

    Returns:
        The verdict, or the Pod to look up for `judge_bound_pod`.
    """
    if requester.username != plugin:
        return _deny_status(f"{PLUGIN_ONLY}; this request is by {_shown(requester.username)}")
    pod = BoundPod(requester.only(POD_NAME), requester.only(POD_UID))
    if not pod.name or not pod.uid:
        return _deny_status(f"{BOUND_TOKEN}; mount a projected service account token into it")
    node = requester.only(NODE_NAME)
    if not node:
        return pod
    return () if node == store_name else _deny_status(_wrong_node(node, store_name))


def judge_bound_pod(bound: BoundPod, found: PodFacts | None, store_name: str) -> tuple[Denial, ...]:
    """Judge the rest of what `judge_store_status` left open.

    Args:
        bound: the Pod of the token.
        found: the Pod of that name in the operator namespace, None if there is none.
        store_name: the object's name.
    """
    if found is None:
        message = f"{OWN_NODE}; the Pod {_shown(bound.name)} does not exist"
        return _deny_status(message)
    if found.uid != bound.uid:
        message = f"{OWN_NODE}; the token belongs to an earlier Pod named {_shown(bound.name)}"
        return _deny_status(message)
    if found.node_name != store_name:
        return _deny_status(_wrong_node(found.node_name, store_name))
    return ()


def _deny_status(message: str) -> tuple[Denial, ...]:
    return (Denial("status", message),)


def _wrong_node(node: str, store_name: str) -> str:
    where = _shown(node) if node else "no node yet"
    return f"{OWN_NODE}; it runs on {where}, not on {_shown(store_name)}"


def _shown(text: Any) -> str:
    """Return a name as a message may hold it: short, and without control characters."""
    return repr(str(text))[1:-1][:253] or "nobody"


def _is_one_word(text: str) -> bool:
    return text.isprintable() and not any(character.isspace() for character in text)


def _has_control(text: str) -> bool:
    return any(character < " " or character == "\x7f" for character in text)
