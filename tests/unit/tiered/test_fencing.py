"""The order of the metadata topic decides whose events count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.commands.tier.segment_view import event_line, plain_history
from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.serialization import MetadataEvent, deserialize, serialize
from milena.tiered.metadata.snapshot import Snapshot, decode_snapshot, encode_snapshot
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.offline.metadata_history import MetadataHistory, is_deleted
from milena.tiered.segments.segment_metadata import (
    TRANSITIONS,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from tests.unit.tiered.segments import PARTITION, epochs, fence, offsets, segment, update

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
SEGMENT = segment(1, 0, 9, {0: 0})
LINEAGE = epochs({0: 0})


def by(epoch: int, state: RemoteLogSegmentState, of: RemoteLogSegmentMetadata = SEGMENT) -> RemoteLogSegmentUpdate:
    return replace(update(of, state), leader_epoch=LeaderEpoch(epoch))


def cache_of(*events: MetadataEvent) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    for event in events:
        cache.apply(event)
    return cache


def state_after(*events: MetadataEvent) -> RemoteLogSegmentState | None:
    found = cache_of(replace(SEGMENT, leader_epoch=LeaderEpoch(0)), *events).get(SEGMENT.id)
    return None if found is None else found.state


def test_a_deletion_after_the_fence_of_a_later_leader_is_fenced() -> None:
    assert state_after(by(0, FINISHED), fence(1), by(0, DELETING)) is FINISHED
    assert state_after(by(0, FINISHED), by(0, DELETING), fence(1)) is DELETING


def test_a_copy_that_ends_after_the_fence_is_never_finished() -> None:
    assert state_after(fence(1), by(0, FINISHED)) is STARTED
    assert state_after(by(0, FINISHED), fence(1)) is FINISHED


def test_a_copy_that_starts_after_the_fence_is_not_listed() -> None:
    late = replace(segment(2, 0, 9, {0: 0}), leader_epoch=LeaderEpoch(0))
    assert len(cache_of(fence(1), late)) == 0


def test_the_end_of_a_deletion_after_the_fence_is_left_to_the_later_leader() -> None:
    assert state_after(by(0, FINISHED), by(0, DELETING), fence(1), by(0, DELETED)) is DELETING
    assert state_after(by(0, FINISHED), by(0, DELETING), fence(1), by(1, DELETING), by(1, DELETED)) is None


def test_each_event_of_a_leader_is_a_fence() -> None:
    other = replace(segment(2, 10, 19, {1: 10}), leader_epoch=LeaderEpoch(1))
    assert state_after(by(0, FINISHED), other, by(0, DELETING)) is FINISHED


def test_also_one_whose_transition_is_invalid() -> None:
    assert state_after(by(0, FINISHED), by(1, DELETED), by(0, DELETING)) is FINISHED


def test_the_fence_only_rises() -> None:
    cache = cache_of(fence(3), fence(1), fence(3))
    assert cache.fence_epoch == 3
    assert not cache.apply(fence(2)) and cache.apply(fence(3))


def test_events_without_a_leader_epoch_are_not_fenced() -> None:
    """Kafka's, and those of older versions."""
    assert state_after(fence(1), update(SEGMENT, FINISHED), update(SEGMENT, DELETING)) is DELETING


def test_fenced_and_invalid_events_are_distinguished() -> None:
    cache = cache_of(SEGMENT, fence(1))
    assert cache.is_fenced(by(0, FINISHED))
    assert not cache.is_fenced(by(1, FINISHED)) and not cache.is_fenced(update(SEGMENT, FINISHED))


# -- deletions that are withdrawn


def withdrawal(epoch: int) -> RemoteLogSegmentUpdate:
    return replace(by(epoch, FINISHED), republishes=True)


def test_a_segment_is_read_again_after_a_withdrawal_and_stays_at_risk() -> None:
    cache = cache_of(SEGMENT, by(0, FINISHED), by(0, DELETING), fence(1), withdrawal(1))
    found = cache.segment_for(Offset(4), leader_epochs=LINEAGE, log_end=Offset(10))
    assert found is not None and found.segment.at_risk
    assert (
        cache.apply(by(1, DELETING)) and cache.segment_for(Offset(4), leader_epochs=LINEAGE, log_end=Offset(10)) is None
    )


