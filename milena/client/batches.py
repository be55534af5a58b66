"""A partition's batches before they are sent: records collect in the last one while the first is in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from milena.protocol.records.batch import BatchView, Codec
from milena.protocol.records.record_cursor import Header
from milena.protocol.records.records import BatchBuilder, iter_records
from milena.protocol.types import ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class Produced:
    """The position of a produced record. ``offset`` is -1 if the broker did not return it (acks=0). ``timestamp`` is
    ms. ``identity`` is the producer id and epoch that it was sent with."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    identity: ProducerIdAndEpoch | None = None


@dataclass(slots=True)
class PendingBatch:
    """Records of one partition that are sent together. ``deadline`` is monotonic seconds."""

    deadline: float
    builder: BatchBuilder = field(default_factory=BatchBuilder)
    timestamps: list[int] = field(default_factory=list)
    waiting: list[asyncio.Future[Produced]] = field(default_factory=list)
    uncertain: bool = False
    """An attempt was made whose outcome is unknown."""
    identity: ProducerIdAndEpoch | None = None
    """The producer id and epoch that it is encoded with."""

    @property
    def size(self) -> int:
        return self.builder.size

    def encode(
        self, codec: Codec, identity: ProducerIdAndEpoch | None, sequence: int, *, transactional: bool = False
    ) -> bytes:
        self.identity = identity
        if identity is None:
            return self.builder.build(codec=codec)
        return self.builder.build(
            codec=codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def succeed(self, topic: str, partition: int, base_offset: int, append_time: int) -> None:
        for index, future in enumerate(self.waiting):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp = append_time if append_time >= 0 else self.timestamps[index]
                future.set_result(Produced(topic, partition, offset, timestamp, self.identity))

    def halves(self) -> tuple[PendingBatch, PendingBatch]:
        """The same records in two batches, as Kafka's producer splits one that the broker finds too large."""
        batch = BatchView(memoryview(self.builder.build()))
        records = list(iter_records(batch))
        middle = len(records) // 2
        found = PendingBatch(self.deadline), PendingBatch(self.deadline)
        for index, record in enumerate(records):
            half = found[index >= middle]
            timestamp = self.timestamps[index]
            half.builder.append(timestamp=timestamp, key=record.key, value=record.value, headers=record.headers)
            half.timestamps.append(timestamp)
            half.waiting.append(self.waiting[index])
        return found

    def fail(self, error: Exception) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_exception(error)


@dataclass(slots=True)
class Lane:
    """One partition's queue of batches. ``sequence`` counts under ``identity``; one batch at a time is in flight."""

    topic: str
    partition: int
    batches: deque[PendingBatch] = field(default_factory=deque)
    identity: ProducerIdAndEpoch | None = None
    sequence: int = 0
    sending: bool = False

    def add(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: int,
        limit: int,
        deadline: float,
    ) -> tuple[asyncio.Future[Produced], bool]:
        """The record's future, and whether a new batch was started for it. ``limit``: uncompressed bytes of a batch."""
        extra = sum(len(name.encode()) + len(content or b"") + 10 for name, content in headers)
        # The first batch is closed to new records once it is being sent.
        closed = 1 if self.sending else 0
        batch = self.batches[-1] if len(self.batches) > closed else None
        begun = batch is None or not batch.builder.has_room_for(key, value, limit - extra)
        if batch is None or begun:
            batch = PendingBatch(deadline)
            self.batches.append(batch)
        batch.builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
        future: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()
        batch.timestamps.append(timestamp)
        batch.waiting.append(future)
        return future, begun
