"""The state of a transactional id (Kafka's ``TransactionMetadata``).

::

    Empty ---> Ongoing ---> PrepareCommit ---> CompleteCommit
      ^          | ^                                |
      |          | +------- (AddPartitions) <-------+
      |          v                                  |
      |      PrepareAbort ---> CompleteAbort ------>+
      +------------ (InitProducerId) <--------------+

With transaction version 2 an abort is also possible without partitions: from Empty, CompleteCommit and CompleteAbort.
A transactional id is removed when its tombstone is committed. Dead and PrepareEpochFence are not used: the coordinator
fences a producer and aborts its transaction in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from milena.broker.transactions.partitions import NO_PARTITIONS, TransactionPartitions
from milena.protocol.errors import ErrorCode
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import (
    LAST_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    ProducerIdAndEpoch,
)

NO_TIME: Final = -1
EXHAUSTED_EPOCH: Final = ProducerEpoch(LAST_PRODUCER_EPOCH - 1)
"""The last epoch that a client gets: after it the transactional id gets another producer id."""
NO_TIMEOUT: Final = 2**31 - 1
"""The timeout of a transaction with two-phase commit, which is never aborted by the coordinator (KIP-939)."""


PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The outcome is decided, and markers are being written."""
SETTLED: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""No transaction is open. Only such transactional ids expire."""


def fenced_code(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """The error code in a response of ``version``. Clients below version ``fenced_since`` of the API do not know
    PRODUCER_FENCED and get INVALID_PRODUCER_EPOCH (KIP-588)."""
    old = error is ErrorCode.PRODUCER_FENCED and version < fenced_since
    return ErrorCode.INVALID_PRODUCER_EPOCH if old else error


ProducerDone: TypeAlias = Callable[[ErrorCode, ProducerIdAndEpoch], None]
"""Receives the result of InitProducerId or EndTxn. The producer is NO_PRODUCER with an error, and of EndTxn for clients
below transaction version 2."""
Done: TypeAlias = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id, as its last record says. Times are in ms since 1970; ``timeout_ms`` counts
    from ``start_ms``.

    Without slots for what most ids do not have, a broker with a million ids would need 100 MB more.
    """

    producer_id: ProducerId
    epoch: ProducerEpoch
    """NO_PRODUCER_EPOCH until the first InitProducerId is committed."""
    timeout_ms: int
    state: TransactionState
    update_ms: int
    """The time of the last transition."""
    start_ms: int = NO_TIME
    """The time at which the first partition of the present or last transaction was added."""
    partitions: TransactionPartitions = field(default_factory=lambda: NO_PARTITIONS)
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the last bump, with which a client may repeat its request. It is not in the log."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last transition."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id after a prepared transaction, if the epochs of the present one are exhausted."""
    client_version: int = 0
    """The transaction version of the client's requests in this transaction: 0 or 2."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left for clients."""
        return self.epoch >= EXHAUSTED_EPOCH

    @property
    def commits(self) -> bool:
        """Whether a prepared transaction will be committed."""
        return self.state is TransactionState.PREPARE_COMMIT

    def times_out(self, now_ms: int) -> bool:
        """Whether the transaction is open and older than its timeout."""
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT
            and self.start_ms + self.timeout_ms < now_ms
        )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's ``transaction.*`` and ``transactional.id.*`` configs. Times are in milliseconds."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000
    two_phase_commit: bool = False
    commit_timeout_ms: int = 30_000
    """How long a client waits until a record of ``__transaction_state`` is committed."""
    load_bytes: int = 5_242_880
    """How much of ``__transaction_state`` is read at once while loading."""
