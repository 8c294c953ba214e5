"""Patches and field ownership of the emulated API server.

`documents` and `strategic` change plain JSON, `typed` merges and compares by the shapes that
`shapes` reads from a CRD schema or from the table of built-in kinds, `managed` reads and writes
managedFields, and `patcher.FieldPatcher` puts them together as the one `contracts.Patcher`.
"""

from emulator.patches.patcher import FieldPatcher

__all__ = ["FieldPatcher"]
