"""Batches and records as text: what is shown, and that damage is shown too."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from milena.protocol.metadata_records.access import UserScramCredentialRecord
from milena.protocol.records.batch import BatchView, Codec, TimestampType
from milena.protocol.records.control_records import (
    CommitMarker,
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    control_batch,
)
from milena.protocol.records.coordinator_records import (
    CoordinatorKey,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from milena.protocol.records.describe import Content, describe_batch
from milena.protocol.records.records import Record, build_batch
from milena.protocol.records.transaction_records import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    TransactionState,
    encode_transaction_key,
    encode_transaction_value,
)
from milena.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

TOPIC_ID = UUID(int=(1 << 64) + 2)
TOPIC_TEXT = "AAAAAAAAAAEAAAAAAAAAAg"


def lines(data: bytes | bytearray, content: Content = Content.DATA, **options: Any) -> list[str]:
    return list(describe_batch(BatchView(memoryview(bytearray(data))), 17, content, **options))


def fields_of(line: str, name: str) -> str:
    """The part of a line from a name to the end."""
    return line[line.index(name) :]


def payload(record: MetadataRecord, **options: Any) -> str:
    batch = build_batch([Record(0, 0, None, encode_record(record, **options))])
    return fields_of(lines(batch, Content.METADATA)[1], "payload: ")


def test_a_batch_is_a_line_and_each_record_one() -> None:
    batch = build_batch(
        [Record(0, 0, b"k", b"v", (("h", b"x"), ("n", None))), Record(1, 5, None, None)],
        base_offset=Offset(7),
        base_timestamp=1_000,
        leader_epoch=LeaderEpoch(3),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(1),
        base_sequence=2**31 - 1,
        codec=Codec.GZIP,
    )
    head, first, second = lines(batch)
    view = BatchView(memoryview(batch))
    assert head == (
        "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 9 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false position: 17 CreateTime: 1005 "
        f"size: {len(batch)} magic: 2 compresscodec: gzip crc: {view.crc} isvalid: true"
    )
    assert first == (
        "| offset: 7 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 2147483647 headers: {h: x, n: null} "
        "key: k payload: v"
    )
    assert second == "| offset: 8 CreateTime: 1005 keySize: -1 valueSize: -1 sequence: 0 key: null payload: null"


def test_records_are_left_out_where_they_are_not_wanted() -> None:
    assert len(lines(build_batch([Record(0, 0, None, b"v")]), records=False)) == 1


def test_log_append_time_goes_by_its_name() -> None:
    batch = build_batch([Record(0, 0, None, b"v")], timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=44)
    assert "LogAppendTime: 44 size" in lines(batch)[0]
    assert "LogAppendTime: 44 keySize" in lines(batch)[1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"a b", "a b"), ("\u00e4".encode(), "\u00e4"), (b"a\nb", '"a\\nb"'), (b"\xff\x00", "0xff00"), (b"", "")],
)
def test_printable_text_is_text_and_the_rest_is_escaped_or_hex(value: bytes, shown: str) -> None:
    line = lines(build_batch([Record(0, 0, None, value)]))[1]
    assert fields_of(line, "payload: ") == f"payload: {shown}"


def test_a_content_is_known_by_the_topics_name() -> None:
    topics = ("__cluster_metadata", "__consumer_offsets", "orders")
    assert [Content.of_topic(topic) for topic in topics] == [Content.METADATA, Content.OFFSETS, Content.DATA]


@pytest.mark.parametrize(
    ("record", "options", "expected"),
    [
        (
            TopicRecord(name="t", topic_id=TOPIC_ID),
            {},
            f'payload: {{"type": "TOPIC_RECORD", "version": 0, "data": {{"name": "t", "topicId": "{TOPIC_TEXT}"}}}}',
        ),
        (
            PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=(1, 2)),
            {},
            'payload: {"type": "PARTITION_CHANGE_RECORD", "version": 2, "data": '
            f'{{"partitionId": 1, "topicId": "{TOPIC_TEXT}", "isr": [1, 2]}}}}',
        ),
        (
            UserScramCredentialRecord(
                name="u", mechanism=1, salt=b"salt", stored_key=b"", server_key=b"", iterations=4096
            ),
            {},
            'payload: {"type": "USER_SCRAM_CREDENTIAL_RECORD", "version": 0, "data": {"name": "u", "mechanism": 1, '
            '"salt": "c2FsdA==", "storedKey": "", "serverKey": "", "iterations": 4096}}',
        ),
    ],
)
def test_metadata_records_are_json_under_kafkas_names(
    record: MetadataRecord, options: dict[str, Any], expected: str
) -> None:
    assert payload(record, **options) == expected


def test_fields_that_a_version_lacks_are_not_shown() -> None:
    partition = PartitionRecord(partition_id=1, topic_id=TOPIC_ID)
    assert '"version": 0' in payload(partition, version=0) and "directories" not in payload(partition, version=0)
    assert '"version": 1' in payload(partition, version=1) and '"directories": []' in payload(partition, version=1)
    broker = RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=2)
    assert "isMigratingZkBroker" not in payload(broker, version=1)
    assert '"isMigratingZkBroker": false' in payload(broker, version=4)


@pytest.mark.parametrize(
    ("record", "version", "expected"),
    [
        (CommitMarker(coordinator_epoch=4), 0, '{"type": "COMMIT", "version": 0, "data": {"coordinatorEpoch": 4}}'),
        (SnapshotHeader(last_contained_log_timestamp=9), 0, '"data": {"lastContainedLogTimestamp": 9}}'),
        (SnapshotFooter(), 0, '{"type": "SNAPSHOT_FOOTER", "version": 0, "data": {}}'),
        (KRaftVersion(kraft_version=1), 0, '{"type": "KRAFT_VERSION", "version": 0, "data": {"kraftVersion": 1}}'),
        (
            LeaderChange(leader_id=3, voters=(Voter(voter_id=3),)),
            0,
            '"data": {"leaderId": 3, "voters": [{"voterId": 3}], "grantingVoters": []}}',
        ),
        (
            LeaderChange(leader_id=3, voters=(Voter(voter_id=3, voter_directory_id=TOPIC_ID),)),
            1,
            f'"voters": [{{"voterId": 3, "voterDirectoryId": "{TOPIC_TEXT}"}}], "grantingVoters": []}}}}',
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_control_records_are_json_in_any_log(record: ControlRecord, version: int, expected: str) -> None:
    data = control_batch([record], timestamp=1, version=version)
    for content in Content:
        assert fields_of(lines(data, content)[1], "control: ").endswith(expected)


def offsets_line(key: CoordinatorKey | bytes, value: bytes | None) -> str:
    raw = key if isinstance(key, bytes) else encode_key(key)
    return fields_of(lines(build_batch([Record(0, 0, raw, value)]), Content.OFFSETS)[1], "key: ")


def test_committed_offsets_and_groups_are_json() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=2)
    value = OffsetCommitValue(offset=5, leader_epoch=1, commit_timestamp=9)
    shown = 'key: {"type": "OFFSET_COMMIT", "data": {"group": "g", "topic": "t", "partition": 2}} payload: '
    assert offsets_line(key, encode_value(value)) == shown + (
        '{"version": 4, "data": {"offset": 5, "leaderEpoch": 1, "metadata": "", "commitTimestamp": 9}}'
    )
    assert offsets_line(key, None) == shown + "null"
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=1, subscription=b"s", assignment=b""
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="p", leader="m", members=(member,))
    line = offsets_line(GroupMetadataKey(group="g"), encode_value(group))
    assert line.startswith('key: {"type": "GROUP_METADATA", "data": {"group": "g"}} payload: {"version": 3, "data":')
    assert '"members": [{"memberId": "m", "groupInstanceId": null, "clientId": "c"' in line


def test_a_type_that_is_not_known_is_shown_as_hex() -> None:
    assert offsets_line(b"\0\x05\0\1g", b"\0\0ab") == (
        'key: {"type": "UNKNOWN (5)", "data": "0005000167"} payload: {"version": 0, "data": "00006162"}'
    )


def test_what_cannot_be_read_is_shown_as_hex_with_the_reason() -> None:
    batch = build_batch([Record(0, 0, None, b"\x01\x63\x00")])
    assert lines(batch, Content.METADATA)[1].endswith("payload: 0x016300 (a metadata record of the unknown type 99)")
    assert "key: null (a record of the coordinator without a key)" in lines(batch, Content.OFFSETS)[1]
    control = build_batch([Record(0, 0, b"\0\0\0\x02", b"\0")], control=True)
    assert "control: 0x00 (a control record: 2 bytes expected" in lines(control)[1]


def test_a_damaged_batch_is_shown_as_far_as_it_can_be_read() -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"w")]))
    batch[-1] = 0x20
    head, first, last = lines(batch)
    assert head.endswith("isvalid: false")
    assert first.endswith("payload: v")
    assert last.startswith("| the records cannot be read: ")
    batch[22] = 7
    assert "compresscodec: (codec 7 in the attributes is unknown)" in lines(batch)[0]


@given(st.data(), st.sampled_from(Content), st.booleans())
def test_any_damage_is_shown_and_nothing_is_raised(data: st.DataObject, content: Content, control: bool) -> None:
    key, value = st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30)
    batch = bytearray(build_batch([Record(0, 0, data.draw(key), data.draw(value))], control=control))
    if data.draw(st.booleans()):
        batch[data.draw(st.integers(17, len(batch) - 1))] = data.draw(st.integers(0, 255))
    assert all("\n" not in line for line in lines(batch, content))


def transaction_line(key: bytes | None, value: bytes | None) -> str:
    batch = build_batch([Record(0, 0, key, value)])
    return fields_of(lines(batch, Content.TRANSACTIONS)[1], "key: ")


def test_the_state_of_a_transactional_id_is_shown_by_its_name() -> None:
    key = encode_transaction_key(TransactionLogKey(transactional_id="t"))
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=1,
        transaction_timeout_ms=9,
        transaction_status=TransactionState.PREPARE_ABORT,
        transaction_partitions=(TransactionLogPartitions(topic="a", partition_ids=(1, 2)),),
        transaction_last_update_timestamp_ms=7,
        transaction_start_timestamp_ms=6,
        client_transaction_version=2,
    )
    shown_key = 'key: {"type": "TRANSACTION_LOG", "data": {"transactionalId": "t"}} payload: '
    assert transaction_line(key, encode_transaction_value(value, 1)) == shown_key + (
        '{"version": 1, "data": {"producerId": 5, "producerEpoch": 1, "transactionTimeoutMs": 9, '
        '"transactionStatus": "PrepareAbort", "transactionPartitions": [{"topic": "a", "partitionIds": [1, 2]}], '
        '"transactionLastUpdateTimestampMs": 7, "transactionStartTimestampMs": 6, "clientTransactionVersion": 2}}'
    )
    assert transaction_line(key, None) == shown_key + "null"


def test_transactional_records_that_are_not_known_are_shown_as_hex() -> None:
    assert transaction_line(b"\0\3ab", b"\0\2cd") == (
        'key: {"type": "UNKNOWN (3)", "data": "00036162"} payload: {"version": 2, "data": "00026364"}'
    )
    shown = transaction_line(None, b"\0\1")
    assert shown.startswith("key: null (a record of the coordinator without a key) payload: 0x0001 (")
