"""The origin, the result and the errors of an append."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset


class Origin(Enum):
    """The source of a batch that is appended to a leader's log; it decides which checks apply."""

    CLIENT = "client"
    """A producer: all of Kafka's checks."""
    COORDINATOR = "coordinator"
    """The broker itself, for its groups and transactions: may write control batches, has no sequences."""
    RAFT = "raft"
    """The controller, for the metadata log: any number of batches, stored as they are."""


class AppendInfo(NamedTuple):
    """The result of an append. Timestamps are ms, -1 for none."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp: int
    log_append_time: int
    """The broker's time if the topic uses it; for a duplicate, that of the original batch."""
    log_start_offset: Offset
    size: int
    """Bytes written, 0 for a duplicate."""
    duplicate: bool = False
    """Whether the batch was sent before, and nothing was written."""


class RecordError(NamedTuple):
    """Why one record, by its index in the batch, was refused."""

    record: int
    message: str


class MalformedRecords(KafkaError):
    """Not exactly one batch of the current format. Kafka refuses it before it looks at the log."""


class InvalidRecords(KafkaError):
    """A batch that was refused because of some of its records (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = errors
