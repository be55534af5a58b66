"""Reading a log from the tier gives what its own disk would give; of another lineage nothing is read."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch, iter_batches
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.reading.remote_reader import RemoteLogReader
from milena.tiered.reading.remote_search import first_at_or_after
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from milena.tiered.store.remote_storage import RemoteRange, RemoteResourceNotFound, RemoteStorageError
from milena.tiered.work.deletion import update_of
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.remote_reads import (
    PARTITION,
    carry,
    contents,
    lineage,
    lose_local,
    read,
    served,
    transact,
    wanted,
    write,
)
from tests.unit.tiered.tiered_log import ROOT, Bench


def fill(bench: Bench, log: UnifiedLog, *, segments: int = 4, seed: int = 1) -> None:
    """Closed segments of batches of all sizes, before an empty active one; times that rise, by and large."""
    random = Random(seed)
    now = bench.runtime.clock.time_ms()
    for _ in range(segments):
        for _ in range(random.randint(1, 12)):
            values = [random.randbytes(random.randint(1, 3000)) for _ in range(random.randint(1, 4))]
            now += random.randint(-50, 100)
            log.append_as_leader(batch_of(*values, timestamp=now), leader_epoch=LeaderEpoch(0))
        log.roll()
    log.set_high_watermark(log.log_end_offset)


def without_files(bench: Bench) -> None:
    """The store has no files to send from, as an object store."""
    fetch = bench.store.fetch

    async def fetched(metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        return replace(await fetch(metadata, start, end), file=None)

    bench.store.fetch = fetched  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by_sendfile", [True, False])
def test_every_offset_reads_as_it_did_from_the_local_disk(seed: int, by_sendfile: bool) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log, random = bench.log, Random(seed)
        if not by_sendfile:
            without_files(bench)
        fill(bench, log, seed=seed)
        end = log.log_end_offset
        asked = [
            wanted(offset, random.choice([1, 100, 5000, 20_000, 1 << 20]), min_one=random.random() < 0.7)
            for offset in range(end)
        ]
        expected = [bytes(log.read_bytes(one.offset, one.max_bytes, upper=end, min_one=one.min_one)) for one in asked]
        await carry(bench, log)
        lose_local(log)
        assert [contents(await reader.read(PARTITION, log, one)) for one in asked] == expected

    read(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_times_are_found_as_they_were_on_the_local_disk(seed: int) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        fill(bench, log, seed=seed)
        first = bench.runtime.clock.time_ms()
        times = range(first - 100, first + 3000, 37)
        expected = [log.offset_for_timestamp(time) for time in times]
        await carry(bench, log)
        lose_local(log)
        assert [await first_at_or_after(reader, PARTITION, log, time) for time in times] == expected

    read(scenario)


def test_a_time_is_looked_for_behind_a_segment_that_has_it_only_before_the_log_start() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        for time in (5000, 1000, 2000, 4000, 6000):
            log.append_as_leader(batch_of(b"x", timestamp=time), leader_epoch=LeaderEpoch(0))
            if time in (1000, 4000):
                log.roll()
        log.set_high_watermark(log.log_end_offset)
        await carry(bench, log)
        lose_local(log)
        log.increment_log_start(Offset(1))
        log.move_local_start(Offset(4))
        found = await first_at_or_after(reader, PARTITION, log, 3000)
        assert found is not None
        assert (found.offset, found.timestamp) == (3, 4000)

    read(scenario)


def test_offsets_before_the_tier_begins_are_out_of_range() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        fill(bench, log)
        bench.role()
        lose_local(log)
        with pytest.raises(KafkaError) as failure:
            await reader.read(PARTITION, log, wanted(0))
        assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    read(scenario)


def test_a_segment_of_another_lineage_serves_what_is_ours_and_no_more() -> None:
    """kip405-3: offset 0 is only in a segment that went on in epoch 0 where this log is in epoch 1."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        write(other, 0, b"msg 0", b"msg 1")
        other.roll()
        write(log, 0, b"msg 0")
        log.roll()
        write(log, 1, b"msg 3")
        log.roll()
        write(log, 2, b"msg 4")
        await carry(bench, other)
        ours = await carry(bench, log)
        bench.store.deleting()
        await bench.metadata.update(
            update_of(bench.tier, ours[0], RemoteLogSegmentState.DELETE_SEGMENT_STARTED, UNFENCED)
        )
        lose_local(log)
        assert served(await reader.read(PARTITION, log, wanted(0))) == [(0, b"msg 0")]
        assert served(await reader.read(PARTITION, log, wanted(1))) == [(1, b"msg 3")]

    read(scenario)


