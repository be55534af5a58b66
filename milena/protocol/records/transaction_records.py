"""Records of ``__transaction_state``: the state of each transactional id (Kafka's TransactionLog).

The key consists of int16 type and the transactional id, the value of int16 version and fields; a null value is a
tombstone. Version 0 is written under ``transaction.version`` 0, version 1 under the levels above.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, TypeAlias

from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Entity,
    decode_from,
    encode_into,
    versioned,
)

_TYPE: Final = 0
"""The only type of key."""
_KEY_VERSION: Final = 0


KNOWN_KEYS: Final = (b"\0\0",)
"""How the keys of the known type begin."""
KNOWN_VALUES: Final = (b"\0\0", b"\0\1")
"""How the values of the known versions begin."""


class TransactionState(IntEnum):
    """The state of a transactional id, by its number in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name, as in responses: ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@versioned
class TransactionLogKey(Entity):
    """Key of the record of a transactional id."""

    __flexible__: ClassVar[bool] = False
    FLEXIBLE_SINCE: ClassVar[int] = 1

    transactional_id: str = field(metadata=STRING)


@versioned
class TransactionLogPartitions(Entity):
    """The partitions of a topic in a transaction."""

    __version__: ClassVar[int] = 1
    FLEXIBLE_SINCE: ClassVar[int] = 1

    topic: str = field(metadata=STRING)
    partition_ids: tuple[int, ...] = field(metadata=INT32)


@versioned
class TransactionLogValue(Entity):
    """The state of a transactional id. Times are in ms since the epoch; -1 as start: no transaction yet.

    ``transaction_status`` is the number of a TransactionState. ``transaction_partitions`` is None in the state
    Empty. ``previous_producer_id`` is the producer id of the last transaction, ``next_producer_id`` the producer id
    that follows an exhausted epoch (KIP-890). Kafka 4.4 reads and writes ``next_producer_epoch`` as unset.
    """

    __version__: ClassVar[int] = 1
    FLEXIBLE_SINCE: ClassVar[int] = 1

    producer_id: int = field(metadata=INT64)
    previous_producer_id: int = field(metadata={**INT64, "since": 1, "tag": 0}, default=-1)
    next_producer_id: int = field(metadata={**INT64, "since": 1, "tag": 1}, default=-1)
    producer_epoch: int = field(metadata=INT16)
    next_producer_epoch: int = field(metadata={**INT16, "since": 1, "tag": 3}, default=-1)
    transaction_timeout_ms: int = field(metadata=INT32)
    transaction_status: int = field(metadata=INT8)
    transaction_partitions: tuple[TransactionLogPartitions, ...] | None = field()
    transaction_last_update_timestamp_ms: int = field(metadata=INT64)
    transaction_start_timestamp_ms: int = field(metadata=INT64)
    client_transaction_version: int = field(metadata={**INT16, "since": 1, "tag": 2}, default=0)


@dataclass(frozen=True, slots=True)
class UnknownTransactionKey:
    """The key of a record of an unknown type, which readers ignore. ``data`` is the whole key."""

    type: int
    data: bytes


@dataclass(frozen=True, slots=True)
class UnknownTransactionValue:
    """A value of an unknown version, which readers ignore. ``data`` is the whole value."""

    version: int
    data: bytes


AnyTransactionKey: TypeAlias = TransactionLogKey | UnknownTransactionKey
AnyTransactionValue: TypeAlias = TransactionLogValue | UnknownTransactionValue


def encode_transaction_key(key: TransactionLogKey) -> bytes:
    out = Writer()
    out.int16(_TYPE)
    encode_into(out, key, _KEY_VERSION)
    return bytes(out)


def encode_transaction_value(value: TransactionLogValue, version: int) -> bytes:
    """Encode the value. Version 0 lacks the tagged fields."""
    out = Writer()
    out.int16(version)
    encode_into(out, value, version)
    return bytes(out)


def decode_transaction_key(data: Data) -> AnyTransactionKey:
    """Decode the key of a record. Raises DecodeError if a key of the known type is damaged."""
    reader = Reader(data)
    number = reader.int16()
    if number != _TYPE:
        return UnknownTransactionKey(number, bytes(data))
    key = decode_from(reader, TransactionLogKey, _KEY_VERSION)
    reader.expect_end()
    return key


def decode_transaction_value(data: Data | None) -> AnyTransactionValue | None:
    """Decode the value of a record; None for a tombstone. Raises DecodeError if it is damaged."""
    if data is None:
        return None
    reader = Reader(data)
    version = reader.int16()
    if not 0 <= version <= TransactionLogValue.__version__:
        return UnknownTransactionValue(version, bytes(data))
    value = decode_from(reader, TransactionLogValue, version)
    reader.expect_end()
    return value
