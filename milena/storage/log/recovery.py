"""Recovery of a log after a crash, like Kafka's ``LogLoader.recoverLog``, and the replay of its batches.

Recovery reads all batches from the recovery point on, and truncates the log at the first invalid batch: an incomplete
one, zeros, a wrong checksum, decreasing offsets. It rebuilds indexes, leader epochs and producer state.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from milena.protocol.records.batch import FIRST_OFFSET, CorruptBatch
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import File
from milena.storage.files.end_marker import read_end_marker
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.batch_scan import ScannedBatch, has_valid_crc, read_batch, scan_batches
from milena.storage.log.producer_files import ProducerFiles
from milena.storage.log.segment import MAX_RELATIVE_OFFSET, Segment
from milena.storage.log.segments import Segments
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.storage.state.producer_state import CompletedTxn, ProducerState


@dataclass(frozen=True, slots=True)
class Cut:
    """What recovery has truncated."""

    segment: Offset
    next_offset: Offset
    """The log end offset of the remaining log."""
    size: int
    """Bytes removed from the segment. Later segments are removed completely."""
    reason: str


@dataclass(slots=True)
class Recovery:
    """One pass over the segments of a log that is being opened."""

    folder: str
    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerState
    producer_files: ProducerFiles
    log_start: Offset
    index_interval: int
    compacted_to: Offset
    """After a segment that begins before this offset, a gap may be the result of compaction. Otherwise it means that
    the end of the segment was lost."""
    next_offset: Offset = FIRST_OFFSET
    """The offset after the last valid batch."""

    def run(self, recovery_point: Offset) -> Cut | None:
        """Recover the segment of ``recovery_point`` and all later ones. Returns what was truncated, None for nothing;
        the caller must then remove the later segments. Raises OSError."""
        unflushed = self.segments.since(recovery_point)
        if not unflushed:
            return None
        base = unflushed[0].base_offset
        self.producer_files.keep_within(self.folder, self.log_start, base)
        self.producers_as_of(base)
        previous = None
        for segment in unflushed:
            gap = self.next_offset != segment.base_offset
            if previous is not None and gap and previous.base_offset >= self.compacted_to:
                reason = f"the segment at {segment.base_offset} does not follow"  # offsets are missing between them
                return Cut(previous.base_offset, self.next_offset, 0, reason)
            self.producer_files.take(self.folder, self.producers, segment.base_offset)
            cut = self.rebuild(segment)
            if cut is not None:
                return cut
            previous = segment
        return None

    def producers_as_of(self, offset: Offset) -> None:
        """Load the producer state at ``offset``. Raises CorruptBatch, OSError."""
        start = self.producer_files.load(self.folder, self.producers, upto=offset, log_start=self.log_start)
        replay_producers(self.segments, self.producers, start, offset)

    def rebuild(self, segment: Segment) -> Cut | None:
        """Check every batch of ``segment`` and rebuild its indexes; truncates the segment after the last valid batch.

        The indexes of the active segment remain in memory, as after an append.
        """
        file = segment.file()
        size = file.size
        segment.start_over(size)
        position = 0
        self.next_offset = segment.base_offset
        reason = ""
        try:
            for batch in scan_batches(file, 0, size):
                if not has_valid_crc(file, batch):
                    raise CorruptBatch(f"the batch at {batch.position} has a wrong checksum")
                if (
                    not self.next_offset
                    <= batch.base_offset
                    <= batch.last_offset
                    <= segment.base_offset + MAX_RELATIVE_OFFSET
                ):
                    raise CorruptBatch(
                        f"the batch at {batch.position} has offset {batch.base_offset} after {self.next_offset}"
                    )
                note_epoch(self.epochs, batch)
                if batch.producer_id >= 0:  # the transaction index is rebuilt from the producer state
                    completed = replay_producer(self.producers, batch, file)
                    if completed is not None and completed.aborted:
                        stable = self.producers.stable_offset_after(completed)
                        segment.add_aborted(
                            AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
                        )
                segment.note(batch, position, self.index_interval)
                position += batch.size
                self.next_offset = Offset(batch.last_offset + 1)
        except CorruptBatch as error:
            reason = str(error)
        if position < size:
            segment.cut_at(position)
        if segment is not self.segments.active:  # no append will write its index files
            segment.write_indexes()
        return Cut(segment.base_offset, self.next_offset, size - position, reason) if reason else None


def replay_producer(state: ProducerState, batch: ScannedBatch, file: File) -> CompletedTxn | None:
    """Apply ``batch`` to ``state``. Returns the transaction that it ends, None if it ends none. Raises CorruptBatch."""
    if not batch.is_control:
        state.add_batch(batch)
        return None
    marker = read_end_marker(read_batch(file, batch))
    return state.end_txn(marker) if marker is not None else None


def replay_producers(segments: Segments, state: ProducerState, start: Offset, end: Offset) -> None:
    """Apply the batches in ``[start, end)`` to ``state``. Raises CorruptBatch."""
    if start >= end:
        return
    for segment in segments.since(start):
        if segment.base_offset >= end:
            return
        position = segment.position_of(start)
        if position is None:
            continue
        file = segment.file()
        for batch in scan_batches(file, position, segment.size):
            if batch.base_offset >= end:
                return
            if batch.producer_id >= 0:
                replay_producer(state, batch, file)


def rebuild_epochs(segments: Segments, epochs: LeaderEpochCache) -> None:
    """Fill the empty cache ``epochs`` from the headers of all batches. Raises CorruptBatch."""
    for segment in segments:
        for batch in scan_batches(segment.file(), 0, segment.size):
            note_epoch(epochs, batch)


def begins_locally(segments: Segments, start: Offset) -> bool:
    """Whether ``start`` is the base offset of the first segment, or between it and the first record."""
    first = segments[0]
    if start <= first.base_offset:
        return start == first.base_offset
    with suppress(CorruptBatch):
        for segment in segments:
            for batch in scan_batches(segment.file(), 0, segment.size):
                return start <= batch.base_offset
    return False


def note_epoch(epochs: LeaderEpochCache, batch: ScannedBatch) -> None:
    """Add the leader epoch of ``batch`` if it is later than all in ``epochs``."""
    epoch = batch.leader_epoch
    if epoch >= 0 and (epochs.latest is None or epoch > epochs.latest):
        epochs.assign(LeaderEpoch(epoch), Offset(batch.base_offset))
