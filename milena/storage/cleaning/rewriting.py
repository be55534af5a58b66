"""What takes the place of each batch of a log: what a cleaning retains of it, or the mark of the epoch that begins with
it."""

from __future__ import annotations

from milena.protocol.records.batch import BatchView
from milena.runtime.disk import Bytes
from milena.storage.cleaning.epoch_marks import EpochMarks
from milena.storage.cleaning.rebuilt_batch import epoch_mark
from milena.storage.cleaning.retained import Retained


class Rewriting:
    """Takes the batches of a log in order."""

    def __init__(self, retained: Retained, epoch: int = -1) -> None:
        """``epoch``: that of the last batch before; -1: there is none."""
        self._retained = retained
        self._marks = EpochMarks(epoch)

    def of(self, batch: BatchView) -> Bytes:
        """The batch that takes the place of ``batch``; no bytes if none does. Raises CorruptBatch."""
        data = self._retained.of(batch)
        if self._marks.begins_with(batch) and not len(data):
            return epoch_mark(batch)
        return data


def has_changed(batch: BatchView, data: Bytes) -> bool:
    """Whether what takes the place of ``batch`` is something else."""
    return data is not batch.memory and data != batch.memory
