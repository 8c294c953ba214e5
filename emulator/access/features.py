"""What differs between Kubernetes versions where identity is concerned.

Each property names the change and the first version that has it on by default.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """The minor version that a cluster plays, as questions about it."""

    minor: int

    @classmethod
    def of(cls, kubernetes: str) -> Features:
        """Read a version such as "1.30" or "v1.36.2". Raises ValueError for anything else."""
        major, _, rest = kubernetes.removeprefix("v").partition(".")
        if major != "1":
            raise ValueError(f"not a Kubernetes version: {kubernetes!r}; write it as 1.30")
        return cls(int(rest.partition(".")[0]))

    @property
    def token_names_node(self) -> bool:
        """Say whether the token of a Pod carries the node the Pod runs on."""
        return self.minor >= 30

    @property
    def token_has_id(self) -> bool:
        """Say whether a token has an id of its own, shown as the credential id."""
        return self.minor >= 30

    @property
    def token_binds_node(self) -> bool:
        """Say whether a token can be bound to a Node."""
        return self.minor >= 31

    @property
    def certificate_has_id(self) -> bool:
        """Say whether a client certificate's fingerprint is shown as the credential id."""
        return self.minor >= 32

    @property
    def constrained_impersonation(self) -> bool:
        """Say whether impersonation can be granted for single verbs, which changes the refusal."""
        return self.minor >= 36
