"""Objects in the tier may be damaged: a read fails, and never continues silently with later records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from milena.lab.world.power import Inode
from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import CorruptBatch, iter_batches
from milena.protocol.types import LeaderEpoch
from milena.tiered.reading.remote_reader import RemoteLogReader
from milena.tiered.reading.remote_search import first_at_or_after
from milena.tiered.store.remote_storage import RemoteStorageError
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.remote_reads import PARTITION, carry, lose_local, read, served, wanted
from tests.unit.tiered.tiered_log import ROOT, Bench

BATCHES, RECORDS = 6, 3
"""Batches of a segment, and records of a batch."""
SEGMENT = BATCHES * RECORDS
INTERVALS = pytest.mark.parametrize("interval", [1, 1 << 20], ids=["each batch indexed", "none indexed"])


def fill(bench: Bench, segments: int = 3) -> None:
    for number in range(segments * BATCHES):
        values = [b"%d" % (number * RECORDS + at) for at in range(RECORDS)]
        batch = batch_of(*values, timestamp=1000 * number)
        bench.log.append_as_leader(batch, leader_epoch=LeaderEpoch(0))
        if number % BATCHES == BATCHES - 1:
            bench.log.roll()
    bench.log.set_high_watermark(bench.log.log_end_offset)


def stored(bench: Bench, suffix: str = ".log") -> list[Inode]:
    """The files of the tier's segments, in order."""
    files = bench.world.tier.files
    paths = [path for path in files if path.startswith(ROOT) and path.endswith(suffix)]
    return [files[path] for path in sorted(paths, key=lambda path: PurePosixPath(path).name)]


def flip_base_offset(log: Inode, batch: int, bit: int) -> None:
    position = sum(one.size_in_bytes for one in list(iter_batches(memoryview(log.data)))[:batch])
    (base,) = struct.unpack_from(">Q", log.data, position)
    struct.pack_into(">Q", log.data, position, base ^ 1 << bit)


def swap_logs(bench: Bench) -> None:
    first, second, _ = stored(bench)
    first.data, second.data = second.data, first.data


def cut_log(bench: Bench) -> None:
    log = stored(bench)[0]
    del log.data[len(log.data) // 2 :]


async def outcome(bench: Bench, reader: RemoteLogReader, offset: int) -> int | str:
    """The first offset that a consumer of ``offset`` sees, or that it is refused."""
    try:
        found = await reader.read(PARTITION, bench.log, wanted(offset, 1))
    except (CorruptBatch, KafkaError, RemoteStorageError):
        return "refused"
    return "nothing" if found is None else max(offset, served(found)[0][0])


@INTERVALS
@pytest.mark.parametrize("bit", [0, 1, 2, 3, 4, 5, 20, 62, 63])
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_flipped_base_offset_is_never_passed_over(batch: int, bit: int, interval: int) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        fill(bench)
        await carry(bench, bench.log)
        lose_local(bench.log)
        flip_base_offset(stored(bench)[1], batch, bit)
        for offset in range(3 * SEGMENT):
            assert await outcome(bench, reader, offset) in (offset, "refused"), offset
        damaged = SEGMENT + batch * RECORDS
        assert {await outcome(bench, reader, damaged + at) for at in range(RECORDS)} == {"refused"}
        assert await outcome(bench, reader, SEGMENT - 1) == SEGMENT - 1

    read(scenario, index_interval_bytes=interval)


@INTERVALS
@pytest.mark.parametrize("damage", [swap_logs, cut_log])
def test_the_log_of_another_segment_is_refused(damage: Callable[[Bench], None], interval: int) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        fill(bench)
        await carry(bench, bench.log)
        lose_local(bench.log)
        damage(bench)
        for offset in range(3 * SEGMENT):
            assert await outcome(bench, reader, offset) in (offset, "refused"), offset
        assert await outcome(bench, reader, SEGMENT - 1) == "refused"
        with pytest.raises((CorruptBatch, RemoteStorageError)):
            await first_at_or_after(reader, PARTITION, bench.log, 1000 * (BATCHES - 1))

    read(scenario, index_interval_bytes=interval)


def test_the_index_of_another_segment_does_not_mislead_a_read() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        fill(bench)
        await carry(bench, bench.log)
        lose_local(bench.log)
        first, second, _ = stored(bench, ".index")
        first.data, second.data = second.data, bytearray(first.data[:-8])
        for offset in range(3 * SEGMENT):
            assert await outcome(bench, reader, offset) in (offset, "refused"), offset

    read(scenario, index_interval_bytes=1)
