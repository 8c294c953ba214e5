"""What the artifacts' controller fetches from outside: Secrets, claims, and the hubs' answers.

An errand never raises for what a hub or a missing object says: that is its outcome, and
`decisions.resolution` weighs it. A token is read for the errand that needs it and forgotten with
it.

Rules: AR-HF-01, AR-HF-02, AR-REV-01, AR-REV-03, AR-REV-04, AR-CLM-01.
"""

from __future__ import annotations

import logging

from gpustack_delivery.adapters.patience import TOO_LONG, Patience
from gpustack_delivery.decisions.resolution import (
    Action,
    Credential,
    Listing,
    Outcome,
    Passed,
    Refusal,
)
from gpustack_delivery.errors import (
    ApiFault,
    ConfigurationFault,
    HubFault,
    NotFound,
    Unreachable,
    Verdict,
)
from gpustack_delivery.ports import Hub, Kube
from gpustack_delivery.redaction import Token
from gpustack_delivery.vocabulary.artifact import ClaimSource, HubSource, ModelArtifact
from gpustack_delivery.vocabulary.manifest import Manifest
from gpustack_delivery.vocabulary.metadata import Metadata
from gpustack_delivery.vocabulary.resources import MODEL_ARTIFACTS, SECRETS
from gpustack_delivery.worker.copies import Copies, read_token
from gpustack_delivery.worker.events import WARNING, Events
from gpustack_delivery.worker.hubs import Hubs

_log = logging.getLogger(__name__)


class Errands:
    """Runs errands; safe from any thread."""

    def __init__(
        self, kube: Kube, copies: Copies, hubs: Hubs, events: Events, patience: Patience
    ) -> None:
        self.events = events
        self._patience = patience
        self._kube = kube
        self._copies = copies
        self._hubs = hubs

    @staticmethod
    def secret_of(artifact: ModelArtifact) -> str:
        """Return the name of an artifact's Secret, "" without one."""
        source = artifact.spec.source
        return source.secret_name if isinstance(source, HubSource) else ""

    @staticmethod
    def claim_of(artifact: ModelArtifact) -> str:
        """Return the name of an artifact's claim, "" without one."""
        source = artifact.spec.source
        return source.claim_name if isinstance(source, ClaimSource) else ""

    def credential(self, artifact: ModelArtifact) -> Credential:
        """Say which version of its Secret an artifact would be asked with."""
        name, namespace = self.secret_of(artifact), artifact.metadata.namespace
        if not name:
            return Credential()
        seen = self._copies.secrets.get(name, namespace)
        if seen is not None and seen.has_token:
            return Credential(seen.version)
        # What the copy lacks may be newer than the copy, or of a type that is not mirrored.
        credential, _ = self._read(name, namespace)
        return credential

    def run(self, artifact: ModelArtifact, action: Action, *, renewed: bool) -> Outcome:
        """Do what has to be done for an artifact, and return what came of it.

        Args:
            artifact: the artifact.
            action: one of RESOLVE, PROBE, RELIST and FIND_CLAIM.
            renewed: whether its credential was never asked with before: then the hub is also asked
                whether it takes the token at all.

        Raises:
            Unreachable: the errand was ended together with the term; it has no outcome.
        """
        source = artifact.spec.source
        if not isinstance(source, HubSource):
            return self._find_claim(artifact)
        token: Token | None = None
        if source.secret_name:
            credential, token = self._read(source.secret_name, artifact.metadata.namespace)
            if credential.refusal is not None:
                return credential.refusal
        with self._patience.errand() as flight:
            outcome = self._visit(artifact, source, action, token, renewed=renewed)
        unavailable = isinstance(outcome, Refusal) and outcome.verdict is Verdict.SOURCE_UNAVAILABLE
        if not flight.aborted or not unavailable:
            return outcome
        if self._patience.over:
            raise Unreachable("this replica stops; the next leader asks the hub again")
        return Refusal(Verdict.SOURCE_UNAVAILABLE, TOO_LONG)

    def end(self) -> None:
        """End every errand that is under way."""
        self._patience.end()

    def _visit(
        self,
        artifact: ModelArtifact,
        source: HubSource,
        action: Action,
        token: Token | None,
        *,
        renewed: bool,
    ) -> Outcome:
        try:
            with self._hubs.open(source.hub) as hub:
                outcome = self._ask(hub, artifact, source, action, token)
                if token is not None and (renewed or action is Action.RESOLVE):
                    self._check_token(hub, artifact.metadata, token)
                return outcome
        except HubFault as fault:
            return Refusal(fault.verdict, str(fault))
        except (ConfigurationFault, ApiFault) as fault:
            # Nobody asked the hub: the way to it is what fails.
            return Refusal(Verdict.SOURCE_UNAVAILABLE, str(fault), from_hub=False)

    def _ask(
        self,
        hub: Hub,
        artifact: ModelArtifact,
        source: HubSource,
        action: Action,
        token: Token | None,
    ) -> Outcome:
        try:
            return _ask_hub(hub, artifact, source, action, token)
        except HubFault as fault:
            name = "/".join(artifact.metadata.key)
            _log.info("artifact %s: %s: %s %s", name, fault.verdict, fault, fault.detail)
            return Refusal(fault.verdict, str(fault))

    def _check_token(self, hub: Hub, about: Metadata, token: Token) -> None:
        try:
            accepted = hub.accepts(token)
        except HubFault:
            return  # the errand itself says what there is to say of the hub
        if not accepted:
            message = (
                "the hub does not accept the token in the artifact's Secret; replace it, or remove "
                "secretRef if the repository is public"
            )
            self.events.tell(MODEL_ARTIFACTS, about, WARNING, "InvalidToken", message)

    def _find_claim(self, artifact: ModelArtifact) -> Outcome:
        name = self.claim_of(artifact)
        if self._copies.claims.get(name, artifact.metadata.namespace) is not None:
            return Passed()
        message = f"the claim {name} does not exist in this namespace"
        return Refusal(Verdict.CLAIM_NOT_FOUND, message, from_hub=False)

    def _read(self, name: str, namespace: str) -> tuple[Credential, Token | None]:
        """Read a Secret now."""
        try:
            secret = self._kube.get(SECRETS, name, namespace)
        except NotFound:
            return _no_token(f"the Secret {name} does not exist in this namespace"), None
        except ApiFault as fault:
            message = f"the Secret {name} cannot be read: {fault}"
            refusal = Refusal(Verdict.SOURCE_UNAVAILABLE, message, from_hub=False)
            return Credential(refusal=refusal), None
        token = read_token(secret)
        if token is None:
            return _no_token(f"the Secret {name} has no text under its key token"), None
        return Credential(Metadata.from_wire(secret).resource_version), token


def _no_token(message: str) -> Credential:
    return Credential(refusal=Refusal(Verdict.SECRET_NOT_FOUND, message, from_hub=False))


def _ask_hub(
    hub: Hub, artifact: ModelArtifact, source: HubSource, action: Action, token: Token | None
) -> Outcome:
    known = artifact.status.resolved.revision if artifact.status.resolved else ""
    if action is Action.PROBE:
        hub.probe(source.repository, known, token)
        return Passed()
    commit = known or hub.resolve(source.repository, source.revision, token)
    listed = hub.list_tree(source.repository, commit, token)
    kept = artifact.spec.patterns.filter(listed)
    if not kept:
        found = "the patterns keep no file" if listed else "the repository holds no file"
        return Refusal(Verdict.EMPTY_MANIFEST, f"{found} at commit {commit}")
    manifest = Manifest.of(kept)
    return Listing(commit, manifest.digest, manifest.file_count, manifest.size_bytes)
