"""What differs between Kubernetes versions: identity, and the bookmarks of watches.

Each property names the change and the first version that has it on by default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

OLDEST_MINOR: Final = 29
NEWEST_MINOR: Final = 36
_VERSION: Final = re.compile(r"v?1\.([0-9]{1,3})(?:\.[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Features:
    """The minor version that a cluster plays, as questions about it."""

    minor: int

    @classmethod
    def of(cls, kubernetes: str) -> Features:
        """Read a version such as "1.30" or "v1.36.2".

        Raises:
            ValueError: it is none, or none that can be played.
        """
        match = _VERSION.fullmatch(kubernetes)
        if match is None or not OLDEST_MINOR <= int(match[1]) <= NEWEST_MINOR:
            raise ValueError(
                f"not a Kubernetes version that can be played: {kubernetes!r}; choose one from "
                f"1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}"
            )
        return cls(int(match[1]))

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
    def bookmarks_at_rest(self) -> bool:
        """Say whether a kind that has not changed since the server began gets bookmarks too."""
        return self.minor >= 33

    @property
    def constrained_impersonation(self) -> bool:
        """Say whether impersonation can be granted for single verbs, which changes the refusal."""
        return self.minor >= 36
