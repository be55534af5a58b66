"""Records of __consumer_offsets: Kafka's bytes, all versions, tombstones, types that are not known."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.protocol.records.coordinator_records import (
    CoordinatorKey,
    CoordinatorValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    UnknownValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from milena.protocol.schemas.undecodable import DecodeError
from tests.unit.protocol.schema_samples import kio_bytes, samples

COMMIT = OffsetCommitKey(group="g", topic="t", partition=3)
GROUP = GroupMetadataKey(group="g")
PAIRS: list[tuple[CoordinatorKey, type[CoordinatorValue]]] = [(COMMIT, OffsetCommitValue), (GROUP, GroupMetadataValue)]


@pytest.mark.parametrize(("key", "expected"), [(COMMIT, "000100016700017400000003"), (GROUP, "0002000167")])
def test_the_key_is_type_and_fields(key: CoordinatorKey, expected: str) -> None:
    assert encode_key(key).hex() == expected
    assert decode_key(bytes.fromhex(expected)) == key


def test_a_key_of_the_old_type_is_the_same_commit() -> None:
    assert decode_key(bytes.fromhex("000000016700017400000003")) == COMMIT


OFFSET = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "0000000000000000000500016d0000000000000009"),
        (1, "0001000000000000000500016d0000000000000009ffffffffffffffff"),
        (2, "0002000000000000000500016d0000000000000009"),
        (3, "000300000000000000050000000200016d0000000000000009"),
        (4, "0004000000000000000500000002026d000000000000000900"),
    ],
)
def test_an_offset_has_the_fields_of_its_version(version: int, expected: str) -> None:
    assert encode_value(OFFSET, version).hex() == expected
    read = decode_value(COMMIT, bytes.fromhex(expected))
    assert isinstance(read, OffsetCommitValue)
    assert (read.offset, read.metadata, read.commit_timestamp) == (5, "m", 9)
    assert read.leader_epoch == (2 if version >= 3 else -1)


def test_a_topic_id_is_a_tagged_field() -> None:
    value = OffsetCommitValue(offset=5, commit_timestamp=9, topic_id=UUID(int=7))
    encoded = encode_value(value)
    assert encoded[-19:].hex() == "010010" + value.topic_id.hex
    assert decode_value(COMMIT, encoded) == value


def test_an_offset_is_written_in_the_newest_version_or_in_1_where_it_expires() -> None:
    assert encode_value(OFFSET)[:2] == b"\0\4"
    expiring = OffsetCommitValue(offset=5, commit_timestamp=9, expire_timestamp=11)
    assert encode_value(expiring)[:2] == b"\0\1"
    assert decode_value(COMMIT, encode_value(expiring)) == expiring


def test_a_group_is_written_in_version_3() -> None:
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None)
    assert encode_value(value).hex() == "00030008636f6e73756d657200000001ffffffffffffffffffffffff00000000"


def test_a_member_lacks_its_instance_before_version_3_and_its_rebalance_timeout_before_1() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=6,
        session_timeout=5,
        subscription=b"s",
        assignment=b"a",
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=(member,))
    seen = {}
    for version in range(5):
        read = decode_value(GROUP, encode_value(group, version))
        assert isinstance(read, GroupMetadataValue)
        seen[version] = (read.members[0].group_instance_id, read.members[0].rebalance_timeout)
    assert seen == {0: (None, -1), 1: (None, 6), 2: (None, 6), 3: ("i", 6), 4: ("i", 6)}


@pytest.mark.parametrize(("key", "schema"), PAIRS)
def test_every_version_reads_back(key: CoordinatorKey, schema: type[CoordinatorValue]) -> None:
    for version in range(schema.__version__ + 1):
        for value in samples(schema, version):
            assert decode_value(key, encode_value(value, version)) == value


@pytest.mark.parametrize(("key", "schema"), PAIRS)
def test_the_newest_version_is_encoded_as_kio_encodes_its_form(
    key: CoordinatorKey, schema: type[CoordinatorValue]
) -> None:
    for value in samples(schema, 4):
        if isinstance(value, OffsetCommitValue):
            continue  # its expiry exists in version 1 only, which a class of kio's cannot say
        assert encode_value(value, 4)[2:] == kio_bytes(value)
    assert encode_key(key)[2:] == kio_bytes(key)


def test_no_value_is_a_tombstone() -> None:
    assert decode_value(COMMIT, None) is None


def test_an_unknown_type_is_kept_as_it_is() -> None:
    key = decode_key(b"\0\x05\0\1g\0\1m")
    assert key == UnknownKey(5, b"\0\x05\0\1g\0\1m")
    assert decode_value(key, b"\0\0abc") == UnknownValue(b"\0\0abc")
    assert decode_value(key, None) is None


@pytest.mark.parametrize("damaged", ["", "00", "0001", "0001000167", "00020001670000", "0002ffff"])
def test_a_damaged_key_is_refused(damaged: str) -> None:
    with pytest.raises(DecodeError):
        decode_key(bytes.fromhex(damaged))


@pytest.mark.parametrize("damaged", ["", "0005", "ffff", "0003", encode_value(OFFSET).hex()[:-2], "0000" + "00" * 19])
def test_a_damaged_value_or_a_newer_version_is_refused(damaged: str) -> None:
    with pytest.raises(DecodeError):
        decode_value(COMMIT, bytes.fromhex(damaged))
