"""Where a pass of cleaning begins and ends: by metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.cleaning.grouping import groups
from milena.tiered.cleaning.window import Window, dirtiness, first_dirty, map_of_pass, old_enough, sources
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.unit.tiered.segments import epochs, fence, offsets, segment, update

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
CONFIG = replace(TopicConfig.effective(NodeConfig.of(), {}), segment_bytes=2500, index_interval_bytes=100)


def cache_of(*segments: RemoteLogSegmentMetadata, done: tuple[int, int] | None = None) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    for one in segments:
        cache.apply(one)
        cache.apply(update(one, FINISHED))
    if done is not None:
        cache.apply(replace(fence(done[0]), first_dirty=Offset(done[1])))
    return cache


def found(
    cache: RemoteLogMetadataCache, starts: Mapping[int, int], *, log_start: int = 0, log_end: int = 1000
) -> list[tuple[int, int, int, bool]]:
    every = sources(
        cache, log_start=Offset(log_start), log_end=Offset(log_end), leader_epochs=epochs(starts), without=()
    )
    return [(one.segment.id.int, one.first, one.last, one.whole) for one in every]


def begins(cache: RemoteLogMetadataCache, starts: Mapping[int, int], *, log_start: int = 0, log_end: int = 1000) -> int:
    return first_dirty(cache, log_start=Offset(log_start), log_end=Offset(log_end), leader_epochs=epochs(starts))


def test_the_window_ends_at_what_the_tier_lacks_and_begins_with_a_whole_segment() -> None:
    cache = cache_of(segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 0}), segment(3, 30, 39, {0: 0}))
    assert found(cache, {0: 0}) == [(1, 0, 9, True), (2, 10, 19, True)]
    assert found(cache, {0: 0}, log_start=5) == [(1, 0, 9, True), (2, 10, 19, True)]
    assert found(cache, {0: 0}, log_start=20) == []
    assert found(cache, {}) == []


def test_of_overlapping_copies_each_offset_is_read_once() -> None:
    cache = cache_of(segment(1, 0, 9, {0: 0}), segment(2, 5, 14, {0: 0}))
    assert found(cache, {0: 0}) == [(1, 0, 9, True), (2, 10, 14, True)]


def test_a_segment_that_is_partly_off_the_lineage_is_read_and_not_replaced() -> None:
    cache = cache_of(segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 0}), segment(3, 15, 29, {1: 15}))
    assert found(cache, {0: 0, 1: 15}) == [(1, 0, 9, True), (2, 10, 14, False), (3, 15, 29, True)]


def test_segments_that_may_vanish_end_the_window() -> None:
    cache = cache_of(segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 0}))
    every = sources(
        cache,
        log_start=Offset(0),
        log_end=Offset(20),
        leader_epochs=epochs({0: 0}),
        without={UUID(int=2)},
    )
    assert [one.segment.id.int for one in every] == [1]


def test_a_pass_begins_where_the_last_one_has_ended() -> None:
    segments = segment(1, 0, 99, {0: 0}), segment(2, 100, 199, {1: 100})
    assert begins(cache_of(*segments), {0: 0, 1: 100}) == 0
    assert begins(cache_of(*segments, done=(1, 150)), {0: 0, 1: 100}) == 150
    assert begins(cache_of(*segments, done=(1, 150)), {0: 0, 1: 100, 4: 300}) == 150, "a clean election"
    assert begins(cache_of(*segments, done=(1, 150)), {0: 0, 1: 100}, log_start=160) == 160
    assert begins(cache_of(*segments, done=(1, 150)), {0: 0, 1: 100}, log_end=120) == 120


def test_after_an_unclean_election_it_begins_where_the_logs_part() -> None:
    segments = segment(1, 0, 99, {0: 0}), segment(2, 100, 199, {1: 100})
    assert begins(cache_of(*segments, done=(1, 150)), {0: 0, 1: 100, 2: 130}) == 130, "its end was cut"
    assert begins(cache_of(*segments, done=(1, 150)), {0: 0, 2: 120}) == 100, "its author's records are not here"
    assert begins(cache_of(*segments, done=(1, 90)), {0: 0, 2: 120}) == 90


def test_young_records_are_left_and_the_share_and_age_of_the_others_count() -> None:
    times = [1000, 2000, 9000]
    cache = cache_of(*(segment(n + 1, 10 * n, 10 * n + 9, {0: 0}, max_timestamp_ms=t) for n, t in enumerate(times)))
    every = list(sources(cache, log_start=Offset(0), log_end=Offset(30), leader_epochs=epochs({0: 0})))
    window = Window(every, Offset(10))
    assert old_enough(window, replace(CONFIG, min_compaction_lag_ms=5000), 10_000).end == 20
    assert old_enough(window, replace(CONFIG, min_compaction_lag_ms=500), 10_000).end == 30
    one = dirtiness(window, replace(CONFIG, max_compaction_lag_ms=8500), 10_000)
    assert (one.clean_bytes, one.cleanable_bytes) == (1000, 2000)
    assert one.overdue_ms == 500, "the oldest dirty record is as old as the end of the segment before"
    assert dirtiness(window, CONFIG, 10_000).overdue_ms == 0


def test_small_neighbours_become_one_and_none_grows_beyond_a_segment() -> None:
    cache = cache_of(*(segment(n + 1, 10 * n, 10 * n + 9, {0: 0}) for n in range(5)))
    every = list(sources(cache, log_start=Offset(0), log_end=Offset(50), leader_epochs=epochs({0: 0})))
    assert [len(group) for group in groups(every, CONFIG, end=Offset(50))] == [2, 2, 1]
    assert [len(group) for group in groups(every, replace(CONFIG, segment_bytes=500), end=Offset(50))] == [1] * 5


def test_the_map_of_a_pass_has_its_predecessors_and_never_falls() -> None:
    first = replace(segment(1, 0, 99, {0: 0}), cleaned=offsets({0: 80}))
    second = replace(segment(2, 0, 99, {0: 0}), cleaned=offsets({0: 80, 3: 150}))
    lineage = epochs({0: 0, 3: 100})
    assert map_of_pass(cache_of(), LeaderEpoch(0), Offset(7), leader_epochs=lineage) == offsets({0: 7})
    assert map_of_pass(cache_of(), LeaderEpoch(3), Offset(7), leader_epochs=lineage) == offsets({0: None, 3: 7})
    assert map_of_pass(cache_of(first), LeaderEpoch(3), Offset(90), leader_epochs=lineage) == offsets({0: 80, 3: 90})
    both = cache_of(first, second)
    assert map_of_pass(both, LeaderEpoch(3), Offset(120), leader_epochs=lineage) == offsets({0: 80, 3: 150})
    assert map_of_pass(both, LeaderEpoch(4), Offset(160), leader_epochs=epochs({3: 100})) == offsets({3: 150, 4: 160})
