"""Records of control batches: transaction markers, and the control records of a raft log (KIP-595, KIP-630, KIP-853).

The key consists of int16 version 0 and int16 type. The value consists of an int16 version and the fields, which are
flexible except in transaction markers.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, TypeAlias, Unpack
from uuid import UUID

from milena.protocol.records.batch import FIRST_OFFSET, BatchHeader, CorruptBatch
from milena.protocol.records.records import Record, build_batch
from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_TYPE,
    Entity,
    decode_from,
    encode_into,
    versioned,
)
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import ZERO_UUID, Offset, ProducerEpoch, ProducerId

_KEY_VERSION: Final = 0


class ControlType(IntEnum):
    """Types of control records, by the number in the key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(Entity):
    """A control record of a known type."""

    __slots__ = ()

    TYPE: ClassVar[ControlType]


@versioned
class AbortMarker(ControlRecord):
    """The producer's transaction was aborted."""

    TYPE: ClassVar[ControlType] = ControlType.ABORT
    __flexible__: ClassVar[bool] = False
    FLEXIBLE_SINCE: ClassVar[int] = 1

    coordinator_epoch: int = field(metadata=INT32)


@versioned
class CommitMarker(ControlRecord):
    """The producer's transaction was committed."""

    TYPE: ClassVar[ControlType] = ControlType.COMMIT
    __flexible__: ClassVar[bool] = False
    FLEXIBLE_SINCE: ClassVar[int] = 1

    coordinator_epoch: int = field(metadata=INT32)


@versioned
class Voter(Entity):
    """A voter in a LeaderChange. The directory is known from version 1 on."""

    __version__: ClassVar[int] = 1

    voter_id: int = field(metadata=INT32)
    voter_directory_id: UUID = field(metadata={**UUID_TYPE, "since": 1}, default=ZERO_UUID)


@versioned
class LeaderChange(ControlRecord):
    """First record of an epoch: its leader, the voters, and those that voted for the leader. Version 1 from
    kraft.version 1 on."""

    TYPE: ClassVar[ControlType] = ControlType.LEADER_CHANGE
    __version__: ClassVar[int] = 1

    leader_id: int = field(metadata=INT32)
    voters: tuple[Voter, ...] = field(default=())
    granting_voters: tuple[Voter, ...] = field(default=())


@versioned
class SnapshotHeader(ControlRecord):
    """First record of a snapshot. The timestamp (ms) is that of the last record in the snapshot."""

    TYPE: ClassVar[ControlType] = ControlType.SNAPSHOT_HEADER

    last_contained_log_timestamp: int = field(metadata=INT64)


@versioned
class SnapshotFooter(ControlRecord):
    """Last record of a complete snapshot."""

    TYPE: ClassVar[ControlType] = ControlType.SNAPSHOT_FOOTER


@versioned
class KRaftVersion(ControlRecord):
    """The level of kraft.version from this record on."""

    TYPE: ClassVar[ControlType] = ControlType.KRAFT_VERSION

    kraft_version: int = field(metadata=INT16)


@versioned
class VoterEndpoint(Entity):
    """A listener of a voter."""

    name: str = field(metadata=STRING)
    host: str = field(metadata=STRING)
    port: int = field(metadata=UINT16)


@versioned
class SupportedKRaftVersions(Entity):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int = field(metadata=INT16)
    max_supported_version: int = field(metadata=INT16)


@versioned
class DynamicVoter(Entity):
    """A voter of a dynamic quorum (KIP-853)."""

    voter_id: int = field(metadata=INT32)
    voter_directory_id: UUID = field(metadata=UUID_TYPE)
    endpoints: tuple[VoterEndpoint, ...] = field()
    k_raft_version_feature: SupportedKRaftVersions = field()


@versioned
class KRaftVoters(ControlRecord):
    """The voters from this record on."""

    TYPE: ClassVar[ControlType] = ControlType.KRAFT_VOTERS

    voters: tuple[DynamicVoter, ...] = field()


@dataclass(frozen=True, slots=True)
class UnknownControl:
    """A control record of an unknown type, which readers ignore."""

    type: int
    value: bytes


AnyControl: TypeAlias = ControlRecord | UnknownControl

_TYPES: Final[dict[int, type[ControlRecord]]] = {
    record.TYPE: record
    for record in (AbortMarker, CommitMarker, LeaderChange, SnapshotHeader, SnapshotFooter, KRaftVersion, KRaftVoters)
}


def encode_control_key(record: ControlRecord) -> bytes:
    out = Writer()
    out.int16(_KEY_VERSION)
    out.int16(record.TYPE)
    return bytes(out)


def encode_control_value(record: ControlRecord, version: int = 0) -> bytes:
    out = Writer()
    out.int16(version)
    encode_into(out, record, version)
    return bytes(out)


def decode_control_type(key: Data) -> int:
    """Return the type in a control record's key, which may be unknown. Raises DecodeError."""
    reader = Reader(key)
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"a control record's key of version {version}")
    return reader.int16()


def decode_control(key: Data | None, value: Data | None) -> AnyControl:
    """Decode a control record. Raises DecodeError.

    Of a transaction marker with a newer version the known fields are read, as in Kafka's clients. For other types a
    newer version is an error.
    """
    if key is None or value is None:
        raise DecodeError("a control record without a key or a value")
    number = decode_control_type(key)
    schema = _TYPES.get(number)
    if schema is None:
        return UnknownControl(number, bytes(value))
    reader = Reader(value)
    version = reader.int16()
    if schema in (AbortMarker, CommitMarker) and version > schema.__version__:
        return decode_from(reader, schema, schema.__version__)
    record = decode_from(reader, schema, version)
    reader.expect_end()
    return record


def control_batch(
    records: list[ControlRecord],
    *,
    timestamp: int,
    version: int = 0,
    base_offset: Offset = FIRST_OFFSET,
    **header: Unpack[BatchHeader],
) -> bytes:
    """Return a control batch. ``timestamp`` is in ms."""
    header["control"] = True
    return build_batch(
        [
            Record(index, 0, encode_control_key(record), encode_control_value(record, version))
            for index, record in enumerate(records)
        ],
        base_offset=base_offset,
        base_timestamp=timestamp,
        **header,
    )


@dataclass(frozen=True, slots=True)
class EndMarkerRequest:
    """The marker that a transaction coordinator asks the leader of a partition to append (WriteTxnMarkers)."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition of ``__transaction_state``."""
    commit: bool
    """False: the transaction is aborted."""
    transaction_version: int = 0
    """The level of ``transaction.version`` of the transaction (KIP-890); 0 if the request has none."""

    def batch(self, timestamp: int) -> bytes:
        """Return the control batch with the marker. ``timestamp`` is in ms."""
        marker = CommitMarker if self.commit else AbortMarker
        return control_batch(
            [marker(coordinator_epoch=self.coordinator_epoch)],
            timestamp=timestamp,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )


def control_of(record: Record) -> AnyControl:
    """Decode a record of a control batch. Raises CorruptBatch."""
    try:
        return decode_control(record.key, record.value)
    except DecodeError as error:
        raise CorruptBatch(f"a control record: {error}") from None