def test_without_the_field_the_same_update_is_dropped_as_in_kafka() -> None:
    assert state_after(by(0, FINISHED), by(0, DELETING), by(1, FINISHED)) is DELETING


def test_a_copy_that_was_never_finished_is_not_made_readable() -> None:
    assert state_after(by(0, DELETING), withdrawal(1)) is DELETING


@pytest.mark.parametrize("before", [(), (by(0, FINISHED),)])
def test_only_a_started_deletion_can_be_withdrawn(before: Sequence[MetadataEvent]) -> None:
    cache = cache_of(SEGMENT, *before)
    assert not cache.apply(withdrawal(1))


# -- what is cleaned


def test_of_several_segments_the_furthest_cleaned_serves() -> None:
    """Whichever has more offsets after it."""
    cleaned = replace(segment(2, 0, 9, {0: 0}), cleaned=offsets({0: 9}))
    former = segment(3, 0, 19, {0: 0})
    cache = cache_of(former, update(former, FINISHED), cleaned, update(cleaned, FINISHED))
    found = cache.segment_for(Offset(4), leader_epochs=LINEAGE, log_end=Offset(30))
    assert found is not None and found.segment.id == cleaned.id


def test_a_stale_cleaning_is_skipped_by_every_look_up() -> None:
    source = segment(1, 0, 9, {0: 0})
    stale = replace(segment(2, 0, 9, {0: 0}), cleaned=offsets({0: 123}), replaces=(source.id,))
    current = replace(segment(3, 10, 19, {0: 10, 1: 15}), cleaned=offsets({0: 100, 1: 155}))
    cache = RemoteLogMetadataCache()
    for one in (source, stale, current):
        cache.apply(one)
        cache.apply(update(one, FINISHED))
    lineage = epochs({0: 0, 1: 15})
    served = [one.segment.id.int for one in cache.served(Offset(0), leader_epochs=lineage, log_end=Offset(30))]
    assert served == [1, 3]


# -- any history


def dumb(events: Sequence[MetadataEvent]) -> dict[UUID, RemoteLogSegmentState]:
    """By the rules as they are written."""
    states: dict[UUID, RemoteLogSegmentState] = {}
    for index, event in enumerate(events):
        if any(-1 < event.leader_epoch < before.leader_epoch for before in events[:index]):
            continue
        known = states.get(event.segment_id.id)
        if isinstance(event, RemoteLogSegmentUpdate) and known is None:
            continue
        if event.state == known or event.state in TRANSITIONS[known]:
            states[event.segment_id.id] = event.state
    return {one: state for one, state in states.items() if state is not DELETED}


SEGMENTS = [segment(number, 0, 9, {0: 0}) for number in (1, 2)]
EVENT = st.builds(
    lambda of, state, epoch: replace(of, leader_epoch=LeaderEpoch(epoch)) if state is STARTED else by(epoch, state, of),
    st.sampled_from(SEGMENTS),
    st.sampled_from(list(RemoteLogSegmentState)),
    st.integers(-1, 2),
)


@given(st.lists(EVENT | st.builds(fence, st.integers(0, 2)), max_size=12), st.data())
def test_a_cache_is_what_the_order_of_the_events_says_also_from_an_old_snapshot(
    events: list[MetadataEvent], data: st.DataObject
) -> None:
    deleted = [one for one in events if one.state is DELETED and isinstance(one, RemoteLogSegmentUpdate)]
    if len({one.segment_id.id for one in deleted if not one.is_fence}) < len(
        [1 for one in deleted if not one.is_fence]
    ):
        return  # ids are not used twice
    at = data.draw(st.integers(0, len(events)))
    whole, old = cache_of(*events), cache_of(*events[:at])
    written = encode_snapshot(PARTITION, Snapshot.of(old, None, Offset(at)))
    again = decode_snapshot(written, PARTITION).cache()
    for event in events[at:]:
        again.apply(event)
    assert Snapshot.of(again, None, Offset(0)) == Snapshot.of(whole, None, Offset(0))
    expected = dumb(events)
    assert {one.id: one.state for one in whole.segments()} == expected


def of_an_old_version(event: MetadataEvent) -> MetadataEvent:
    """What a reader makes of it that skips the fields."""
    if isinstance(event, RemoteLogSegmentUpdate):
        return replace(event, leader_epoch=LeaderEpoch(-1), republishes=False)
    return replace(event, leader_epoch=LeaderEpoch(-1), cleaned=(), replaces=())


