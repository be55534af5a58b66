"""The records of ``__cluster_metadata-0`` that Kafka 4.4 writes and reads.

A record is encoded as frame version (1), key (the record's type) and version, all unsigned varints, and the fields. The
cluster's metadata.version determines the version that is written; every version can be read. The module of access
records (``protocol.metadata_records.access``) is imported when the first one is decoded.
"""

from __future__ import annotations

from typing import Final

from milena.protocol.metadata_records.base import MetadataRecord
from milena.protocol.metadata_records.brokers import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from milena.protocol.metadata_records.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    ZkMigrationStateRecord,
)
from milena.protocol.metadata_records.topics import (
    NO_LEADER_CHANGE,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import decode_from, encode_into
from milena.protocol.schemas.undecodable import DecodeError

__all__ = [
    "LATEST_METADATA_VERSION",
    "NO_LEADER_CHANGE",
    "AbortTransactionRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ConfigRecord",
    "EndTransactionRecord",
    "Endpoint",
    "FeatureLevelRecord",
    "FeatureRange",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveTopicRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnknownRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "ZkMigrationStateRecord",
    "decode_record",
    "decode_versioned_record",
    "encode_record",
    "record_types",
]

LATEST_METADATA_VERSION: Final = 33
"""metadata.version of Kafka 4.4 (4.4-IV2)."""

_FRAME_VERSION: Final = 1

_TYPES: Final[dict[int, type[MetadataRecord]]] = {
    record.KEY: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RegisterControllerRecord,
        UnregisterControllerRecord,
        ClearElrRecord,
    )
}
_ACCESS_KEYS: Final = frozenset({10, 11, 14, 18, 19, 22, 26})


class UnknownRecord(DecodeError):
    """The type or version of a record is unknown. Skipping the record would leave a wrong image."""


def encode_record(
    record: MetadataRecord, metadata_version: int = LATEST_METADATA_VERSION, *, version: int | None = None
) -> bytes:
    """Encode the record in the version of this metadata.version, or in ``version``.

    Fields that the version lacks are omitted.
    """
    out = Writer()
    chosen = record.version_at(metadata_version) if version is None else version
    out.uvarint(_FRAME_VERSION)
    out.uvarint(record.KEY)
    out.uvarint(chosen)
    encode_into(out, record, chosen)
    return bytes(out)


def decode_record(data: Data) -> MetadataRecord:
    """Decode a record. Raises as ``decode_versioned_record``."""
    return decode_versioned_record(data)[0]


def decode_versioned_record(data: Data) -> tuple[MetadataRecord, int]:
    """Decode a record; return it with its version.

    Raises UnknownRecord for an unknown type or version, DecodeError for damaged bytes or bytes after the record.
    """
    reader = Reader(data)
    frame = reader.uvarint()
    if frame != _FRAME_VERSION:
        raise DecodeError(f"a metadata record in frame version {frame}, not {_FRAME_VERSION}")
    key, version = reader.uvarint(), reader.uvarint()
    schema = record_types().get(key) if key in _ACCESS_KEYS else _TYPES.get(key)
    if schema is None:
        raise UnknownRecord(f"a metadata record of the unknown type {key}")
    if version > schema.__version__:
        raise UnknownRecord(f"{schema.__name__} in version {version}, known are 0 to {schema.__version__}")
    record = decode_from(reader, schema, version)
    reader.expect_end()
    return record, version


def record_types() -> dict[int, type[MetadataRecord]]:
    """Return all record types by key."""
    from milena.protocol.metadata_records import access

    return _TYPES | {
        record.KEY: record
        for record in (
            access.DelegationTokenRecord,
            access.UserScramCredentialRecord,
            access.ClientQuotaRecord,
            access.AccessControlEntryRecord,
            access.RemoveAccessControlEntryRecord,
            access.RemoveUserScramCredentialRecord,
            access.RemoveDelegationTokenRecord,
        )
    }
