"""Recovery of a log after its process was killed, or after a power loss.

Everything from the recovery point on is read, and the log ends at the first batch that is not as it was written: a torn
one, zeros, a wrong checksum, offsets that go back. Indexes, leader epochs and producers are built anew on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from milena.protocol.records.batch import FIRST_OFFSET, CorruptBatch
from milena.protocol.types import Offset
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.batch_scan import has_valid_crc, scan_batches
from milena.storage.log.producer_files import ProducerFiles
from milena.storage.log.replay import note_epoch, replay_producer, replay_producers
from milena.storage.log.segment import MAX_RELATIVE_OFFSET, Segment
from milena.storage.log.segments import Segments
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.storage.state.producer_state import ProducerState


@dataclass(frozen=True, slots=True)
class Cut:
    """What recovery took away."""

    segment: Offset
    next_offset: Offset
    """The end of what is left."""
    size: int
    """Bytes cut from the segment; segments after it went as a whole."""
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
    compacted: bool
    """Whether there may be gaps between segments. Elsewhere one means that the end of a segment was lost."""
    next_offset: Offset = FIRST_OFFSET
    """After the last batch that was found sound."""

    def run(self, recovery_point: Offset) -> Cut | None:
        """Recover the segment of ``recovery_point`` and those after it; where there was damage, the later ones are to
        be dropped by the caller. Raises OSError."""
        unflushed = self.segments.since(recovery_point)
        if not unflushed:
            return None
        base = unflushed[0].base_offset
        self.producer_files.keep_within(self.folder, self.log_start, base)
        self.producers_as_of(base)
        previous = None
        for segment in unflushed:
            if previous is not None and not self.compacted and self.next_offset != segment.base_offset:
                reason = f"the segment at {segment.base_offset} does not follow"
                return Cut(previous.base_offset, self.next_offset, 0, reason)
            self.producer_files.take(self.folder, self.producers, segment.base_offset)
            cut = self.rebuild(segment)
            if cut is not None:
                return cut
            previous = segment
        return None

    def producers_as_of(self, offset: Offset) -> None:
        """Bring the producers to where they were at ``offset``. Raises CorruptBatch, OSError."""
        start = self.producer_files.load(self.folder, self.producers, upto=offset, log_start=self.log_start)
        replay_producers(self.segments, self.producers, start, offset)

    def rebuild(self, segment: Segment) -> Cut | None:
        """Check every batch of one segment and build its indexes; what follows the last good batch is cut.

        The indexes of the active segment stay in memory, as they do when it is appended to.
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
                if batch.producer_id >= 0:
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
        if segment is not self.segments.active:
            segment.write_indexes()
        return Cut(segment.base_offset, self.next_offset, size - position, reason) if reason else None