def test_an_older_version_drops_fences_and_reads_all_else_as_ever() -> None:
    old = RemoteLogMetadataCache()
    taken = [old.apply(of_an_old_version(one)) for one in (SEGMENT, by(0, FINISHED), fence(1), by(0, DELETING))]
    assert taken == [True, True, False, True]


WITH_FIELDS: list[MetadataEvent] = [
    fence(7),
    withdrawal(3),
    by(0, DELETING),
    replace(
        SEGMENT,
        leader_epoch=LeaderEpoch(4),
        cleaned=offsets({0: 100, 1: None, 4: 155}),
        replaces=(UUID(int=8), UUID(int=9)),
    ),
]


@pytest.mark.parametrize("event", WITH_FIELDS, ids=range(len(WITH_FIELDS)))
def test_the_fields_are_read_as_they_were_written(event: MetadataEvent) -> None:
    assert deserialize(serialize(event), Offset(0)) == event


def test_events_without_a_leader_epoch_are_encoded_as_kafka_does() -> None:
    """Without tagged fields but Kafka's."""
    assert serialize(update(SEGMENT, FINISHED))[-1] == 0
    assert len(serialize(by(1, FINISHED))) > len(serialize(update(SEGMENT, FINISHED)))


def test_the_size_of_a_record_at_ten_thousand_epochs() -> None:
    """As the decision page states it."""
    wide = replace(SEGMENT, cleaned=offsets({epoch: epoch for epoch in range(10_000)}))
    assert 130_000 <= len(serialize(wide)) - len(serialize(SEGMENT)) < 130_100


# -- without a broker


def history_of(*events: MetadataEvent) -> MetadataHistory:
    history = MetadataHistory()
    for offset, event in enumerate(events):
        history.take(0, Offset(offset), event)
    return history


@pytest.mark.parametrize(
    ("later", "deleted"),
    [
        ((fence(1), by(0, DELETING)), False),
        ((by(0, DELETING), fence(1), withdrawal(1)), False),
        ((by(0, DELETING), fence(1)), True),
    ],
)
def test_the_history_shows_whether_a_segment_is_deleted(later: Sequence[MetadataEvent], deleted: bool) -> None:
    history = history_of(SEGMENT, by(0, FINISHED), *later)
    assert (SEGMENT.partition in history.deleted()) is deleted
    assert is_deleted(history.events[SEGMENT.segment_id]) is deleted
    assert list(history.events) == [SEGMENT.segment_id], "a fence is about no segment"


def test_milena_tier_show_says_whose_events_are_void() -> None:
    events: list[MetadataEvent] = [SEGMENT, by(0, FINISHED), by(0, DELETING), fence(1), by(0, DELETED), withdrawal(1)]
    shown = [event_line(one) for one in plain_history(history_of(*events).events[SEGMENT.segment_id])]
    assert [line.partition(" ms")[2] for line in shown] == [
        "",
        "",
        "",
        "  (fenced: a later leader had published its leader epoch fence)",
        "  (republished after a former leader started to delete it)",
    ]
    assert ["broker 2 in 1 " in line for line in shown] == [False, False, False, False, True]
    assert "broker 1  at" in shown[0], "it has no leader epoch"


def test_a_restored_cluster_has_no_claims_of_the_old_one() -> None:
    segment = replace(SEGMENT, state=FINISHED, leader_epoch=LeaderEpoch(9), cleaned=offsets({0: 9}))
    cache = cache_of(*events_of(segment))
    assert cache.fence_epoch == -1
    assert [one.cleaned for one in cache.segments()] == [segment.cleaned]


def test_the_last_finished_cleaning_that_is_not_void_says_where_the_next_begins() -> None:
    def finished(epoch: int, offset: int) -> RemoteLogSegmentUpdate:
        return replace(fence(epoch), first_dirty=Offset(offset))

    assert cache_of(fence(1)).cleaned_to is None
    assert cache_of(finished(1, 50), fence(2)).cleaned_to == (1, 50), "a fence without it takes nothing back"
    assert cache_of(finished(1, 50), finished(2, 40)).cleaned_to == (2, 40), "its log was cut"
    assert cache_of(fence(2), finished(1, 50)).cleaned_to is None, "void"
    assert cache_of(finished(3, 50)).fence_epoch == 3
