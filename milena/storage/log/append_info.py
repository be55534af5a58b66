"""The origin, the result and the errors of an append."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset


class Origin(Enum):
    """The source of a batch that is appended to a leader's log (Kafka's ``AppendOrigin``). It determines the checks."""

    CLIENT = "client"
    """A producer: all of Kafka's checks."""
    COORDINATOR = "coordinator"
    """The broker itself, for groups and transactions: it may write control batches, and its batches have no
    sequences."""
    RAFT = "raft"
    """The controller, for the metadata log: any number of batches, whose records are not checked."""


class AppendInfo(NamedTuple):
    """The result of an append. Timestamps are ms, -1 for none."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp: int
    log_append_time: int
    """The broker's time for topics with LogAppendTime, else -1; for a duplicate, the time of the original batch."""
    log_start_offset: Offset
    size: int
    """Bytes written, 0 for a duplicate."""
    duplicate: bool = False
    """Whether the batch was appended before, and nothing was written now."""


class RecordError(NamedTuple):
    """The error of one record: its index in the batch, and the reason."""

    record: int
    message: str


class MalformedRecords(KafkaError):
    """The bytes are not valid batches of the current format, or not exactly one. Kafka refuses these before it looks at
    the log."""


class InvalidRecords(KafkaError):
    """A batch was refused because of some of its records (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = errors
