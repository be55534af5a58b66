"""Aborted transactions of segments in the tier that are partly on another lineage, while the log continues
meanwhile (docs/kafka-semantics.md: Aborted transactions)."""

from __future__ import annotations

from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.reading.remote_reader import RemoteLogReader, RemoteRead
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.work.deletion import update_of
from tests.unit.storage.logs import batch_of, marker
from tests.unit.tiered.remote_reads import PARTITION, carry, lineage, lose_local, read, wanted, write
from tests.unit.tiered.tiered_log import Bench

A, B, C = 7, 8, 9
"""Producers."""


def begin(log: UnifiedLog, producer: int, *, epoch: int = 0, sequence: int = 0) -> None:
    """One record of a transaction."""
    enter(log, epoch)
    data = batch_of(b"x", producer=(producer, 0, sequence), transactional=True)
    log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch))


def abort(log: UnifiedLog, producer: int, *, epoch: int = 0, commits: bool = False) -> None:
    enter(log, epoch)
    data = marker((producer, 0), commit=commits)
    log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch), origin=Origin.COORDINATOR)


def commit(log: UnifiedLog, producer: int, *, epoch: int = 0) -> None:
    abort(log, producer, epoch=epoch, commits=True)


def enter(log: UnifiedLog, epoch: int) -> None:
    if log.epochs.latest != epoch:
        log.assign_epoch(LeaderEpoch(epoch), log.log_end_offset)


async def lose_copy(bench: Bench, segment: RemoteLogSegmentMetadata) -> None:
    """``segment`` is on its way out of the tier and not read any more."""
    await bench.metadata.update(update_of(bench.tier, segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, UNFENCED))


async def only_in_a_foreign_segment(bench: Bench, other: UnifiedLog) -> None:
    """What the bench's log has of its first segment is served from the one of ``other``."""
    other.roll()
    await carry(bench, other)
    [first, *_] = await carry(bench, bench.log)
    await lose_copy(bench, first)
    lose_local(bench.log)


async def aborted_in(
    reader: RemoteLogReader, log: UnifiedLog, offset: int, max_bytes: int = 1 << 20
) -> set[tuple[int, int]]:
    """Return (producer, first offset) of the aborted transactions in the answer to a reader of committed records."""
    found = await reader.read(PARTITION, log, wanted(offset, max_bytes, committed=True))
    assert found is not None
    assert found.aborted is not None
    return set(found.aborted)


def test_what_was_aborted_in_another_lineage_only_is_committed_here() -> None:
    """The transaction began in the epoch that both have."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        for each in (other, log):
            begin(each, A)
        abort(other, A)
        log.roll()
        commit(log, A, epoch=1)
        log.roll()
        write(log, 2, b"later")
        await only_in_a_foreign_segment(bench, other)
        assert await aborted_in(reader, log, 0) == set()
        assert await aborted_in(reader, log, 1) == set()

    read(scenario)


def test_what_is_stable_in_another_lineage_does_not_end_the_search() -> None:
    """There the transaction was committed, and another one aborted later; here it was aborted."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        for each in (other, log):
            begin(each, A)
        commit(other, A)
        begin(other, B)
        abort(other, B)
        log.roll()
        abort(log, A, epoch=1)
        log.roll()
        write(log, 2, b"later")
        await only_in_a_foreign_segment(bench, other)
        assert await aborted_in(reader, log, 0) == {(A, 0)}

    read(scenario)


def test_transactions_aborted_before_the_lineages_diverge_are_found_on_either() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        for each in (other, log):
            begin(each, A)
            begin(each, B)
            abort(each, A)
        abort(other, B)
        log.roll()
        begin(log, C, epoch=1)
        commit(log, B, epoch=1)
        abort(log, C, epoch=1)
        log.roll()
        write(log, 2, b"later")
        await only_in_a_foreign_segment(bench, other)
        assert await aborted_in(reader, log, 0) == {(A, 0)}
        assert await aborted_in(reader, log, 3) == {(C, 3)}

    read(scenario)


def test_a_marker_behind_the_last_stable_offset_is_heard_of_where_its_segment_is_read_in_part() -> None:
    """A replica that has just begun to lead may still call less of a copied segment stable."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        begin(log, A)
        begin(log, B)
        abort(log, A)
        commit(log, B)
        log.roll()
        await carry(bench, log)
        lose_local(log)
        found = await reader.read(PARTITION, log, RemoteRead(Offset(0), 1 << 20, True, Offset(1), committed=True))
        assert found is not None
        assert found.aborted == ((A, 0),)

    read(scenario)


def test_a_segment_that_is_copied_between_two_reads_is_heard_of() -> None:
    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        log = bench.log
        begin(log, A)
        log.roll()
        await carry(bench, log)
        lose_local(log)
        abort(log, A)
        log.roll()
        write(log, 1, b"later")
        assert await aborted_in(reader, log, 0) == {(A, 0)}, "the marker is on the disk"
        await carry(bench, log)
        lose_local(log)
        assert not log.aborted_transactions(Offset(0), log.log_end_offset)
        assert await aborted_in(reader, log, 0) == {(A, 0)}, "the marker is in the tier"

    read(scenario)


def test_with_another_leader_the_segments_of_its_lineage_are_heard_of() -> None:
    """All are known from the beginning, the log only takes another way through them."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        other, log = lineage(bench, "other"), bench.log
        for each in (other, log):
            begin(each, A)
            each.roll()
        abort(other, A, epoch=2)
        other.roll()
        write(log, 1, b"dead")
        log.roll()
        await carry(bench, other)
        await carry(bench, log)
        assert await aborted_in(reader, log, 0) == set()
        log.truncate_to(Offset(1))
        abort(log, A, epoch=2)
        log.roll()
        lose_local(log)
        assert await aborted_in(reader, log, 0) == {(A, 0)}

    read(scenario)


def test_what_a_follower_has_caught_up_with_is_heard_of() -> None:
    """It knew the segments that its leader copied before it had their records."""

    async def scenario(bench: Bench, reader: RemoteLogReader) -> None:
        leaders, log = lineage(bench, "leaders"), bench.log
        begin(leaders, A)
        leaders.roll()
        abort(leaders, A)
        leaders.roll()
        begin(log, A)
        log.roll()
        lose_local(log)
        bench.role()
        await carry(bench, leaders)
        assert await aborted_in(reader, log, 0) == set()
        abort(log, A)
        log.roll()
        lose_local(log)
        assert await aborted_in(reader, log, 0) == {(A, 0)}

    read(scenario)
