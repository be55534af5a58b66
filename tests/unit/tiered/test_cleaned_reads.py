"""A log of which the tier holds cleaned segments is read as if its own disk held them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.producer_snapshot import decode_snapshot
from milena.storage.log.recovery import replay_producers
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.producer_state import ProducerState
from milena.tiered.aux_state.aux_state import EndOfEpoch, LocalStart, build_aux_state
from milena.tiered.reading.remote_reader import RemoteLogReader
from milena.tiered.reading.remote_search import first_at_or_after
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import IndexType, RemoteRange, RemoteResourceNotFound, SegmentFiles
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.cleaned_segments import carry_cleaned, clean, copy_of, records_in, retire
from tests.unit.tiered.remote_reads import PARTITION, carry, contents, lose_local, read, transact, wanted
from tests.unit.tiered.tiered_log import Bench

LATER = 1 << 50
"""ms: every horizon has passed then."""


def write_keys(bench: Bench, random: Random, *, segments: int = 8) -> None:
    """Few keys, so that most records go; tombstones; producers, whose last batches stay as empty ones; two epochs."""
    log, now, sequences = bench.log, bench.runtime.clock.time_ms(), {1: 0, 2: 0, 3: 0, 4: 0}
    for number in range(segments):
        for _ in range(random.randint(1, 6)):
            count = random.randint(1, 4)
            keys = [b"%d" % random.randint(1, 4) for _ in range(count)]
            values = [None if random.random() < 0.2 else random.randbytes(random.randint(1, 200)) for _ in keys]
            now += random.randint(-50, 100)
            producer = random.randint(0, 4)
            stamp = (producer, 0, sequences[producer]) if producer else None
            batch = batch_of(*values, keys=keys, timestamp=now, producer=stamp)  # type: ignore[arg-type]
            log.append_as_leader(batch, leader_epoch=LeaderEpoch(number // 5))
            if producer:
                sequences[producer] += count
        log.roll()
    log.set_high_watermark(log.log_end_offset)


async def consumed(reader: RemoteLogReader, log: UnifiedLog, start: int, max_bytes: int) -> list[int]:
    """The offsets of the records that a consumer finds from ``start`` on, up to the local log."""
    position, found = start, list[int]()
    while position < log.local_log_start_offset:
        records = await reader.read(PARTITION, log, wanted(position, max_bytes))
        if records is None:
            break
        for batch in iter_batches(memoryview(contents(records))):
            found += [offset for record in iter_records(batch) if (offset := offset_of(batch, record)) >= position]
            position = batch.next_offset
    return found


async def replaced(bench: Bench, *, delete: bool = True) -> UnifiedLog:
    """The tier holds what a cleaning of the log has left, and the local log nothing; returns a log of the former."""
    log = bench.log
    sources = await carry(bench, log)
    cleaned = copy_of(bench, log, "cleaned")
    for now in (bench.runtime.clock.time_ms(), LATER):  # the second one takes the tombstones
        clean(cleaned, now=now)
    await carry_cleaned(bench, cleaned, sources)
    if delete:
        await retire(bench, sources)
    lose_local(log)
    return cleaned


@pytest.mark.parametrize("delete", [True, False], ids=["sources deleted", "sources there"])
@pytest.mark.parametrize("seed", range(6))
def test_a_fetch_in_a_gap_gets_the_next_record(seed: int, delete: bool) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        write_keys(bench, Random(seed))
        cleaned = await replaced(bench, delete=delete)
        left = [offset for offset, _, _ in records_in(cleaned)]
        assert len(left) <= 4
        for start in range(log.log_end_offset):
            for max_bytes in (1, 300, 1 << 20):
                assert await consumed(reader, log, start, max_bytes) == [one for one in left if one >= start]

    read(scenario, index_interval_bytes=100)


@pytest.mark.parametrize("seed", range(6))
def test_times_are_found_among_the_records_that_are_left(seed: int) -> None:
    """Also where DeleteRecords has put the log start into a cleaned segment."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log, random = bench.log, Random(seed)
        write_keys(bench, random)
        cleaned = await replaced(bench)
        left = records_in(cleaned)
        for start in (0, *sorted(random.sample(range(log.log_end_offset), 3))):
            log.increment_log_start(Offset(start))
            for time in sorted({time + delta for _, _, time in left for delta in (-1, 0, 1)}):
                found = await first_at_or_after(reader, PARTITION, log, time)
                expected = [(offset, at) for offset, _, at in left if offset >= start and at >= time]
                assert (found and (found.offset, found.timestamp)) == (expected[0] if expected else None)
            left_now = [offset for offset, _, _ in left if offset >= start]
            assert await consumed(reader, log, start, 1 << 20) == left_now

    read(scenario, index_interval_bytes=100)


