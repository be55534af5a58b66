"""Control records: Kafka's bytes, versions, types that are not known."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.protocol.records.batch import BatchView, CorruptBatch, iter_batches
from milena.protocol.records.control_records import (
    AbortMarker,
    CommitMarker,
    ControlRecord,
    ControlType,
    DynamicVoter,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    SupportedKRaftVersions,
    UnknownControl,
    Voter,
    VoterEndpoint,
    control_batch,
    control_of,
    decode_control,
    encode_control_key,
    encode_control_value,
)
from milena.protocol.records.records import Record, iter_records
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.unit.protocol.schema_samples import samples

TYPES: list[type[ControlRecord]] = [
    AbortMarker,
    CommitMarker,
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KRaftVersion,
    KRaftVoters,
]
DIRECTORY = UUID(int=5)


def test_the_keys_are_kafkas() -> None:
    keys = [encode_control_key(next(samples(schema, 0))).hex() for schema in TYPES]
    assert keys == [f"0000000{number}" for number in range(7)]
    assert [schema.TYPE for schema in TYPES] == list(ControlType)


@pytest.mark.parametrize(
    ("record", "version", "expected"),
    [
        (
            LeaderChange(leader_id=3, voters=(Voter(voter_id=3),), granting_voters=(Voter(voter_id=3),)),
            0,
            "00000000000302000000030002000000030000",
        ),
        (KRaftVersion(kraft_version=1), 0, "0000000100"),
        (CommitMarker(coordinator_epoch=7), 0, "000000000007"),
        (SnapshotHeader(last_contained_log_timestamp=1), 0, "0000000000000000000100"),
        (SnapshotFooter(), 0, "000000"),
        (
            LeaderChange(leader_id=3, voters=(Voter(voter_id=3, voter_directory_id=DIRECTORY),)),
            1,
            "000100000003020000000300000000000000000000000000000005000100",
        ),
        (
            KRaftVoters(
                voters=(
                    DynamicVoter(
                        voter_id=3,
                        voter_directory_id=DIRECTORY,
                        endpoints=(VoterEndpoint(name="C", host="h", port=9093),),
                        k_raft_version_feature=SupportedKRaftVersions(min_supported_version=0, max_supported_version=1),
                    ),
                )
            ),
            0,
            "0000020000000300000000000000000000000000000005020243026823850000000001000000",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_values_are_kafkas(record: ControlRecord, version: int, expected: str) -> None:
    assert encode_control_value(record, version).hex() == expected
    assert decode_control(encode_control_key(record), bytes.fromhex(expected)) == record


@pytest.mark.parametrize("schema", TYPES)
def test_every_version_reads_back(schema: type[ControlRecord]) -> None:
    for version in range(schema.__version__ + 1):
        for record in samples(schema, version):
            assert decode_control(encode_control_key(record), encode_control_value(record, version)) == record


def test_a_control_batch_carries_the_flag_the_offsets_and_the_producer() -> None:
    data = control_batch(
        [CommitMarker(coordinator_epoch=4)],
        timestamp=99,
        base_offset=Offset(12),
        leader_epoch=LeaderEpoch(2),
        producer_id=ProducerId(5),
        producer_epoch=ProducerEpoch(1),
        transactional=True,
    )
    (batch,) = iter_batches(memoryview(data))
    assert batch.is_control and batch.is_transactional and batch.is_valid
    assert (batch.base_offset, batch.leader_epoch, batch.max_timestamp, batch.base_sequence) == (12, 2, 99, -1)
    (record,) = iter_records(batch)
    assert control_of(record) == CommitMarker(coordinator_epoch=4)


def test_several_control_records_share_a_batch() -> None:
    written = [SnapshotHeader(last_contained_log_timestamp=1), KRaftVersion(kraft_version=1)]
    batch = BatchView(memoryview(control_batch(list(written), timestamp=1)))
    assert [control_of(record) for record in iter_records(batch)] == written


def test_an_unknown_type_is_kept_as_it_is() -> None:
    assert decode_control(b"\0\0\0\x09", b"\0\0ab") == UnknownControl(9, b"\0\0ab")


def test_a_newer_marker_is_read_as_far_as_it_is_known() -> None:
    newer = b"\0\x01" + b"\0\0\0\x04" + b"more"
    assert decode_control(b"\0\0\0\0", newer) == AbortMarker(coordinator_epoch=4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0"),
        (b"\0\0\0\x03", None),
        (b"\0\0\0", b"\0\0"),
        (b"\xff\xff\0\x03", b"\0\0"),
        (b"\0\0\0\x03", b""),
        (b"\0\0\0\x03", b"\0\0\0"),
        (b"\0\0\0\x03", b"\0\x05" + bytes(9)),
        (b"\0\0\0\x04", b"\0\0\0\0"),
    ],
)
def test_damage_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_control(key, value)
    with pytest.raises(CorruptBatch):
        control_of(Record(0, 0, key, value))
