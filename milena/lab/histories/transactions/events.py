"""The events of transactions: what producers did in each transaction, and what readers with read_committed saw.

``transaction`` and ``producer`` are names that are unique in a history; a producer is one instance of a client, which
has initialized its transactional id once. All records of a partition with transactions are written in transactions.
Partitions are (topic, number).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from milena.lab.histories.group_events import RequestOutcome
from milena.protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerInit:
    """An InitProducerId of a new producer succeeded: earlier producers with this transactional id are fenced."""

    transactional_id: str
    producer: str
    begun: float
    ended: float
    own_epochs: bool = True
    """Each of its transactions has an epoch of its own, so that delayed requests have no effect (KIP-890)."""


@dataclass(frozen=True, slots=True)
class InitTimeout:
    """After all faults had ended, no transaction of a transactional id could be committed in time."""

    transactional_id: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """``identity``: the producer id and the epoch of its batches, as one text; "" if the client does not report it."""

    transaction: str
    producer: str
    at: float
    identity: str = ""


@dataclass(frozen=True, slots=True)
class TransactionalSend:
    """One record of a transaction. ``offset`` is -1 if unknown."""

    partition: TopicPartition
    value: str
    transaction: str
    begun: float
    ended: float
    outcome: RequestOutcome
    offset: int = -1


@dataclass(frozen=True, slots=True)
class TransactionOffsets:
    """A transaction has processed the records of ``[first, next)`` of a partition, and commits ``next`` for the
    group."""

    transaction: str
    group: str
    partition: TopicPartition
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """An EndTxn. ``FAILED``: it was rejected, and cannot have taken effect. A transaction without a commit that
    succeeded, or has an unknown outcome, is aborted."""

    transaction: str
    commit: bool
    begun: float
    ended: float
    outcome: RequestOutcome


@dataclass(frozen=True, slots=True)
class CommittedPoll:
    """The result of one poll for one partition with read_committed; ``session`` as for ``Poll``. ``transaction``: the
    one that processes the records; "" for none."""

    partition: TopicPartition
    session: str
    at: float
    records: tuple[tuple[int, str], ...]
    """(offset, value)."""
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class FinalCommitted:
    """All that read_committed returns of a partition, read after all faults and transactions have ended. ``start``:
    records below it were deleted. ``last_stable``: the last stable offset; ``end``: the high watermark."""

    partition: TopicPartition
    records: tuple[tuple[int, str], ...]
    """(offset, value)."""
    last_stable: int
    end: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class FinalOffset:
    """The offset that a group has committed in the end; -1 for none. Not ``stable``: one of a transaction is still
    pending."""

    group: str
    partition: TopicPartition
    offset: int
    stable: bool = True


TransactionEvent: TypeAlias = (
    ProducerInit
    | InitTimeout
    | TransactionBegin
    | TransactionalSend
    | TransactionOffsets
    | TransactionEnd
    | CommittedPoll
    | FinalCommitted
    | FinalOffset
)
TRANSACTION_KINDS: Final[Mapping[str, type[TransactionEvent]]] = {
    "producer init": ProducerInit,
    "init timeout": InitTimeout,
    "transaction begin": TransactionBegin,
    "transactional send": TransactionalSend,
    "transaction offsets": TransactionOffsets,
    "transaction end": TransactionEnd,
    "committed poll": CommittedPoll,
    "committed log": FinalCommitted,
    "committed offset": FinalOffset,
}