def test_the_segment_on_the_lineage_as_a_whole_is_read() -> None:
    """kip405-5."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        write(log, 0, b"msg 0", b"msg 1", b"msg 2", b"msg 3")
        log.roll()
        write(log, 0, b"msg 4")
        write(log, 2, b"msg 7")
        log.roll()
        write(log, 2, b"msg 8")
        write(other, 0, b"msg 0", b"msg 1")
        write(other, 1, b"other 4", b"other 5")
        other.roll()
        await carry(bench, log)
        await carry(bench, other)
        lose_local(log)
        everything = [
            record for offset in (0, 4) for record in served(await reader.read(PARTITION, log, wanted(offset)))
        ]
        assert everything == [
            (0, b"msg 0"),
            (1, b"msg 1"),
            (2, b"msg 2"),
            (3, b"msg 3"),
            (4, b"msg 4"),
            (5, b"msg 7"),
        ]

    read(scenario)


def test_a_batch_across_the_end_of_an_epoch_is_refused() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        other.assign_epoch(LeaderEpoch(0), Offset(0))
        other.append_as_leader(batch_of(b"0", b"1", b"2"), leader_epoch=LeaderEpoch(0))
        other.roll()
        write(log, 0, b"0", b"1")
        write(log, 1, b"other 2")
        log.roll()
        await carry(bench, other)
        lose_local(log)
        with pytest.raises(CorruptBatch):
            await reader.read(PARTITION, log, wanted(0))

    read(scenario)


def test_holes_are_passed_over() -> None:
    """KAFKA-15388: a topic that was compacted before it was tiered. A segment says that it reaches to where the next
    one begins, its last batch may end before."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        write(log, 0, b"0", b"1")
        log.roll()
        log.truncate_fully_and_start_at(Offset(5), log_start=Offset(0))
        write(log, 0, b"5")
        other = lineage(bench, "other")
        write(other, 0, b"0", b"1")
        other.roll()
        await carry(bench, other, lambda metadata: replace(metadata, end_offset=Offset(3)))
        holed = lineage(bench, "holed")
        holed.truncate_fully_and_start_at(Offset(4), log_start=Offset(0))
        write(holed, 0, b"4")
        holed.roll()
        await carry(bench, holed)
        log.epochs.truncate_from_end(Offset(0))
        log.epochs.assign(LeaderEpoch(0), Offset(0))
        log.move_local_start(Offset(5))
        assert served(await reader.read(PARTITION, log, wanted(2))) == [(4, b"4")]
        assert served(await reader.read(PARTITION, log, wanted(1))) == [(1, b"1")]

    read(scenario)


def test_after_the_last_hole_comes_the_local_log() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log, other = bench.log, lineage(bench, "other")
        write(log, 0, b"0", b"1", b"2")
        log.roll()
        write(other, 0, b"0", b"1")
        other.roll()
        await carry(bench, other, lambda metadata: replace(metadata, end_offset=Offset(2)))
        lose_local(log)
        assert await reader.read(PARTITION, log, wanted(2)) is None

    read(scenario)


@pytest.mark.parametrize("index", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [b"", b"no index", None])
def test_without_a_good_index_a_segment_is_searched_from_its_beginning(index: str, damage: bytes | None) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        fill(bench, log)
        end = log.log_end_offset
        expected = [bytes(log.read_bytes(Offset(offset), 5000, upper=end, min_one=True)) for offset in range(end)]
        await carry(bench, log)
        lose_local(log)
        disk = bench.runtime.tier_disk
        for path in list(bench.world.tier.files):
            if path.startswith(ROOT) and path.endswith(index):
                disk.remove(path)
                if damage is not None:
                    disk.write_atomic(path, damage)
        assert [contents(await reader.read(PARTITION, log, wanted(offset, 5000))) for offset in range(end)] == expected

    read(scenario)


def test_a_lost_log_is_an_error() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        fill(bench, log)
        await carry(bench, log)
        lose_local(log)
        for path in list(bench.world.tier.files):
            if path.endswith(".log"):
                bench.runtime.tier_disk.remove(path)
        with pytest.raises(RemoteResourceNotFound):
            await reader.read(PARTITION, log, wanted(0))

    read(scenario)


def test_a_cut_log_is_an_error() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        fill(bench, log)
        [first, *_] = await carry(bench, log)
        lose_local(log)
        for path in bench.world.tier.files:
            if path.endswith(".log"):
                file = bench.runtime.tier_disk.open(path)
                file.truncate(file.size // 2)
                file.close()
        with pytest.raises(RemoteStorageError):
            await reader.read(PARTITION, log, wanted(first.end_offset))

    read(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_readers_of_committed_records_hear_of_aborted_transactions_wherever_their_markers_are(seed: int) -> None:
    """A14: some markers are in the same segment, some in a later one, with segments without any in between, some in
    the local log."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log, random = bench.log, Random(seed)
        transact(log, random)
        end = log.log_end_offset
        log.set_high_watermark(end)
        expected = {
            offset: {(one.producer_id, one.first_offset) for one in log.aborted_transactions(Offset(offset), end)}
            for offset in range(end)
        }
        await carry(bench, log)
        lose_local(log)
        for offset in range(log.local_log_start_offset):
            found = await reader.read(PARTITION, log, wanted(offset, random.choice([1, 1 << 20]), committed=True))
            assert found is not None
            assert found.aborted is not None
            aborted = set(found.aborted)
            last = max(batch.last_offset for batch in iter_batches(memoryview(contents(found))))
            due = {one for one in expected[offset] if one[1] <= last}
            assert due <= aborted <= expected[offset]

    read(scenario, index_interval_bytes=0)
