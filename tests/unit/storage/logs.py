"""Logs for tests, with a real folder, a manual clock and batches of a few records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.protocol.records.batch import NO_SEQUENCE, Codec, iter_batches
from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_batch
from milena.protocol.records.records import Record, build_batch, iter_records
from milena.protocol.records.validation import Origin
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from milena.runtime.clock import Timer
from milena.runtime.disk import Disk
from milena.runtime.files import RealDisk
from milena.storage.log.context import LogContext
from milena.storage.log.loading import open_log
from milena.storage.log.unified_log import AppendInfo, UnifiedLog

TOPIC_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
START_MS = 1_700_000_000_000


class HandClock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = START_MS

    def time_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class Events:
    """An EventLog that records events for tests."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.seen.append((event, fields))

    warning = error = info

    def named(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.seen if name == event]


@cache
def default_config() -> TopicConfig:
    return TopicConfig.effective(NodeConfig.of(), {})


class LogFolder:
    """Opens one log in its own folder, as often as a test needs."""

    def __init__(self, path: object, **config: Any) -> None:
        self.tiered = False
        """Whether the broker has a remote tier, when the log is opened next."""
        self.path = f"{path}/topic-0"
        self.clock = HandClock()
        self.disk: Disk = RealDisk()
        self.config: TopicConfig = replace(default_config(), **config)
        self.events = Events()
        self.context = LogContext(self.disk, self.clock, self.events)

    def open(self, *, clean: bool = True, recovery_point: int = 0, log_start: int = 0) -> UnifiedLog:
        self.events = Events()
        self.context = LogContext(self.disk, self.clock, self.events, tiered=self.tiered)
        return open_log(
            self.context,
            self.path,
            "topic",
            0,
            TOPIC_ID,
            self.config,
            recovery_point=Offset(recovery_point),
            log_start_offset=Offset(log_start),
            clean=clean,
        )

    def names(self) -> list[str]:
        return self.disk.list(self.path)


def batch_of(
    *values: bytes,
    timestamp: int = START_MS,
    keys: Sequence[bytes | None] = (),
    producer: tuple[int, int, int] | None = None,
    codec: Codec = Codec.NONE,
    transactional: bool = False,
    **header: Any,
) -> memoryview:
    """A batch of a client; ``producer`` is (id, epoch, base sequence). The n-th record is n ms later than the first."""
    producer_id, epoch, sequence = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    records = [
        Record(index, index, keys[index] if keys else None, value) for index, value in enumerate(values or (b"value",))
    ]
    return memoryview(
        bytearray(
            build_batch(
                records,
                base_timestamp=timestamp,
                codec=codec,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=sequence,
                transactional=transactional,
                **header,
            )
        )
    )


def marker(producer: tuple[int, int], *, commit: bool, timestamp: int = START_MS) -> memoryview:
    """A control batch of a transaction coordinator that ends a transaction."""
    record = CommitMarker(coordinator_epoch=0) if commit else AbortMarker(coordinator_epoch=0)
    data = control_batch(
        [record],
        timestamp=timestamp,
        producer_id=ProducerId(producer[0]),
        producer_epoch=ProducerEpoch(producer[1]),
        transactional=True,
    )
    return memoryview(bytearray(data))


def append(
    log: UnifiedLog, *values: bytes, epoch: int | None = None, origin: Origin = Origin.CLIENT, **batch: Any
) -> AppendInfo:
    """Append a batch in leader epoch ``epoch``; without one in the latest epoch of the log."""
    data = batch_of(*values, **batch)
    epoch = log.epochs.latest or 0 if epoch is None else epoch
    return log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch), origin=origin)


def values_of(log: UnifiedLog, start: int = 0, upper: int | None = None, *, max_bytes: int = 1 << 20) -> list[bytes]:
    """All values from offset ``start``, read by several fetches like those of a consumer."""
    values: list[bytes] = []
    offset = Offset(start)
    bound = log.log_end_offset if upper is None else Offset(upper)
    while offset < bound:
        piece = log.read_bytes(offset, max_bytes, upper=bound, min_one=True)
        assert len(piece) > 0, f"nothing at {offset} before {bound}"
        for batch in iter_batches(piece):
            for record in iter_records(batch):
                if batch.base_offset + record.offset_delta >= start and not batch.is_control:
                    values.append(record.value or b"")
            offset = batch.next_offset
    return values