def test_segments_of_which_nothing_is_left_are_passed_over_unread() -> None:
    """Their files are empty; there may be thousands of them in a row."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        write_keys(bench, Random(1), segments=5)
        sources = await carry(bench, log)
        empty = copy_of(bench, log, "empty")
        last = empty.segments[4].base_offset
        await _carry_nothing(bench, empty, sources)
        await retire(bench, sources[:4])
        lose_local(log)
        fetched = _count_fetches(bench)
        records = await reader.read(PARTITION, log, wanted(0))
        assert next(iter_batches(memoryview(contents(records)))).base_offset == last
        assert {segment.start_offset for segment in fetched} == {last}
        assert await first_at_or_after(reader, PARTITION, log, 0) is not None

    read(scenario)


async def _carry_nothing(bench: Bench, log: UnifiedLog, sources: list[RemoteLogSegmentMetadata]) -> None:
    """All but the last segment are replaced by empty ones."""
    disk = bench.runtime.disk
    for segment in list(log.segments)[:4]:
        for suffix in (".log", ".index", ".timeindex"):
            disk.write_atomic(f"{log.folder}/{segment.base_offset:020}{suffix}", b"")
        segment.size = 0
    store = bench.store.copy

    async def copy(metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        assert metadata.size == 0 or metadata.start_offset == log.segments[4].base_offset
        return await store(metadata, files)

    bench.store.copy = copy  # type: ignore[method-assign]
    await carry_cleaned(bench, log, sources)


def _count_fetches(bench: Bench) -> list[RemoteLogSegmentMetadata]:
    fetch, fetched = bench.store.fetch, list[RemoteLogSegmentMetadata]()

    async def counted(metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        fetched.append(metadata)
        return await fetch(metadata, start, end)

    bench.store.fetch = counted  # type: ignore[method-assign]
    return fetched


def _before_first_fetch(bench: Bench, event: Callable[[], Awaitable[None]]) -> None:
    fetch, left = bench.store.fetch, [event]

    async def fetched(metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        if left:
            await left.pop()()
        return await fetch(metadata, start, end)

    bench.store.fetch = fetched  # type: ignore[method-assign]


@pytest.mark.parametrize("what", ["fetch", "time"])
def test_a_reader_whose_segment_is_replaced_and_deleted_is_sent_on(what: str) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        write_keys(bench, Random(2))
        sources = await carry(bench, log)
        cleaned = copy_of(bench, log, "cleaned")
        clean(cleaned, now=bench.runtime.clock.time_ms())
        left = records_in(cleaned)
        lose_local(log)

        async def replace() -> None:
            await carry_cleaned(bench, cleaned, sources)
            await retire(bench, sources)

        _before_first_fetch(bench, replace)
        if what == "fetch":
            assert await consumed(reader, log, 0, 1 << 20) == [offset for offset, _, _ in left]
        else:
            found = await first_at_or_after(reader, PARTITION, log, 0)
            assert found is not None and found.offset == left[0][0]

    read(scenario, index_interval_bytes=100)


@pytest.mark.parametrize("seed", range(8))
def test_aborted_transactions_are_returned_though_a_segment_is_deleted_while_they_are_read(seed: int) -> None:
    """A transaction index that is gone looks like one that there never was."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log, random = bench.log, Random(seed)
        transact(log, random)
        end = log.log_end_offset
        log.set_high_watermark(end)
        expected = {(one.producer_id, one.first_offset) for one in log.aborted_transactions(Offset(0), end)}
        sources = await carry(bench, log)
        same = copy_of(bench, log, "same")
        lose_local(log)
        fetch_index, left = bench.store.fetch_index, [random.randint(0, 2)]

        async def fetched(metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
            if index is IndexType.TRANSACTION:
                left[0] -= 1
                if left[0] == -1:
                    await carry_cleaned(bench, same, sources)
                    await retire(bench, sources)
            return await fetch_index(metadata, index)

        bench.store.fetch_index = fetched  # type: ignore[method-assign]
        found = await reader.read(PARTITION, log, wanted(0, committed=True))
        assert found is not None and found.aborted is not None
        last = max(batch.last_offset for batch in iter_batches(memoryview(contents(found))))
        assert {one for one in expected if one[1] <= last} <= set(found.aborted) <= expected

    read(scenario, index_interval_bytes=0)


@pytest.mark.parametrize("seed", range(8))
def test_a_follower_that_begins_within_a_cleaned_segment_gets_epochs_and_producers(seed: int) -> None:
    """What a producer wrote last before that offset may be gone, if it wrote later, too: once the follower has that, it
    knows what its leader knows."""

    async def scenario(bench: Bench, _reader: RemoteLogReader) -> None:
        log = bench.log
        write_keys(bench, Random(seed))
        starts = [segment.base_offset for segment in log.segments][1:]
        whole = copy_of(bench, log, "whole")
        await replaced(bench)

        async def ask(epoch: LeaderEpoch) -> EndOfEpoch:
            return EndOfEpoch(*log.leader_epoch_end_offset(epoch))

        for start in starts:
            place = LocalStart(start, log.epochs.epoch_for_offset(start), Offset(0))
            state = await build_aux_state(bench.tier, PARTITION, place, ask)
            assert set(state.epochs) <= set(log.epochs.entries)
            assert [one for one in state.epochs if one.start < start] == [
                one for one in log.epochs.entries if one.start < start
            ]
            assert _last(_caught_up(state.producers, whole, start)) == _last(whole.producers)

    read(scenario, index_interval_bytes=100)


def _caught_up(snapshot: bytes, log: UnifiedLog, start: Offset) -> ProducerState:
    state = ProducerState()
    state.load(decode_snapshot(snapshot))
    replay_producers(log.segments, state, start, log.log_end_offset)
    return state


def _last(state: ProducerState) -> dict[int, tuple[int, int]]:
    return {producer: (entry.last_offset, entry.last_sequence) for producer, entry in state}


def test_what_is_lost_is_an_error_all_the_same() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        write_keys(bench, Random(3))
        sources = await carry(bench, log)
        lose_local(log)

        async def lose() -> None:
            await bench.store.delete(sources[0])

        _before_first_fetch(bench, lose)
        with pytest.raises(RemoteResourceNotFound):
            await reader.read(PARTITION, log, wanted(0))
        await retire(bench, sources)
        with pytest.raises(KafkaError) as gone:
            await reader.read(PARTITION, log, wanted(0))
        assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    read(scenario)
