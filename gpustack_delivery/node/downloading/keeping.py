"""The attempt's side of the disk: content is synced before anything is noted about it.

Small files are synced together, many at a time: the first sync of a batch carries most of the
journal's work for all of them. Everything here runs on one thread. Rules: NS-DL-16, NS-DL-18.
"""

from __future__ import annotations

import logging
from typing import Final

from gpustack_delivery.errors import HostFault
from gpustack_delivery.node.downloading.files import File
from gpustack_delivery.node.downloading.ledger import Checkpoint, Ledger
from gpustack_delivery.ports import Disk

_log = logging.getLogger(__name__)

BATCH_FILES: Final = 512
BATCH_BYTES: Final = 64 << 20


class Keeper:
    """Makes content durable and keeps the ledger true; HostFault and OSError pass through."""

    def __init__(self, ledger: Ledger, disk: Disk) -> None:
        self._ledger = ledger
        self._disk = disk
        self._batch: list[File] = []
        self._batch_bytes = 0

    def save(self, file: File, checkpoint: Checkpoint) -> None:
        """Sync a file and note how far it is safe."""
        if not self._sync(file):
            return
        self._ledger.save(file.target.entry, checkpoint, self._disk)
        file.saved = checkpoint.offset

    def finish(self, file: File) -> None:
        """Sync a whole, verified file and note it."""
        file.close()
        if not self._sync(file):
            return
        self._ledger.finish([file.target.entry], self._disk)
        self._ledger.forget(file.target.entry)

    def collect(self, file: File) -> None:
        """Add a small whole file to the batch, and sync the batch when it is large enough."""
        self._batch.append(file)
        self._batch_bytes += file.size
        if len(self._batch) >= BATCH_FILES or self._batch_bytes >= BATCH_BYTES:
            self.sync_batch()

    def sync_batch(self) -> None:
        """Sync the small files collected so far and note them."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        for file in batch:
            self._sync(file)
        if batch:
            self._ledger.finish((file.target.entry for file in batch), self._disk)

    def stop(self, file: File) -> None:
        """Close a file that is not whole: remove a wrong one, give the others a last checkpoint.

        The room behind the checkpoint goes back first: on a full disk the checkpoint needs it.

        Failures are only logged: the attempt has failed already, and an earlier checkpoint stands.
        """
        try:
            if file.wrong:
                self._ledger.withdraw([file.target.entry], self._disk)
                file.remove()
                return
            file.give_back()
            if not file.finished and file.offset > file.saved:
                state = file.hasher.save()
                if state is not None:
                    self.save(file, Checkpoint(file.offset, state))
        except (OSError, HostFault) as error:
            _log.warning("last checkpoint failed path=%a: %s", file.target.entry.path, error)
        finally:
            file.close()

    def _sync(self, file: File) -> bool:
        """Make a file's content durable; False when that has failed once before.

        After a failed sync the kernel forgets which pages were lost, and the next sync succeeds
        over the hole. Nothing more is noted about such a file; its last checkpoint was safe before.
        """
        if file.unsafe:
            return False
        file.unsafe = True
        self._disk.sync_file(file.target.destination)
        file.unsafe = False
        return True
