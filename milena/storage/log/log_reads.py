"""Reads of a log: by offset, by time, the aborted transactions of a slice, and the ends of leader epochs."""

from __future__ import annotations

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.txn_index import AbortedTxn
from milena.storage.log.guard import guarded
from milena.storage.log.local_log import LocalLog
from milena.storage.log.log_slice import LogSlice
from milena.storage.log.segment import TimedRecord


class LogReads(LocalLog):
    """The part of ``UnifiedLog`` that changes nothing."""

    __slots__ = ()

    @property
    def last_stable_offset(self) -> Offset:
        """The high watermark, or the first unstable offset (of an open transaction) if that is lower."""
        unstable = self.producers.first_unstable
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @guarded
    def read(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> LogSlice:
        """Return the bytes from the batch that contains ``offset`` on, within one segment and before ``upper``.

        If the first batch is larger than ``max_bytes``, the slice has this batch with ``min_one``, else it is empty.
        Raises KafkaError OFFSET_OUT_OF_RANGE for offsets before the log start or after the log end, CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        segments = self.segments
        index = segments.floor_index(offset)
        if index < 0 or offset < self._log_start or offset > self._log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within {self._log_start}..{self._log_end}"
            )
        if offset < upper:
            for at in range(index, len(segments)):
                segment = segments[at]
                position = segment.position_of(offset)
                if position is None:  # compaction has removed the rest of this segment
                    continue
                end = segment.size
                if upper < segments.end_of(at, self._log_end) and (bound := segment.position_of(upper)) is not None:
                    end = bound
                length = min(end - position, max_bytes)
                if length < end - position and length < (first := segment.batch_size_at(position)):
                    length = min(first, end - position) if min_one else 0
                if length <= 0:
                    break
                return LogSlice(segment.file(), position, length, segment.base_offset)
        return LogSlice(None, 0, 0, segments[index].base_offset)

    @guarded
    def read_bytes(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> memoryview:
        """Return the bytes of the slice that ``read`` returns."""
        return self.read(offset, max_bytes, upper=upper, min_one=min_one).read()

    @guarded
    def offset_for_timestamp(self, timestamp: int) -> TimedRecord | None:
        """Return the first local record at ``timestamp`` (ms) or later, None if there is none (docs/kafka-semantics.md:
        Special timestamps). Raises KafkaError.

        Kafka searches only the first segment with such a timestamp. But that record may be before the log start.
        """
        start, longest = self.local_log_start_offset, self.config.max_decompressed_message_bytes
        for segment in self.segments:
            if segment.largest_timestamp() >= timestamp:
                record = segment.find_by_timestamp(timestamp, start, longest)
                if record is not None:
                    return record
        return None

    @guarded
    def max_timestamp_offset(self) -> TimedRecord | None:
        """Return the first record with the largest timestamp, None if the log is empty. Raises KafkaError."""
        latest = max(self.segments, key=lambda segment: segment.largest.timestamp)
        return latest.find_largest_timestamp(self.config.max_decompressed_message_bytes)

    @guarded
    def aborted_transactions(self, start: Offset, upper: Offset) -> list[AbortedTxn]:
        """Return the aborted transactions with records in ``[start, upper)``. Raises KafkaError."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments.since(start):
            some, complete = segment.aborted_in(start, upper)
            aborted += some
            if complete:
                break
        return aborted

    @guarded
    def aborted_in(self, piece: LogSlice, start: Offset, upper: Offset) -> list[AbortedTxn]:
        """Return the aborted transactions with records from ``start`` on in ``piece``, which was read up to ``upper``;
        perhaps also some with records soon after it. Raises KafkaError."""
        segments = self.segments
        index = segments.floor_index(piece.segment_base)
        after = segments[index].offset_after(piece.position + piece.length)
        return self.aborted_transactions(
            start, min(upper, segments.end_of(index, self._log_end) if after is None else after)
        )

    def leader_epoch_end_offset(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch | None, Offset | None]:
        """Return ``epoch``, or the next smaller one in the log, with its end offset; both None if unknown
        (docs/kafka-semantics.md: End offset for a leader epoch)."""
        return self.epochs.end_offset_for(epoch, log_end=self.log_end_offset) or (None, None)
