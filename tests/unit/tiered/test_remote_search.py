"""ListOffsets by time finds in the tier what it finds on the disk, and what a look at every record finds."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.reading.remote_reader import RemoteLogReader
from milena.tiered.reading.remote_search import first_at_or_after
from tests.fixtures.properties import examples
from tests.unit.tiered.remote_reads import PARTITION, carry, lose_local, read
from tests.unit.tiered.tiered_log import Bench

Batches = list[list[int]]
"""The timestamps of the records of each batch."""
TIMES = st.integers(0, 12)
BATCHES = st.lists(st.lists(TIMES, min_size=1, max_size=5), min_size=1, max_size=14)


def fill(bench: Bench, batches: Batches, rolls: set[int]) -> list[int]:
    """Write the batches, with a roll behind some; returns the timestamps by offset."""
    log = bench.log
    for number, times in enumerate(batches):
        records = [Record(delta, time, None, bytes(300)) for delta, time in enumerate(times)]
        log.append_as_leader(memoryview(bytearray(build_batch(records, base_timestamp=0))), leader_epoch=LeaderEpoch(0))
        if number in rolls:
            log.roll()
    log.roll()
    log.set_high_watermark(log.log_end_offset)
    return [time for times in batches for time in times]


def by_looking_at_all(times: list[int], wanted: int, start: int) -> tuple[int, int] | None:
    return next(((offset, time) for offset, time in enumerate(times) if offset >= start and time >= wanted), None)


@settings(max_examples=examples(60), deadline=None)
@given(BATCHES, st.sets(st.integers(0, 13)), st.data())
@example([[5, 5, 5], [5, 5]], set(), None)
@example([[1, 7, 3], [7, 7], [2]], {0}, None)
def test_the_first_record_of_a_time_is_found_in_the_tier(
    batches: Batches, rolls: set[int], data: st.DataObject | None
) -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        times = fill(bench, batches, rolls)
        local = [log.offset_for_timestamp(wanted) for wanted in range(14)]
        await carry(bench, log)
        lose_local(log)
        for wanted in range(14):
            found = await first_at_or_after(reader, PARTITION, log, wanted)
            assert found == local[wanted]
            assert (found and (found.offset, found.timestamp)) == by_looking_at_all(times, wanted, 0)
        start = 0 if data is None else data.draw(st.integers(0, len(times)))
        log.increment_log_start(Offset(start))
        log.move_local_start(log.log_end_offset)
        for wanted in range(14):
            found = await first_at_or_after(reader, PARTITION, log, wanted)
            assert (found and (found.offset, found.timestamp)) == by_looking_at_all(times, wanted, start)

    read(scenario, index_interval_bytes=200)
