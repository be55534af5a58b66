"""Finds records by timestamp (ListOffsets; docs/kafka-semantics.md: Special timestamps)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from milena.protocol.records.batch import BatchView
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.batch_scan import LOOKUP_CHUNK, ScannedBatch, read_batch, scan_batches
from milena.storage.log.segment import Segment

if TYPE_CHECKING:
    from milena.storage.log.local_log import LocalLog


class TimedRecord(NamedTuple):
    """A record's offset with its timestamp (ms) and the leader epoch of its batch."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


def first_at_or_after(log: LocalLog, timestamp: int, start: Offset) -> TimedRecord | None:
    """The first record from ``start`` on whose timestamp is ``timestamp`` or later. Raises CorruptBatch, OSError.

    Kafka searches the first segment that reaches the timestamp, and no other. The record that does may be deleted.
    """
    for segment in log.segments:
        if segment.largest_timestamp() >= timestamp and (found := _search(segment, timestamp, start)) is not None:
            return found
    return None


def of_largest_timestamp(log: LocalLog) -> TimedRecord | None:
    """The first record that has the largest timestamp of the log. Raises CorruptBatch, OSError."""
    segment = max(log.segments, key=lambda candidate: candidate.largest.timestamp)
    largest = segment.largest
    position = segment.offset_index.lookup(largest.offset)
    for batch in scan_batches(segment.file(), position, segment.size, chunk=LOOKUP_CHUNK):
        if batch.max_timestamp == largest.timestamp and batch.record_count:
            return _record(segment, batch, largest.timestamp, Offset(0))
    return None


def _search(segment: Segment, timestamp: int, start: Offset) -> TimedRecord | None:
    offset = max(segment.time_index.lookup(timestamp), start)
    position = segment.offset_index.lookup(offset)
    for batch in scan_batches(segment.file(), position, segment.size, chunk=LOOKUP_CHUNK):
        if batch.max_timestamp >= timestamp and (found := _record(segment, batch, timestamp, start)) is not None:
            return found
    return None


def _record(segment: Segment, header: ScannedBatch, timestamp: int, start: Offset) -> TimedRecord | None:
    return first_in_batch(read_batch(segment.file(), header), timestamp, start)


def first_in_batch(batch: BatchView, timestamp: int, start: Offset) -> TimedRecord | None:
    """The batch's first record from ``start`` on with ``timestamp`` or later. Raises CorruptBatch."""
    for record in iter_records(batch):
        if timestamp_of(batch, record) >= timestamp and offset_of(batch, record) >= start:
            epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
            return TimedRecord(timestamp_of(batch, record), offset_of(batch, record), epoch)
    return None
