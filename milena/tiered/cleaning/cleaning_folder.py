"""The local folder in which a broker cleans segments of one partition in the tier. It is inside the log's folder."""

from __future__ import annotations

from collections.abc import Sequence

from milena.runtime.disk import Disk
from milena.storage.cleaning.cleaning_round import NewSegment
from milena.storage.files.names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    REMOTE_CLEANING,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    segment_file,
)
from milena.storage.files.txn_index import AbortedTxn, append_aborted
from milena.tiered.store.remote_storage import SegmentFiles


def cleaning_folder(log_folder: str) -> str:
    return f"{log_folder}/{REMOTE_CLEANING}"


class CleaningFolder:
    """The files of one pass of cleaning. All methods block, and raise OSError."""

    def __init__(self, disk: Disk, log_folder: str) -> None:
        self._disk = disk
        self.path = cleaning_folder(log_folder)

    def begin(self) -> None:
        """Create an empty folder. Raises FileNotFoundError if the log was moved or deleted: the parent must not be
        created, since it would be loaded as a log."""
        self.remove()
        self._disk.make_folder(self.path)

    def remove(self) -> None:
        self._disk.remove_tree(self.path)

    def file(self, offset: int, suffix: str) -> str:
        return f"{self.path}/{segment_file(offset, suffix)}"

    def add_aborted(self, offset: int, aborted: Sequence[AbortedTxn]) -> None:
        """Write the transaction index of a segment that will be cleaned."""
        for entry in aborted:
            append_aborted(self._disk, self.file(offset, TXN_INDEX), entry)

    def add_producers(self, offset: int, snapshot: bytes) -> None:
        self._disk.write_atomic(self.file(offset, SNAPSHOT), snapshot, sync=False)

    def remove_group(self, group: Sequence[int]) -> None:
        """Remove all files of a group except the transaction indexes, which the next groups need."""
        for offset in group:
            for suffix in (
                LOG,
                SNAPSHOT,
                *(kind + CLEANED for kind in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)),
            ):
                self._disk.remove(self.file(offset, suffix))

    def files_of(self, new: NewSegment, leader_epochs: bytes) -> SegmentFiles:
        """Return the files of the new segment ``new``, for copying it to the tier."""
        first = new.base_offset
        return SegmentFiles(
            self.file(first, LOG + CLEANED),
            self.file(first, OFFSET_INDEX + CLEANED),
            self.file(first, TIME_INDEX + CLEANED),
            self.file(first, TXN_INDEX + CLEANED) if new.has_aborted else None,
            self.file(first, SNAPSHOT),
            leader_epochs,
        )
