"""Which segments leave the tier: the rules of docs/kafka-semantics.md: Expiration, one by one, and beside a dumb
oracle."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lineage import filtered, is_within_leader_epochs
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.segments.tiered_offsets import RemoteEnd, find_highest_remote_offset, remote_log_start
from milena.tiered.work.retention import Expiration, LogView, Validity, decide, limits, unfinished_copies
from tests.unit.tiered.dumb_tier import DumbTier
from tests.unit.tiered.segments import EPOCHS_OF_KIP405_3, KIP405_3, epochs, offsets, segment, update

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
NOW = 10_000
SIZE = 1000
"""Bytes of a segment with ten offsets."""


def finished(number: int, start: int, end: int, starts: Mapping[int, int], time: int = 0) -> RemoteLogSegmentMetadata:
    return segment(number, start, end, starts, state=FINISHED, max_timestamp_ms=time)


TENS = tuple(finished(number, 10 * number, 10 * number + 9, {0: 10 * number}, time=number) for number in range(5))
"""Five segments of one epoch, with ten offsets each."""


def view(starts: Mapping[int, int] | None = None, **values: int) -> LogView:
    given = {"log_start": 0, "log_end": 100, "local_only_size": 0, "retention_ms": -1, "retention_bytes": -1, **values}
    return LogView(
        epochs({0: 0} if starts is None else starts),
        Offset(given["log_start"]),
        Offset(given["log_end"]),
        given["local_only_size"],
        given["retention_ms"],
        given["retention_bytes"],
    )


def outcome(expiration: Expiration) -> tuple[list[int], int | None, list[int]]:
    """Numbers of the segments that go, the new log start, numbers of those that dangle."""
    return [one.id.int for one in expiration.delete], expiration.log_start, [one.id.int for one in expiration.dangling]


def expire(*segments: RemoteLogSegmentMetadata, log: LogView, copying: tuple[int, ...] = ()) -> tuple[object, ...]:
    return outcome(decide(DumbTier(*segments), log, now=NOW, copying={UUID(int=one) for one in copying}))


def test_without_limits_everything_stays() -> None:
    assert expire(*TENS, log=view()) == ([], None, [])


@pytest.mark.parametrize(("age", "deleted"), [(NOW, 0), (NOW - 1, 1), (NOW - 2, 2), (1, 5)])
def test_segments_older_than_the_limit_go_and_those_just_as_old_stay(age: int, deleted: int) -> None:
    """To the millisecond as locally (KAFKA-20091)."""
    start = 10 * deleted if deleted else None
    assert expire(*TENS, log=view(retention_ms=age)) == (list(range(deleted)), start, [])


def test_a_limit_that_reaches_back_to_the_first_millisecond_holds_all_but_what_has_no_time() -> None:
    timeless = (replace(TENS[0], max_timestamp_ms=-1), *TENS[1:])
    assert expire(*timeless, log=view(retention_ms=NOW)) == ([0], 10, [])
    assert expire(*timeless, log=view(retention_ms=NOW + 1)) == ([], None, [])


def test_a_timestamp_in_the_future_holds_its_segment_and_all_after_it_until_its_time_has_come() -> None:
    """KAFKA-20609, in the tier as on the disk."""
    late = (*TENS[:2], replace(TENS[2], max_timestamp_ms=2 * NOW), *TENS[3:])
    assert expire(*late, log=view(retention_ms=1))[:2] == ([0, 1], 20)
    assert expire(*late, log=view(retention_ms=1, retention_bytes=SIZE))[:2] == ([0, 1, 2, 3, 4], 50)


@pytest.mark.parametrize(
    ("limit", "deleted"), [(5 * SIZE, 0), (5 * SIZE - 1, 0), (4 * SIZE + 1, 0), (4 * SIZE, 1), (SIZE, 4), (0, 5)]
)
def test_the_size_never_falls_below_its_limit(limit: int, deleted: int) -> None:
    assert expire(*TENS, log=view(retention_bytes=limit))[0] == list(range(deleted))


def test_what_is_only_on_the_local_disk_counts_too() -> None:
    log = view(retention_bytes=5 * SIZE, local_only_size=2 * SIZE)
    assert expire(*TENS, log=log) == ([0, 1], 20, [])


def test_a_segment_of_several_epochs_counts_once() -> None:
    """KAFKA-15479."""
    both = (finished(0, 0, 9, {0: 0, 1: 5}), finished(1, 10, 19, {1: 10, 2: 15}))
    assert expire(*both, log=view({0: 0, 1: 5, 2: 15}, retention_bytes=2 * SIZE)) == ([], None, [])


def test_a_failed_copy_does_not_count() -> None:
    """KAFKA-17062: it stays COPY_SEGMENT_STARTED, and its bytes are those of the copy that came after it."""
    failed = [replace(TENS[4], segment_id=replace(TENS[4].segment_id, id=UUID(int=9)), state=STARTED)]
    assert expire(*TENS, *failed, log=view(retention_bytes=5 * SIZE)) == ([], None, [])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(("delete",), (5, 7)), ((), (5, 7)), (("compact",), (-1, -1)), (("compact", "delete"), (5, 7))],
)
def test_a_compacted_topic_has_no_retention_unless_its_policy_has_delete(
    policy: tuple[str, ...], expected: tuple[int, int]
) -> None:
    defaults = TopicConfig.effective(NodeConfig.of(), {})
    config = replace(defaults, cleanup_policy=policy, retention_ms=5, retention_bytes=7)
    assert limits(config) == expected


def test_neither_unfinished_copies_nor_those_of_another_lineage_count_for_the_size() -> None:
    unfinished = segment(8, 50, 59, {0: 50}, state=STARTED)
    assert expire(*TENS, unfinished, log=view(retention_bytes=4 * SIZE + 1)) == ([], None, [])
    other = finished(9, 50, 59, {0: 50})
    assert expire(*TENS, other, log=view({0: 0, 1: 50}, retention_bytes=5 * SIZE)) == ([], None, [])


def expire_cleaned(*segments: RemoteLogSegmentMetadata, log: LogView) -> tuple[object, ...]:
    """Like ``expire``, after the cleanings that the segments are from."""
    cache = RemoteLogMetadataCache()
    for one in segments:
        cache.apply(replace(one, state=STARTED))
        if one.state is FINISHED:
            cache.apply(update(one, FINISHED))
    return outcome(decide(cache, log, now=NOW))


def test_of_a_replaced_segment_and_its_replacement_the_replacement_expires() -> None:
    first, second = TENS[:2]
    cleaned = replace(finished(9, 0, 9, {0: 0}), cleaned=offsets({0: 10}), replaces=(first.id,))
    assert expire_cleaned(first, second, cleaned, log=view(retention_ms=NOW - 1)) == ([9], 10, [])


def test_an_unfinished_cleaning_keeps_no_later_segment() -> None:
    unfinished = replace(segment(9, 0, 19, {0: 0}, max_timestamp_ms=NOW), cleaned=offsets({0: 20}))
    assert expire_cleaned(*TENS[:3], unfinished, log=view(retention_ms=NOW - 2)) == ([0, 1], 20, [])


def test_what_is_below_the_log_start_already_does_not_count() -> None:
    """A segment whose deletion has not come through yet must not cost another one."""
    assert expire(*TENS, log=view({0: 20}, log_start=20, retention_bytes=3 * SIZE)) == ([0, 1], None, [])
    assert expire(*TENS, log=view({0: 20}, log_start=20, retention_bytes=2 * SIZE)) == ([0, 1, 2], 30, [])


def test_what_two_leaders_have_copied_counts_once_and_goes_at_once() -> None:
    """A leader that did not know of its end, and its successor."""
    again = [replace(one, segment_id=replace(one.segment_id, id=UUID(int=one.id.int + 10))) for one in TENS]
    assert expire(*TENS, *again, log=view(retention_bytes=5 * SIZE)) == ([], None, [])
    assert expire(*TENS, *again, log=view(retention_bytes=3 * SIZE)) == ([0, 10, 1, 11], 20, [])


def test_a_failed_copy_goes_when_its_offsets_do() -> None:
    failed = replace(TENS[0], segment_id=replace(TENS[0].segment_id, id=UUID(int=9)), state=STARTED)
    assert expire(failed, *TENS, log=view(retention_ms=NOW - 1)) == ([9, 0], 10, [])


def test_segments_below_the_log_start_go_and_do_not_move_it() -> None:
    assert expire(*TENS, log=view({0: 20}, log_start=20)) == ([0, 1], None, [])
    assert expire(*TENS, log=view({0: 19}, log_start=19)) == ([0], None, [])


def test_segments_that_overlap_move_the_log_start_to_the_furthest_end() -> None:
    """KAFKA-16890."""
    overlapping = (finished(0, 0, 30, {0: 0}), finished(1, 0, 9, {0: 0}), finished(2, 31, 40, {0: 31}, time=NOW))
    assert expire(*overlapping, log=view(retention_ms=1)) == ([0, 1], 31, [])


def test_a_segment_that_reaches_beyond_what_goes_by_a_single_record_is_judged_by_itself() -> None:
    overlapping = (TENS[0], finished(1, 5, 10, {0: 5}, time=NOW))
    assert expire(*overlapping, log=view(retention_ms=1)) == ([0], 10, [])


def test_a_log_without_epochs_lets_nothing_go() -> None:
    assert expire(*TENS, log=view({}, retention_ms=1)) == ([], None, [])


def test_an_old_unfinished_copy_is_abandoned_once_another_has_replaced_it() -> None:
    """``segment`` begins to be copied at 2000."""
    copy = segment(1, 0, 9, {0: 0})
    others = [replace(segment(2, 0, 9, {0: 0}), state=state) for state in (FINISHED, DELETING)]

    def found(*, copied: int = 9, before_ms: int = 2001, copying: tuple[int, ...] = ()) -> list[int]:
        ids = {UUID(int=one) for one in copying}
        given_up = unfinished_copies([copy, *others], copied=Offset(copied), before_ms=before_ms, copying=ids)
        return [one.id.int for one in given_up]

    assert found() == [1]
    assert found(copied=8) == [], "its last record is in no other copy"
    assert found(before_ms=2000) == [], "its copier may still be at it"
    assert found(copying=(1,)) == [], "this broker is at it"


def test_results_of_a_pass_for_deleted_segments_are_dropped() -> None:
    """A leader lives for long, and each segment has an id of its own."""
    validity = Validity()
    for start in range(5):
        decide(DumbTier(*TENS[start:]), view(retention_bytes=0), now=NOW, validity=validity)
    assert validity._valid == {TENS[4].id}


def test_a_deletion_that_failed_is_tried_again() -> None:
    half = replace(TENS[0], state=DELETING)
    assert expire(half, *TENS[1:], log=view()) == ([0], None, [])


def test_nothing_goes_beyond_a_segment_that_is_being_copied() -> None:
    log = view(retention_ms=1)
    assert expire(*TENS, log=log, copying=(2,)) == ([0, 1], 20, [])
    assert expire(*TENS, log=log, copying=(0,)) == ([], None, [])


def test_nothing_goes_beyond_the_first_segment_that_stays() -> None:
    young = replace(TENS[1], max_timestamp_ms=NOW)
    assert expire(TENS[0], young, *TENS[2:], log=view(retention_ms=1)) == ([0], 10, [])


def test_a_segment_of_another_lineage_is_passed_over() -> None:
    foreign = finished(9, 10, 25, {0: 10})
    own = (TENS[0], finished(1, 10, 19, {1: 10}))
    assert expire(own[0], foreign, own[1], log=view({0: 0, 1: 10}, retention_ms=1)) == ([0, 1], 20, [])


def test_epochs_without_records_do_not_keep_segments() -> None:
    """KAFKA-16511: the segment knows nothing of an epoch in which nothing was written."""
    both = (finished(0, 0, 9, {0: 0}), finished(1, 10, 19, {2: 10}))
    assert expire(*both, log=view({0: 0, 1: 10, 2: 10}, retention_ms=1)) == ([0, 1], 20, [])


def test_segments_of_epochs_before_the_logs_first_one_dangle() -> None:
    """An unclean leader started again at offset 0: segments of older epochs belong to no log."""
    old = (finished(0, 0, 9, {0: 0}), finished(1, 10, 19, {0: 10, 1: 15}))
    assert expire(*old, log=view({2: 0})) == ([], None, [0, 1])
    mixed = finished(2, 0, 9, {1: 0, 2: 5})
    assert expire(*old, mixed, log=view({2: 0})) == ([], None, [0, 1])


def test_a_log_that_lost_its_oldest_epochs_condemns_nothing() -> None:
    """Its checkpoint was rebuilt from the local batches: it has no epochs of earlier records."""
    assert expire(*TENS, log=view({3: 50})) == ([], None, [])


def test_in_kip405_3_the_segment_off_the_lineage_stays_with_its_offset_0() -> None:
    tier = [replace(one, state=FINISHED) for one in KIP405_3]
    log = replace(view(retention_ms=1), epochs=EPOCHS_OF_KIP405_3, log_end=Offset(3))
    assert expire(*tier, log=log) == ([2], 2, [])


def test_sizes_for_the_gauges() -> None:
    tier = DumbTier(replace(TENS[0], state=STARTED), replace(TENS[1], state=DELETING), *TENS[2:])
    expiration = decide(tier, view(retention_bytes=1 << 30, local_only_size=7), now=NOW)
    assert (expiration.remote_size, expiration.retained_size) == (4 * SIZE, 3 * SIZE + 7)


# -- where the tier begins and ends


def cache(starts: Mapping[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(epochs(starts))


def test_the_end_of_the_tier_is_that_of_its_newest_epoch() -> None:
    tier = DumbTier(finished(0, 0, 9, {0: 0}), finished(1, 10, 19, {0: 10, 1: 15}))
    assert find_highest_remote_offset(tier, cache({0: 0, 1: 15}), log_end=Offset(50)) == RemoteEnd(
        Offset(19), LeaderEpoch(1)
    )
    assert find_highest_remote_offset(tier, cache({0: 0, 1: 15, 2: 30}), log_end=Offset(50)) == RemoteEnd(
        Offset(19), LeaderEpoch(1)
    )


def test_what_another_lineage_copied_beyond_the_epochs_end_does_not_count() -> None:
    """KAFKA-15241."""
    tier = DumbTier(finished(0, 0, 9, {0: 0}))
    assert find_highest_remote_offset(tier, cache({0: 0, 1: 5}), log_end=Offset(50)) == RemoteEnd(
        Offset(4), LeaderEpoch(0)
    )
    assert find_highest_remote_offset(tier, cache({0: 0}), log_end=Offset(7)) == RemoteEnd(Offset(6), LeaderEpoch(0))


def test_a_tier_of_other_epochs_says_nothing() -> None:
    tier = DumbTier(finished(0, 0, 9, {1: 0}))
    assert find_highest_remote_offset(tier, cache({0: 0, 2: 5}), log_end=Offset(50)) is None
    assert remote_log_start(tier, cache({0: 0, 2: 5})) is None


def test_the_log_begins_with_the_first_segment_of_its_oldest_epoch_in_the_tier() -> None:
    tier = DumbTier(finished(0, 5, 9, {1: 5}), finished(1, 3, 9, {2: 3}))
    assert remote_log_start(tier, cache({0: 0, 1: 4, 2: 20})) == 5


# -- beside a dumb oracle

STATES = st.sampled_from([STARTED, FINISHED, FINISHED, FINISHED, DELETING])


@st.composite
def lineages(draw: st.DrawFn) -> tuple[EpochEntry, ...]:
    starts = sorted(draw(st.lists(st.integers(0, 30), min_size=1, max_size=4)))
    first = draw(st.integers(0, 2))
    return tuple(
        EpochEntry(LeaderEpoch(first + 2 * index + draw(st.integers(0, 1))), Offset(start))
        for index, start in enumerate(starts)
    )


@st.composite
def tiers(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, 30))
        end = start + draw(st.integers(0, 10))
        lineage = [entry for entry in draw(lineages()) if entry.start <= end]
        past = [entry for entry in lineage if entry.start <= start][-1:]
        within = [entry for entry in lineage if entry.start > start]
        starts = {int(entry.epoch): int(max(entry.start, start)) for entry in [*past, *within]} or {0: start}
        found.append(
            segment(number, start, end, starts, state=draw(STATES), max_timestamp_ms=draw(st.integers(NOW - 5, NOW)))
        )
    return found


def dumb(tier: DumbTier, log: LogView, copying: set[UUID]) -> tuple[list[int], int | None, list[int]]:
    """The table of A7, read from top to bottom."""
    lineage = filtered(log.epochs)

    def valid(one: RemoteLogSegmentMetadata) -> bool:
        return is_within_leader_epochs(one, log_end=log.log_end, leader_epochs=lineage)

    order: list[RemoteLogSegmentMetadata] = []
    for entry in lineage:
        order += [one for one in tier.segments_of_epoch(entry.epoch) if one not in order]

    def below_start(one: RemoteLogSegmentMetadata) -> bool:
        return all(entry.epoch <= lineage[0].epoch for entry in one.epochs) and one.end_offset < log.log_start

    counted = [one for one in order if one.state is FINISHED and valid(one) and not below_start(one)]
    ends = [-1, *itertools.accumulate((one.end_offset for one in counted), max)]
    total = log.local_only_size + sum(
        one.size for one, before in zip(counted, ends, strict=False) if one.end_offset > before
    )
    breached = max(total - log.retention_bytes, 0) if log.retention_bytes >= 0 else 0
    gone: list[RemoteLogSegmentMetadata] = []
    start: int | None = None
    for one in order:
        if one.id in copying:
            break
        if one.state is DELETING or below_start(one):
            gone.append(one)
        elif valid(one):
            if start is not None and one.end_offset < start:
                pass
            elif log.retention_ms > -1 and one.max_timestamp_ms < NOW - log.retention_ms:
                breached = max(breached - one.size, 0)
            elif breached > 0 and breached - one.size >= 0:
                breached -= one.size
            else:
                break
            gone.append(one)
            start = max(start or 0, one.end_offset + 1)
    first = log.epochs[0]
    left = [one for one in tier.segments() if one not in gone and one.id not in copying]
    dangling = [one for one in left if all(entry.epoch < first.epoch for entry in one.epochs)]
    return (
        [one.id.int for one in gone],
        start,
        [one.id.int for one in dangling] if first.start <= log.log_start else [],
    )


@given(
    tiers(),
    lineages(),
    st.integers(0, 40),
    st.integers(0, 30),
    st.sampled_from([-1, 0, 2]),
    st.sampled_from([-1, 0, 300, 1000]),
    st.sampled_from([0, 500]),
    st.sets(st.integers(0, 5), max_size=1),
)
def test_the_pass_does_what_its_table_says(
    segments: list[RemoteLogSegmentMetadata],
    lineage: tuple[EpochEntry, ...],
    log_end: int,
    log_start: int,
    retention_ms: int,
    retention_bytes: int,
    local: int,
    copying: set[int],
) -> None:
    tier = DumbTier(*segments)
    log = LogView(lineage, Offset(log_start), Offset(log_end), local, retention_ms, retention_bytes)
    ids = {UUID(int=number) for number in copying}
    expected = dumb(tier, log, ids) if segments else ([], None, [])
    assert outcome(decide(tier, log, now=NOW, copying=ids)) == expected


@given(tiers(), st.lists(st.tuples(lineages(), st.integers(0, 40), st.integers(0, 30)), min_size=2, max_size=4))
def test_results_of_earlier_passes_change_no_decision(
    segments: list[RemoteLogSegmentMetadata], passes: list[tuple[tuple[EpochEntry, ...], int, int]]
) -> None:
    tier, validity, log_end = DumbTier(*segments), Validity(), 0
    for lineage, more, log_start in passes:
        log_end += more
        first = lineage[0]._replace(start=min(Offset(log_start), lineage[0].start))
        for epochs_then in (lineage, (first, *lineage[1:])):
            log = LogView(epochs_then, Offset(log_start), Offset(log_end), 0, 2, 300)
            again = decide(tier, log, now=NOW, validity=validity)
            assert outcome(again) == outcome(decide(tier, log, now=NOW))


@given(tiers(), lineages(), st.integers(30, 60))
def test_the_end_of_the_tier_is_an_offset_that_it_holds_in_the_logs_epoch(
    segments: list[RemoteLogSegmentMetadata], lineage: tuple[EpochEntry, ...], log_end: int
) -> None:
    log = LeaderEpochCache(lineage)
    copied = [one for one in segments if one.state is not STARTED]
    reached = [
        max((one.epoch_end(entry.epoch) for one in copied if entry.epoch in dict(one.epochs)), default=None)
        for entry in log.entries
    ]
    newest = max((index for index, highest in enumerate(reached) if highest is not None), default=None)
    found = find_highest_remote_offset(DumbTier(*segments), log, log_end=Offset(log_end))
    if newest is None:
        assert found is None
        return
    ends = [entry.start for entry in log.entries[1:]] + [Offset(log_end)]
    highest = reached[newest]
    assert highest is not None and found is not None
    assert found.offset == min(highest, ends[newest] - 1)
