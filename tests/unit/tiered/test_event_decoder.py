"""Events that are folded from their bytes come to what they come to one by one, whatever they are."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.records.remote_log_records import UnknownRemoteLogRecord, UnreadableRemoteLogRecord
from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from milena.tiered.metadata.event_decoder import EventDecoder, PartitionEvents
from milena.tiered.metadata.serialization import MetadataEvent, serialize
from milena.tiered.metadata.snapshot import Snapshot
from milena.tiered.offline.metadata_history import MetadataHistory
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)
from tests.unit.tiered.segments import PARTITION, epochs, fence, offsets, segment, update

STATES = list(RemoteLogSegmentState)
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
LONG = TopicIdPartition(UUID(int=78), "x" * 200, 3)
PARTITIONS = [PARTITION, replace(PARTITION, partition=1), LONG]
leader_epochs = st.integers(-1, 3).map(LeaderEpoch)


@st.composite
def segments(draw: st.DrawFn) -> MetadataEvent:
    """Mostly of the plain shape: else all others would never be met."""
    number, start, epoch = draw(st.integers(0, 3)), draw(st.integers(0, 20)), draw(st.integers(0, 3))
    one = replace(
        segment(
            number, start, start + 9, {epoch: draw(st.integers(0, 20))}, partition=draw(st.sampled_from(PARTITIONS))
        ),
        txn_index_empty=draw(st.booleans()),
        leader_epoch=draw(leader_epochs),
        broker_id=NodeId(draw(st.integers(1, 3))),
        size=draw(st.integers(1, 2**31 - 1)),
    )
    match draw(st.integers(0, 20)):
        case 0:
            return replace(one, epochs=epochs({epoch: start, epoch + 1: start + 5}))
        case 1:
            return replace(one, custom_metadata=draw(st.binary(max_size=3)))
        case 2:
            return replace(one, cleaned=offsets({epoch: 5}), replaces=(UUID(int=draw(st.integers(0, 3))),))
        case 3:
            return replace(one, state=draw(st.sampled_from(STATES)))
        case _:
            return one


@st.composite
def updates(draw: st.DrawFn) -> MetadataEvent:
    partition = draw(st.sampled_from(PARTITIONS))
    known = RemoteLogSegmentId(partition, UUID(int=draw(st.integers(0, 3))))
    one = RemoteLogSegmentUpdate(
        known,
        NodeId(draw(st.integers(1, 3))),
        draw(st.integers(0, 9)),
        None,
        draw(st.sampled_from(STATES)),
        draw(leader_epochs),
    )
    match draw(st.integers(0, 20)):
        case 0:
            return replace(one, republishes=True)
        case 1:
            return replace(one, custom_metadata=draw(st.binary(max_size=3)))
        case 2 | 3 | 4:
            dirty = draw(st.sampled_from([None, None, Offset(3)]))
            return replace(fence(draw(st.integers(0, 3)), partition), first_dirty=dirty)
        case _:
            return one


def come_to(cache_of: PartitionEvents) -> Snapshot:
    return Snapshot.of(cache_of.cache, None, Offset(0))


@given(events=st.lists(st.one_of(segments(), updates()), max_size=40), looked=st.sets(st.integers(0, 40), max_size=2))
def test_all_events_come_to_the_same_as_one_by_one(events: list[MetadataEvent], looked: set[int]) -> None:
    decoder, history = EventDecoder(), MetadataHistory()
    for number, event in enumerate(events):
        decoder.take(serialize(event), Offset(number))
        history.take(0, Offset(number), event)
        if number in looked:  # what comes after a plan was made
            assert all(one.cache is one.cache for one in decoder.partitions.values())
    assert decoder.partitions.keys() == history.caches.keys()
    for partition, cache in history.caches.items():
        found = decoder.partitions[partition]
        assert come_to(found) == Snapshot.of(cache, None, Offset(0))
        assert found.cache.epochs() == cache.epochs() and found.leader == history.leaders.get(partition)


def test_the_usual_events_are_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the test above would be one of ``deserialize`` alone."""
    decoder = EventDecoder()
    first = segment(1, 0, 9, {0: 0})
    decoder.take(serialize(first), Offset(0))
    decoder.take(serialize(update(first, _FINISHED)), Offset(1))
    monkeypatch.setattr("milena.tiered.metadata.event_decoder.deserialize", None)
    for number in range(2, 50):
        one = replace(segment(number, number * 10, number * 10 + 9, {0: 0}), leader_epoch=LeaderEpoch(number % 2 - 1))
        decoder.take(serialize(one), Offset(2 * number))
        decoder.take(serialize(replace(update(one, _FINISHED), leader_epoch=one.leader_epoch)), Offset(2 * number + 1))
    [found] = decoder.partitions.values()
    assert [one.start_offset for one in found.cache.segments()] == [0, *range(20, 500, 10)]


def test_of_what_is_not_wanted_only_that_it_is_there_is_known() -> None:
    decoder = EventDecoder(lambda topic: topic == "t")
    other = segment(1, 0, 9, {0: 0}, partition=replace(PARTITION, topic="other"))
    events: list[MetadataEvent] = [other, update(other, _FINISHED), segment(2, 0, 9, {0: 0})]
    for number, event in enumerate(events):
        decoder.take(serialize(event), Offset(number))
    assert (list(decoder.partitions), decoder.unwanted) == ([PARTITION], {other.partition})


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_what_a_newer_broker_wrote_is_named_though_the_partition_is_known(wanted: bool, known: bool) -> None:
    value = serialize(segment(1, 0, 9, {0: 0}))
    decoder = EventDecoder(lambda _: wanted)
    if known:
        decoder.take(value, Offset(0))
    with pytest.raises(UnknownRemoteLogRecord, match=r"offset 77 .*version 9 is not known"):
        decoder.take(value[:2] + b"\x09" + value[3:], Offset(77))


def test_damaged_values_of_the_usual_length_are_named() -> None:
    value = serialize(segment(1, 5, 9, {0: 0}))
    decoder = EventDecoder()
    decoder.take(value, Offset(0))
    backwards = value.index((9).to_bytes(8, "big"))
    for damaged in (value[:-1], value + b"\0", value[:backwards] + bytes(8) + value[backwards + 8 :], None, b""):
        with pytest.raises(UnreadableRemoteLogRecord, match="offset 5 "):
            decoder.take(damaged, Offset(5))
    bad_state = serialize(update(segment(1, 5, 9, {0: 0}), _FINISHED))[:-2] + b"\x07\0"
    with pytest.raises(UnreadableRemoteLogRecord, match="offset 6 "):
        decoder.take(bad_state, Offset(6))


def test_a_segment_without_an_id_is_no_claim() -> None:
    decoder, history = EventDecoder(), MetadataHistory()
    without_id = replace(segment(0, 0, 9, {0: 0}), segment_id=RemoteLogSegmentId(PARTITION, ZERO_UUID))
    events: list[MetadataEvent] = [without_id, fence(2)]
    for number, event in enumerate(events):
        decoder.take(serialize(event), Offset(number))
        history.take(0, Offset(number), event)
    assert come_to(decoder.partitions[PARTITION]) == Snapshot.of(history.caches[PARTITION], None, Offset(0))
