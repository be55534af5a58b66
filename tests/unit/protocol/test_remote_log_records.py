"""Records of __remote_log_metadata: Kafka's bytes (docs/kafka-semantics.md: Test vectors), and records that no broker
here can read."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.protocol.records.remote_log_records import (
    RemoteLogRecord,
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    UnknownRemoteLogRecord,
    UnreadableRemoteLogRecord,
    decode_remote_log_record,
    encode_remote_log_record,
)
from milena.protocol.types import Offset

PARTITION = TopicIdPartitionEntry(name="t", id=UUID("11223344-5566-7788-99aa-bbccddeeff00"), partition=3)
SEGMENT = RemoteLogSegmentIdEntry(topic_id_partition=PARTITION, id=UUID(int=1 << 64 | 2))
EPOCHS = (SegmentLeaderEpochEntry(leader_epoch=0, offset=10), SegmentLeaderEpochEntry(leader_epoch=2, offset=15))
SEGMENT_HEX = (
    "0100000274112233445566778899aabbccddeeff0000000003000000000000000001000000000000000200000000000000000a"
    "00000000000000140000000100000000000003e800000000000007d00300000000000000000000000a0000000002000000000000000f00"
    "0000020000"
)


def segment(*, txn_index_empty: bool) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=SEGMENT,
        start_offset=10,
        end_offset=20,
        broker_id=1,
        max_timestamp_ms=1000,
        event_timestamp_ms=2000,
        segment_leader_epochs=EPOCHS,
        segment_size_in_bytes=512,
        remote_log_segment_state=0,
        txn_index_empty=txn_index_empty,
    )


UPDATE = RemoteLogSegmentMetadataUpdateRecord(
    remote_log_segment_id=SEGMENT,
    broker_id=1,
    event_timestamp_ms=3000,
    custom_metadata=b"\x07\x08",
    remote_log_segment_state=1,
)
DELETION = RemotePartitionDeleteMetadataRecord(
    topic_id_partition=PARTITION, broker_id=1, event_timestamp_ms=4000, remote_partition_delete_state=0
)
VECTORS = [
    (segment(txn_index_empty=True), SEGMENT_HEX + "0001000101"),
    (segment(txn_index_empty=False), SEGMENT_HEX + "0000"),
    (
        UPDATE,
        "0101000274112233445566778899aabbccddeeff00000000030000000000000000010000000000000002000000"
        "00010000000000000bb80307080100",
    ),
    (DELETION, "0102000274112233445566778899aabbccddeeff000000000300000000010000000000000fa00000"),
]


@pytest.mark.parametrize(("record", "expected"), VECTORS, ids=["segment", "with transactions", "update", "deletion"])
def test_the_bytes_are_those_of_kafka(record: RemoteLogRecord, expected: str) -> None:
    assert encode_remote_log_record(record).hex() == expected
    assert decode_remote_log_record(bytes.fromhex(expected), Offset(0)) == record


def test_a_record_of_a_snapshot_is_read_as_it_was_written() -> None:
    record = RemoteLogSegmentMetadataSnapshotRecord(
        segment_id=SEGMENT.id,
        start_offset=10,
        end_offset=20,
        broker_id=1,
        max_timestamp_ms=-1,
        event_timestamp_ms=2000,
        segment_leader_epochs=EPOCHS,
        segment_size_in_bytes=512,
        custom_metadata=b"",
        remote_log_segment_state=2,
        txn_index_empty=True,
    )
    assert decode_remote_log_record(encode_remote_log_record(record), Offset(0)) == record


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("020000", "frame version 2"),
        ("010400", "type 4"),
        ("01ff7f00", "type 16383"),
        ("010001", "RemoteLogSegmentMetadataRecord of version 1"),
    ],
)
def test_what_a_newer_broker_wrote_is_named_with_its_offset(head: str, why: str) -> None:
    data = bytes.fromhex(head) + encode_remote_log_record(UPDATE)[3:]
    with pytest.raises(UnknownRemoteLogRecord, match=f"offset 77 .*{why}") as raised:
        decode_remote_log_record(data, Offset(77))
    assert raised.value.offset == 77


def test_a_field_that_a_newer_broker_added_is_passed_over() -> None:
    data = encode_remote_log_record(UPDATE)
    assert data.endswith(b"\x00")
    added = data[:-1] + bytes.fromhex("01" + "09" + "02" + "abcd")
    assert decode_remote_log_record(added, Offset(0)) == UPDATE


@pytest.mark.parametrize("data", [None, b"", b"\x01", encode_remote_log_record(UPDATE) + b"\x00", b"\xff" * 40])
def test_damaged_records_are_named_with_their_offset(data: bytes | None) -> None:
    with pytest.raises(UnreadableRemoteLogRecord) as raised:
        decode_remote_log_record(data, Offset(5))
    assert raised.value.offset == 5


def test_no_cut_of_a_record_is_read() -> None:
    for record, _ in VECTORS:
        whole = encode_remote_log_record(record)
        for length in range(len(whole)):
            with pytest.raises(UnreadableRemoteLogRecord):
                decode_remote_log_record(whole[:length], Offset(0))
