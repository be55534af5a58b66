"""The contents of a segment's log in the tier, found by reading all of it: offsets, epochs, checksums."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from milena.protocol.records.batch import NO_TIMESTAMP, BatchView, CorruptBatch, TimestampType, batch_size_at
from milena.protocol.records.records import iter_records, timestamp_of
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import RemoteStorage

PIECE: Final = 4 << 20
"""Bytes per fetch."""


class DamagedLog(ValueError):
    """The log cannot be read from some position on. The message has the position and the reason."""


@dataclass(slots=True)
class LogContents:
    """The contents of a log. Offsets are inclusive; None if the log has no batch. ``damage``: descriptions of what is
    wrong."""

    batches: int = 0
    records: int = 0
    first_offset: Offset | None = None
    last_offset: Offset | None = None
    max_timestamp_ms: int = -1
    min_timestamp_ms: int | None = None
    """The lowest timestamp of a batch's first record, which is that of the log's oldest record if producers write in
    the order of time; None if no record has a timestamp."""
    size: int = 0
    """Bytes of the whole batches."""
    epochs: list[EpochEntry] = field(default_factory=list)
    """The epochs, each with the offset of its first record here."""
    codecs: set[str] = field(default_factory=set)
    bad_checksums: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    gap: str = ""
    """The first gap in the offsets, between batches or inside one, as text; empty if there is none. Only compaction
    causes gaps."""
    _positions: array[int] = field(default_factory=lambda: array("q"))
    _bases: array[int] = field(default_factory=lambda: array("q"))

    def base_offset_at(self, position: int) -> int | None:
        """Return the base offset of the batch that begins at ``position``; None if no batch begins there."""
        index = bisect_left(self._positions, position)
        found = index < len(self._positions) and self._positions[index] == position
        return self._bases[index] if found else None

    def _gap_at(self, batch: BatchView) -> str:
        if self.last_offset is not None and batch.base_offset > self.last_offset + 1:
            return f"no record of offsets {self.last_offset + 1} to {batch.base_offset - 1}"
        span = batch.last_offset - batch.base_offset + 1
        if max(batch.count, 0) < span:
            return f"{max(batch.count, 0)} of {span} records of offsets {batch.base_offset} to {batch.last_offset}"
        return ""

    def take(self, position: int, batch: BatchView) -> None:
        """Add the next batch."""
        if not batch.is_valid:
            self.bad_checksums.append(f"the batch at position {position}, offset {batch.base_offset}")
        if self.last_offset is not None and batch.base_offset <= self.last_offset:
            self.damage.append(f"offset {batch.base_offset} at position {position} follows offset {self.last_offset}")
        if self.first_offset is None:
            self.first_offset = batch.base_offset
        if not self.gap:
            self.gap = self._gap_at(batch)
        if not self.epochs or batch.leader_epoch > self.epochs[-1].epoch:
            self.epochs.append(EpochEntry(LeaderEpoch(batch.leader_epoch), batch.base_offset))
        elif batch.leader_epoch < self.epochs[-1].epoch:
            self.damage.append(
                f"leader epoch {batch.leader_epoch} at offset {batch.base_offset} follows {self.epochs[-1].epoch}"
            )
        self.last_offset = batch.last_offset
        self.batches += 1
        self.records += max(batch.count, 0)
        if batch.count:  # otherwise the batch was cleaned, and no index has its timestamp
            self.max_timestamp_ms = max(self.max_timestamp_ms, batch.max_timestamp)
            first = _first_timestamp(batch)
            if first is not None and (self.min_timestamp_ms is None or first < self.min_timestamp_ms):
                self.min_timestamp_ms = first
        self.codecs.add(_codec(batch))
        self._positions.append(position)
        self._bases.append(batch.base_offset)
        self.size = position + batch.size_in_bytes


def _first_timestamp(batch: BatchView) -> int | None:
    """Return the timestamp of the first record; None if it has none, or the batch is a control batch or damaged."""
    if batch.is_control:
        return None
    found = batch.base_timestamp
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        found = batch.max_timestamp
    elif batch.has_delete_horizon:  # the field has that time, and the records are relative to it
        try:
            found = min((timestamp_of(batch, record) for record in iter_records(batch)), default=NO_TIMESTAMP)
        except CorruptBatch:
            found = NO_TIMESTAMP
    return None if found == NO_TIMESTAMP else found


def _codec(batch: BatchView) -> str:
    try:
        return batch.codec.name.lower()
    except CorruptBatch:
        return "unknown"


async def batches_of(
    storage: RemoteStorage, metadata: RemoteLogSegmentMetadata
) -> AsyncIterator[tuple[int, BatchView]]:
    """(position, batch) of a segment's log in the tier. Checksums are not verified.

    Raises RemoteStorageError; DamagedLog if the bytes are not batches or end inside one.
    """
    held, position, fetched = bytearray(), 0, 0
    while position < metadata.size:
        view = memoryview(bytes(held))
        try:
            size = batch_size_at(view, 0)
        except CorruptBatch as error:
            raise DamagedLog(f"no batch at position {position}: {error}") from None
        if size is None or size > len(held):
            if fetched >= metadata.size or (size or 0) > metadata.size - position:
                left = metadata.size - position
                raise DamagedLog(f"the {left} bytes at position {position} are not a complete batch")
            wanted = max(PIECE, (size or 0) - len(held))
            part = await storage.fetch(metadata, fetched, fetched + wanted - 1)
            held += await part.read()
            fetched += part.length
            continue
        begin = 0
        while size is not None and begin + size <= len(view):
            yield position + begin, BatchView(view[begin : begin + size])
            begin += size
            try:
                size = batch_size_at(view, begin) if begin < len(view) else None
            except CorruptBatch as error:
                raise DamagedLog(f"no batch at position {position + begin}: {error}") from None
        del held[:begin]
        position += begin


async def read_contents(storage: RemoteStorage, metadata: RemoteLogSegmentMetadata) -> LogContents:
    """Read all of a segment's log. Raises RemoteStorageError."""
    contents = LogContents()
    try:
        async for position, batch in batches_of(storage, metadata):
            contents.take(position, batch)
    except DamagedLog as error:
        contents.damage.append(str(error))
    except CorruptBatch as error:
        contents.damage.append(f"after position {contents.size}: {error}")
    return contents
