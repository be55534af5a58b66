"""A log in the tier, and reads of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.network import FileRange
from milena.storage.log.loading import open_log
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.reading.remote_reader import RemoteLogReader, RemoteRead, RemoteRecords
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.work.copying import prepare
from milena.tiered.work.deletion import update_of
from tests.unit.storage.logs import batch_of, marker
from tests.unit.tiered.tiered_log import TOPIC_ID, Bench, on_bench

PARTITION = TopicIdPartition(TOPIC_ID, "t", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def contents(found: RemoteRecords | None) -> bytes:
    assert found is not None
    if isinstance(found.records, FileRange):
        return found.records.handle.pread(found.length, found.records.position)
    return bytes(found.records)


def wanted(offset: int, max_bytes: int = 1 << 20, *, min_one: bool = True, committed: bool = False) -> RemoteRead:
    return RemoteRead(Offset(offset), max_bytes, min_one, Offset(1 << 40), committed)


def served(found: RemoteRecords | None) -> list[tuple[int, bytes]]:
    """(offset, value) of the records of whole batches."""
    return [
        (batch.base_offset + record.offset_delta, record.value or b"")
        for batch in iter_batches(memoryview(contents(found)))
        for record in iter_records(batch)
    ]


async def carry(
    bench: Bench,
    log: UnifiedLog,
    change: Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata] = lambda metadata: metadata,
) -> list[RemoteLogSegmentMetadata]:
    """Put all closed segments of ``log`` into the tier."""
    role = bench.role()
    carried = []
    for index in range(len(log.segments) - 1):
        prepared = prepare(bench.tier, role, log, log.segments[index], log.segments[index + 1].base_offset)
        metadata = change(prepared.metadata)
        await bench.metadata.add(metadata)
        await bench.store.copy(metadata, prepared.files)
        await bench.metadata.update(update_of(bench.tier, metadata, FINISHED, UNFENCED))
        carried.append(metadata)
    return carried


def lose_local(log: UnifiedLog) -> None:
    """All closed segments leave the disk."""
    log.set_high_watermark(max(log.high_watermark, log.sealed_end))
    log.raise_highest_offset_in_remote_storage(Offset(log.sealed_end - 1))
    log.move_local_start(log.sealed_end)
    log.drop(log.segments.take_first(len(log.segments) - 1))


def lineage(bench: Bench, name: str) -> UnifiedLog:
    """An empty log of the same partition, as another broker may have it."""
    log = bench.log
    folder = f"/data/{name}-0"
    return open_log(
        log.context,
        folder,
        "t",
        0,
        TOPIC_ID,
        log.config,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        clean=True,
    )


def write(log: UnifiedLog, epoch: int, *values: bytes) -> None:
    """One batch for each value."""
    if log.epochs.latest != epoch:
        log.assign_epoch(LeaderEpoch(epoch), log.log_end_offset)
    for value in values:
        log.append_as_leader(batch_of(value), leader_epoch=LeaderEpoch(epoch))


def read(scenario: Callable[[Bench, RemoteLogReader], Awaitable[None]], **config: Any) -> None:
    async def run(bench: Bench) -> None:
        await scenario(bench, RemoteLogReader(bench.tier))

    on_bench(run, **config)


def transact(log: UnifiedLog, random: Random) -> None:
    """Transactions of three producers, that are committed, or aborted; one is aborted in the active segment."""
    log.assign_epoch(LeaderEpoch(0), Offset(0))
    sequences, active = {1: 0, 2: 0, 3: 0}, set[int]()

    def end(producer: int, *, commit: bool) -> None:
        data = marker((producer, 0), commit=commit)
        log.append_as_leader(data, leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
        active.discard(producer)

    for _ in range(8):
        for _ in range(random.randint(1, 5)):
            producer = random.randint(1, 3)
            if producer in active and random.random() < 0.4:
                end(producer, commit=random.random() < 0.3)
                continue
            batch = batch_of(b"x", producer=(producer, 0, sequences[producer]), transactional=True)
            log.append_as_leader(batch, leader_epoch=LeaderEpoch(0))
            sequences[producer] += 1
            active.add(producer)
        log.roll()
    for producer in sorted(active):
        end(producer, commit=False)
