"""Segments and updates to records and back; records that say what cannot be."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.protocol.records.remote_log_records import (
    RemotePartitionDeleteMetadataRecord,
    TopicIdPartitionEntry,
    UnreadableRemoteLogRecord,
    encode_remote_log_record,
)
from milena.protocol.types import Offset
from milena.tiered.metadata.partition_names import partition_bytes, peek_partition
from milena.tiered.metadata.serialization import MetadataEvent, deserialize, serialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState, TopicIdPartition
from tests.unit.tiered.segments import KIP405_5, PARTITION, fence, segment, update

WITH_ALL = replace(segment(7, 6, 9, {2: 6, 3: 8}, txn_index_empty=False), custom_metadata=b"at")
EVENTS: list[MetadataEvent] = [
    *KIP405_5,
    WITH_ALL,
    *(update(WITH_ALL, state) for state in RemoteLogSegmentState),
    *(replace(fence(3), first_dirty=Offset(offset)) for offset in (0, 1 << 40)),
]


@pytest.mark.parametrize("event", EVENTS, ids=range(len(EVENTS)))
def test_what_was_written_is_read(event: MetadataEvent) -> None:
    assert deserialize(serialize(event), Offset(0)) == event


def test_equal_partitions_become_one_object() -> None:
    read = deserialize(serialize(WITH_ALL), Offset(0), {PARTITION: PARTITION})
    assert read is not None and read.segment_id.partition is PARTITION


@pytest.mark.parametrize("topic", ["t", "n\u00e4me", "x" * 126, "x" * 127, "x" * 249])
def test_the_partition_of_a_record_is_seen_without_reading_the_rest(topic: str) -> None:
    partition = TopicIdPartition(UUID(int=5 << 90), topic, 300)
    one = segment(1, 0, 9, {0: 0}, partition=partition)
    for event in (one, update(one, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)):
        assert peek_partition(serialize(event)) == partition_bytes(partition)
        assert peek_partition(memoryview(serialize(event))) == partition_bytes(partition)


@pytest.mark.parametrize("value", [None, b"", b"\x01\x00\x00", b"\x01\x02\x00\x02t", b"\x02\x00\x00\x02t" + bytes(40)])
def test_of_other_records_no_partition_is_seen(value: bytes | None) -> None:
    assert peek_partition(value) is None


def test_of_a_cut_record_the_partition_is_seen_or_nothing() -> None:
    whole = serialize(WITH_ALL)
    assert {peek_partition(whole[:length]) for length in range(len(whole))} == {None, partition_bytes(PARTITION)}


def test_a_record_about_no_segment_says_nothing() -> None:
    record = RemotePartitionDeleteMetadataRecord(
        topic_id_partition=TopicIdPartitionEntry(name="t", id=UUID(int=7), partition=0),
        broker_id=1,
        event_timestamp_ms=1,
        remote_partition_delete_state=0,
    )
    assert deserialize(encode_remote_log_record(record), Offset(3)) is None


def test_a_state_that_there_is_not_is_named_with_the_offset_of_its_record() -> None:
    data = bytearray(serialize(update(WITH_ALL, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)))
    assert data[-2] == RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    data[-2] = 7
    with pytest.raises(UnreadableRemoteLogRecord) as raised:
        deserialize(bytes(data), Offset(9))
    assert raised.value.offset == 9


def test_impossible_offsets_in_a_record_are_named_with_its_offset() -> None:
    good = serialize(segment(1, 5, 6, {0: 5}))
    end = good.index((6).to_bytes(8, "big"))
    bad = good[:end] + (4).to_bytes(8, "big") + good[end + 8 :]
    with pytest.raises(UnreadableRemoteLogRecord, match=r"offset 9 .* 5 to 4"):
        deserialize(bad, Offset(9))
