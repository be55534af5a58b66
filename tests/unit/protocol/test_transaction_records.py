"""Records of __transaction_state: the bytes that Kafka 4.4 wrote, all versions, tombstones, what is not known."""

from __future__ import annotations

import pytest

from milena.protocol.records.transaction_records import (
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    TransactionState,
    UnknownTransactionKey,
    UnknownTransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from milena.protocol.schemas.undecodable import DecodeError
from tests.unit.protocol.schema_samples import kio_bytes, samples

LEVEL_2 = {
    "Empty": "0001000000000000000500000000ea600000000001a220a98f87ffffffffffffffff0100080000000000000005",
    "Ongoing": "0001000000000000000500000000ea600102076f7264657273020000000000000001a220a98fd000"
    "0001a220a98fd0020008000000000000000502020002",
    "PrepareCommit": "0001000000000000000500010000ea600202076f7264657273020000000000000001a220a993a700"
    "0001a220a98fd0020008000000000000000502020002",
    "CompleteCommit": "0001000000000000000500010000ea600401000001a220a993ad000001a220a98fd0020008000000"
    "000000000502020002",
}
"""A transaction of Kafka's producer under transaction.version 2."""
ELDER_CLIENT = {
    "Ongoing": "0001000000000000000300000000ea60010304706179020000000000135f5f636f6e73756d65725f"
    "6f666673657473020000000300000001a220a96ed0000001a220a96ec00100080000000000000003",
    "PrepareAbort": "0001000000000000000100000000ea600302076f7264657273020000000100000001a220a96df400"
    "0001a220a96dca0100080000000000000001",
    "CompleteAbort": "0001000000000000000100000000ea600501000001a220a96df5000001a220a96dca0100080000000000000001",
}
"""Of librdkafka, which has no EndTxn v5, under level 2: with offsets of a group, and aborted."""
LEVEL_0 = {
    "Empty": "0000000000000000000600000000ea6000ffffffff000001a220a9c992ffffffffffffffff",
    "Ongoing": "0000000000000000000600000000ea60010000000100066f72646572730000000100000001000001"
    "a220a9c9b2000001a220a9c9b2",
    "PrepareCommit": "0000000000000000000600000000ea60020000000100066f72646572730000000100000001000001"
    "a220a9cda9000001a220a9c9b2",
    "CompleteCommit": "0000000000000000000600000000ea600400000000000001a220a9cdaa000001a220a9c9b2",
}
"""Of Kafka's producer under level 0."""
WRITTEN = [
    pytest.param(state, written, id=f"{name}-{state}")
    for name, values in (("2", LEVEL_2), ("elder", ELDER_CLIENT), ("0", LEVEL_0))
    for state, written in values.items()
]


def test_the_key_is_the_type_and_the_transactional_id() -> None:
    key = TransactionLogKey(transactional_id="commits")
    assert encode_transaction_key(key).hex() == "00000007636f6d6d697473"
    assert decode_transaction_key(encode_transaction_key(key)) == key


@pytest.mark.parametrize(("state", "written"), WRITTEN)
def test_what_kafka_wrote_is_read_and_written_again(state: str, written: str) -> None:
    data = bytes.fromhex(written)
    value = decode_transaction_value(data)
    assert isinstance(value, TransactionLogValue)
    assert TransactionState(value.transaction_status).label == state
    assert encode_transaction_value(value, data[1]) == data


def test_the_fields_of_a_prepared_transaction() -> None:
    assert decode_transaction_value(bytes.fromhex(LEVEL_2["PrepareCommit"])) == TransactionLogValue(
        producer_id=5,
        previous_producer_id=5,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.PREPARE_COMMIT,
        transaction_partitions=(TransactionLogPartitions(topic="orders", partition_ids=(0,)),),
        transaction_last_update_timestamp_ms=1_795_844_314_023,
        transaction_start_timestamp_ms=1_795_844_313_040,
        client_transaction_version=2,
    )


def test_an_empty_id_has_no_partitions_and_no_start() -> None:
    for written in (LEVEL_2["Empty"], LEVEL_0["Empty"]):
        value = decode_transaction_value(bytes.fromhex(written))
        assert isinstance(value, TransactionLogValue)
        assert value.transaction_partitions is None
        assert value.transaction_start_timestamp_ms == -1


def test_version_0_lacks_the_tagged_fields() -> None:
    value = decode_transaction_value(bytes.fromhex(LEVEL_2["Ongoing"]))
    assert isinstance(value, TransactionLogValue)
    read = decode_transaction_value(encode_transaction_value(value, 0))
    assert isinstance(read, TransactionLogValue)
    assert (read.previous_producer_id, read.client_transaction_version) == (-1, 0)
    assert read.transaction_partitions == value.transaction_partitions


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_reads_back(version: int) -> None:
    for value in samples(TransactionLogValue, version):
        assert decode_transaction_value(encode_transaction_value(value, version)) == value


def test_the_newest_version_is_encoded_as_kio_encodes_its_form() -> None:
    for value in samples(TransactionLogValue, 1):
        assert encode_transaction_value(value, 1)[2:] == kio_bytes(value)
    key = TransactionLogKey(transactional_id="naïve")
    assert encode_transaction_key(key)[2:] == kio_bytes(key)


def test_no_value_is_a_tombstone() -> None:
    assert decode_transaction_value(None) is None


def test_unknown_types_and_versions_are_values_of_their_own() -> None:
    assert decode_transaction_key(b"\0\3abc") == UnknownTransactionKey(3, b"\0\3abc")
    assert decode_transaction_value(b"\0\2abc") == UnknownTransactionValue(2, b"\0\2abc")
    assert decode_transaction_value(b"\xff\xff") == UnknownTransactionValue(-1, b"\xff\xff")


@pytest.mark.parametrize("written", ["00", "0000000000", LEVEL_0["Ongoing"][:-2], LEVEL_2["Ongoing"] + "00"])
def test_damage_is_an_error(written: str) -> None:
    with pytest.raises(DecodeError):
        decode_transaction_value(bytes.fromhex(written))


@pytest.mark.parametrize("written", ["00", "00000009616263", "0000000361626364"])
def test_a_damaged_key_is_an_error(written: str) -> None:
    with pytest.raises(DecodeError):
        decode_transaction_key(bytes.fromhex(written))


def test_the_names_of_the_states_are_kafkas() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
