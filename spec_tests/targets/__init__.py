"""What the specification runs against, and what each target must be able to do.

A test asks for conditions, never for mechanisms: a node that is full, a plugin that is gone, a
minute later. A target turns them into whatever its world needs. docs/conformance.md describes the
targets.
"""

from __future__ import annotations

from typing import Final

KINDS: Final = ("in-process",)
"""The names that `--target` accepts."""
