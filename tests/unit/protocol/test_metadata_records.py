"""Metadata records: Kafka's bytes, every version, what is left out and what is skipped."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    EndTransactionRecord,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnknownRecord,
    decode_record,
    encode_record,
    record_types,
)
from milena.protocol.metadata_records.access import ClientQuotaRecord, QuotaEntity
from milena.protocol.schemas.undecodable import DecodeError
from tests.unit.protocol.schema_samples import kio_bytes, sample, samples

T = UUID("11223344-5566-7788-99aa-bbccddeeff00")
S = UUID(int=(1 << 64) | 2)

VECTORS: list[tuple[MetadataRecord, int, str]] = [
    (
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        0,
        "010c00116d657461646174612e76657273696f6e001b00",
    ),
    (NoOpRecord(), 0, "01140000"),
    (EndTransactionRecord(), 0, "01180000"),
    (BeginTransactionRecord(name="Bootstrap records"), 0, "01170001001212426f6f747374726170207265636f726473"),
    (TopicRecord(name="t", topic_id=T), 0, "0102000274112233445566778899aabbccddeeff0000"),
    (
        PartitionRecord(
            partition_id=0,
            topic_id=T,
            replicas=(1, 2),
            isr=(1, 2),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=(S, S),
        ),
        1,
        "01030100000000112233445566778899aabbccddeeff000300000001000000020300000001000000020101000000010000000000000000"
        "03000000000000000100000000000000020000000000000001000000000000000200",
    ),
    (
        PartitionChangeRecord(partition_id=0, topic_id=T, isr=(1,), leader=1),
        2,
        "01050200000000112233445566778899aabbccddeeff000200050200000001010400000001",
    ),
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=S,
            broker_epoch=8,
            end_points=(Endpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
            features=(FeatureRange(name="metadata.version", min_supported_version=7, max_supported_version=27),),
            log_dirs=(S,),
        ),
        3,
        "0100030000000100000000000000000100000000000000020000000000000008020a504c41494e544558540268238400000002116d6574"
        "61646174612e76657273696f6e0007001b000001000100110200000000000000010000000000000002",
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=8, fenced=-1),
        0,
        "011100000000010000000000000008010001ff",
    ),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=8, next_producer_id=1000),
        0,
        "010f0000000001000000000000000800000000000003e800",
    ),
    (
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
        0,
        "0104000401146d696e2e696e73796e632e7265706c69636173023100",
    ),
]


@pytest.mark.parametrize(("record", "version", "expected"), VECTORS, ids=lambda value: type(value).__name__)
def test_the_bytes_are_those_of_kafkas_classes(record: MetadataRecord, version: int, expected: str) -> None:
    assert encode_record(record, version=version).hex() == expected
    assert decode_record(bytes.fromhex(expected)) == record


@pytest.mark.parametrize("schema", record_types().values())
def test_the_newest_version_of_every_record_is_encoded_as_kio_encodes_its_form(schema: type[MetadataRecord]) -> None:
    for entity in samples(schema, schema.__version__):
        framed = encode_record(entity)
        assert framed[:3] == bytes([1, schema.KEY, schema.__version__])
        assert framed[3:] == kio_bytes(entity)


@pytest.mark.parametrize("schema", record_types().values())
def test_every_version_of_every_record_reads_back_what_it_has(schema: type[MetadataRecord]) -> None:
    for version in range(schema.__version__ + 1):
        for entity in samples(schema, version):
            assert decode_record(encode_record(entity, version=version)) == entity


def test_a_field_that_a_version_lacks_is_left_out_and_takes_its_default() -> None:
    written = PartitionRecord(partition_id=3, topic_id=T, directories=(S,), eligible_leader_replicas=(1,))
    assert decode_record(encode_record(written, version=0)) == PartitionRecord(partition_id=3, topic_id=T)


def test_the_record_keys_are_kafkas() -> None:
    assert {key: schema.__name__.removesuffix("Record") for key, schema in record_types().items()} == {
        0: "RegisterBroker",
        1: "UnregisterBroker",
        2: "Topic",
        3: "Partition",
        4: "Config",
        5: "PartitionChange",
        7: "FenceBroker",
        8: "UnfenceBroker",
        9: "RemoveTopic",
        10: "DelegationToken",
        11: "UserScramCredential",
        12: "FeatureLevel",
        14: "ClientQuota",
        15: "ProducerIds",
        17: "BrokerRegistrationChange",
        18: "AccessControlEntry",
        19: "RemoveAccessControlEntry",
        20: "NoOp",
        21: "ZkMigrationState",
        22: "RemoveUserScramCredential",
        23: "BeginTransaction",
        24: "EndTransaction",
        25: "AbortTransaction",
        26: "RemoveDelegationToken",
        27: "RegisterController",
        28: "ClearElr",
        29: "UnregisterController",
    }


@pytest.mark.parametrize(
    ("schema", "versions"),
    [
        (RegisterBrokerRecord, {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (BrokerRegistrationChangeRecord, {7: 1, 16: 1, 17: 2, 29: 2, 30: 3}),
        (PartitionRecord, {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (PartitionChangeRecord, {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (TopicRecord, {7: 0, 33: 0}),
    ],
)
def test_the_metadata_version_picks_the_version(schema: type[MetadataRecord], versions: dict[int, int]) -> None:
    record = sample(schema, 0)
    assert {level: encode_record(record, level)[2] for level in versions} == versions


def test_an_unknown_tagged_field_is_skipped() -> None:
    framed = encode_record(PartitionChangeRecord(partition_id=1, topic_id=T, leader=4))
    fields, tags = framed[:-7], framed[-7:]
    assert tags.hex() == "01010400000004"
    with_unknown = fields + bytes.fromhex("02010400000004") + bytes.fromhex("630301ff02")
    assert decode_record(with_unknown) == PartitionChangeRecord(partition_id=1, topic_id=T, leader=4)


def test_an_unknown_type_and_an_unknown_version_are_distinguished_from_damage() -> None:
    with pytest.raises(UnknownRecord, match="type 30"):
        decode_record(bytes.fromhex("011e0000"))
    with pytest.raises(UnknownRecord, match="TopicRecord in version 1"):
        decode_record(bytes.fromhex("010201"))


@pytest.mark.parametrize("damaged", ["", "01", "0114", "00140000", "02140000", "0114000000", "0102000274", "01140001"])
def test_damaged_bytes_are_no_record(damaged: str) -> None:
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex(damaged))


@given(st.integers(0, len(VECTORS) - 1), st.data())
def test_any_cut_or_changed_record_decodes_or_is_refused(which: int, data: st.DataObject) -> None:
    framed = bytearray.fromhex(VECTORS[which][2])
    framed[data.draw(st.integers(0, len(framed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(framed)))
    for damaged in (framed, framed[:cut]):
        with contextlib.suppress(DecodeError):
            decode_record(damaged)


def test_a_record_is_frozen_compared_by_value_and_replaced() -> None:
    record = TopicRecord(name="a", topic_id=T)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del record.name
    same: Any = TopicRecord(name="a", topic_id=T)
    assert record == same and hash(record) == hash(same)
    assert NoOpRecord() != EndTransactionRecord()
    assert dataclasses.replace(record, name="b") == TopicRecord(name="b", topic_id=T)
    assert repr(record) == f"TopicRecord(name='a', topic_id={T!r})"


def test_a_record_needs_its_fields_and_has_no_others() -> None:
    with pytest.raises(TypeError, match="topic_id"):
        TopicRecord(name="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        TopicRecord(name="a", topic_id=T, colour=1)  # type: ignore[call-arg]


def test_records_about_access_are_imported_when_one_is_met() -> None:
    quota = ClientQuotaRecord(
        entity=(QuotaEntity(entity_type="user", entity_name=None),), key="k", value=1.5, remove=False
    )
    framed = encode_record(quota)
    assert decode_record(framed) == quota
    script = (
        "import sys; import milena.protocol.metadata_records as m; lazy = 'milena.protocol.metadata_records.access';"
        f"assert lazy not in sys.modules; m.decode_record(bytes.fromhex({framed.hex()!r})); assert lazy in sys.modules;"
        "assert not any(name.split('.')[0] in ('kio', 'hypothesis', 'asyncio') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
