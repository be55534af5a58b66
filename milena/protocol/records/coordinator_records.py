"""Records of ``__consumer_offsets`` for classic groups: committed offsets and group metadata.

The key consists of int16 type and fields, the value of int16 version and fields; a null value is a tombstone. Records
of other types (groups of the consumer, share and streams protocols) are not decoded.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    UUID_TYPE,
    Entity,
    decode_from,
    encode_into,
    versioned,
)
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import ZERO_UUID

_LEGACY_OFFSET_COMMIT: Final = 0
"""Type of keys that old brokers wrote, with the same fields as type 1."""
_KEY_VERSION: Final = 0


class CoordinatorKey(Entity):
    """Key of a record of a known type."""

    __slots__ = ()

    __flexible__: ClassVar[bool] = False
    FLEXIBLE_SINCE: ClassVar[int] = 1
    TYPE: ClassVar[int]


class CoordinatorValue(Entity):
    """Value of a record of a known type."""

    __slots__ = ()

    __version__: ClassVar[int] = 4
    FLEXIBLE_SINCE: ClassVar[int] = 4

    @property
    def version_to_write(self) -> int:
        """The version in which Kafka 4.4 writes this value."""
        raise NotImplementedError


@versioned
class OffsetCommitKey(CoordinatorKey):
    """Key of a committed offset."""

    TYPE: ClassVar[int] = 1

    group: str = field(metadata=STRING)
    topic: str = field(metadata=STRING)
    partition: int = field(metadata=INT32)


@versioned
class GroupMetadataKey(CoordinatorKey):
    """Key of a group's metadata."""

    TYPE: ClassVar[int] = 2

    group: str = field(metadata=STRING)


@versioned
class OffsetCommitValue(CoordinatorValue):
    """A committed offset. Timestamps in ms; with an expire timestamp of -1 ``offsets.retention.minutes`` applies."""

    offset: int = field(metadata=INT64)
    leader_epoch: int = field(metadata={**INT32, "since": 3}, default=-1)
    metadata: str = field(metadata=STRING, default="")
    commit_timestamp: int = field(metadata=INT64)
    expire_timestamp: int = field(metadata={**INT64, "since": 1, "until": 1}, default=-1)
    topic_id: UUID = field(metadata={**UUID_TYPE, "since": 4, "tag": 0}, default=ZERO_UUID)

    @property
    def version_to_write(self) -> int:
        return 4 if self.expire_timestamp == -1 else 1


@versioned
class MemberMetadata(Entity):
    """A member of a classic group. Timeouts in ms."""

    member_id: str = field(metadata=STRING)
    group_instance_id: str | None = field(metadata={**STRING, "since": 3}, default=None)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    rebalance_timeout: int = field(metadata={**INT32, "since": 1}, default=-1)
    session_timeout: int = field(metadata=INT32)
    subscription: bytes = field(metadata=BYTES)
    assignment: bytes = field(metadata=BYTES)


@versioned
class GroupMetadataValue(CoordinatorValue):
    """The generation of a classic group; an empty group has no protocol and no members. Timestamp in ms."""

    protocol_type: str = field(metadata=STRING)
    generation: int = field(metadata=INT32)
    protocol: str | None = field(metadata=STRING)
    leader: str | None = field(metadata=STRING)
    current_state_timestamp: int = field(metadata={**INT64, "since": 2}, default=-1)
    members: tuple[MemberMetadata, ...] = field(default=())

    @property
    def version_to_write(self) -> int:
        return 3


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """The key of a record of an unknown type. ``data`` is the whole key."""

    type: int
    data: bytes


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """The value of a record of an unknown type. ``data`` is the whole value."""

    data: bytes


AnyKey: TypeAlias = CoordinatorKey | UnknownKey
AnyValue: TypeAlias = CoordinatorValue | UnknownValue

_KEYS: Final[dict[int, type[CoordinatorKey]]] = {
    _LEGACY_OFFSET_COMMIT: OffsetCommitKey,
    OffsetCommitKey.TYPE: OffsetCommitKey,
    GroupMetadataKey.TYPE: GroupMetadataKey,
}
_VALUES: Final[dict[type[CoordinatorKey], type[CoordinatorValue]]] = {
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
}


def encode_key(key: CoordinatorKey) -> bytes:
    out = Writer()
    out.int16(key.TYPE)
    encode_into(out, key, _KEY_VERSION)
    return bytes(out)


def encode_value(value: CoordinatorValue, version: int | None = None) -> bytes:
    """Encode the value in the version that Kafka writes, or in ``version``; fields that the version lacks are
    omitted."""
    out = Writer()
    chosen = value.version_to_write if version is None else version
    out.int16(chosen)
    encode_into(out, value, chosen)
    return bytes(out)


def decode_key(data: Data) -> AnyKey:
    """Decode the key of a record. Raises DecodeError if a key of a known type is damaged."""
    reader = Reader(data)
    number = reader.int16()
    schema = _KEYS.get(number)
    if schema is None:
        return UnknownKey(number, bytes(data))
    key = decode_from(reader, schema, _KEY_VERSION)
    reader.expect_end()
    return key


def decode_value(key: AnyKey, data: Data | None) -> AnyValue | None:
    """Decode the value of the record with this key; None for a tombstone.

    Raises DecodeError if the value is damaged, or of a version above 4.
    """
    if data is None:
        return None
    if isinstance(key, UnknownKey):
        return UnknownValue(bytes(data))
    reader = Reader(data)
    version = reader.int16()
    schema = _VALUES.get(type(key))
    if schema is None:
        raise DecodeError(f"{type(key).__name__} has no value")
    value = decode_from(reader, schema, version)
    reader.expect_end()
    return value
