"""What a request or a timeout changes in a transactional id: pure functions (Kafka's ``TransactionCoordinator`` and the
``prepare`` methods of ``TransactionMetadata``).

Each returns the next state, which takes effect when its record is committed; or the present state itself if the request
is answered with success and nothing changes. Each raises KafkaError with the error code of the response.

``busy``: a record of the id is not committed yet, or markers are being written. Kafka checks it in a different order
for each API, which clients can observe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from milena.broker.transactions.model import EXHAUSTED_EPOCH, NO_TIME, PREPARED, SETTLED, Transaction
from milena.broker.transactions.partitions import NO_PARTITIONS
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import EPOCH_BUMP_VERSION
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import (
    LAST_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)


class NoProducerIds(KafkaError):
    """A new producer id is needed, and the broker has to allocate a block first."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids yet")


NextId: TypeAlias = Callable[[], ProducerId]
"""Returns a new producer id. Raises NoProducerIds."""

_BEFORE: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: SETTLED,
    TransactionState.ONGOING: SETTLED | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: SETTLED | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""The states from which each state may be entered."""


def init_producer_id(
    present: Transaction | None,
    *,
    busy: bool,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    next_id: NextId,
    version: int,
    now_ms: int,
) -> Transaction:
    """A new epoch or producer id for a producer that starts, or that continues after an error with the id and epoch
    that it ``expected`` (KIP-360). An open transaction is aborted first: the client has to repeat the request.
    ``version``: the level of ``transaction.version``."""
    if busy:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if present is None:
        present = Transaction(next_id(), NO_PRODUCER_EPOCH, timeout_ms, TransactionState.EMPTY, now_ms)
    if expected is not None and not _may_continue(present, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if present.state is TransactionState.ONGOING:
        return abort_by_coordinator(present, next_id=next_id, version=version, now_ms=now_ms)
    if present.is_exhausted:
        if expected is not None and expected.epoch != present.epoch:
            # Kafka's coordinator throws an IllegalStateException here.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the epochs of the producer id are exhausted")
        producer_id, epoch = next_id(), ProducerEpoch(0)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else present.epoch
    else:
        producer_id = present.producer_id
        epoch, last_epoch = _bumped(present, None if expected is None else expected.epoch)
    following = replace(
        present,
        state=TransactionState.EMPTY,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIME,
        update_ms=now_ms,
    )
    return _checked(present, following)


def _may_continue(present: Transaction, expected: ProducerIdAndEpoch) -> bool:
    return (
        present.epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == present.producer_id
        or (expected.producer_id == present.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH)
    )


def _bumped(present: Transaction, expected: ProducerEpoch | None) -> tuple[ProducerEpoch, ProducerEpoch]:
    """The next epoch and the last one. A request that is repeated with the last epoch gets the present one again."""
    bumped = ProducerEpoch(present.epoch + 1)
    if expected is None:
        return bumped, NO_PRODUCER_EPOCH
    if present.epoch in (NO_PRODUCER_EPOCH, expected):
        return bumped, present.epoch
    if expected == present.last_epoch:
        return present.epoch, present.last_epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def add_partitions(
    present: Transaction | None,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    *,
    busy: bool,
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Add partitions to the transaction, which is begun if none is open."""
    if busy:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    present = _of_producer(present, producer)
    if present.state is TransactionState.ONGOING and all(one in present.partitions for one in partitions):
        return present
    following = replace(
        present,
        state=TransactionState.ONGOING,
        partitions=present.partitions.adding(partitions),
        start_ms=now_ms if present.state in SETTLED else present.start_ms,
        update_ms=now_ms,
        client_version=client_version,
    )
    return _checked(present, following)


def verify_partitions(present: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    """Return the transaction that a leader of a partition asks about before it appends records of ``producer``
    (KIP-890)."""
    present = _of_producer(present, producer)
    if present.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return present


def _of_producer(present: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    if present is None or present.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if present.epoch != producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return present


def end(
    present: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    busy: bool,
    commit: bool,
    client_version: int,
    next_id: NextId,
    now_ms: int,
) -> Transaction:
    """Commit or abort by request of the client."""
    if client_version < EPOCH_BUMP_VERSION:
        return _end_with_same_epoch(present, producer, busy=busy, commit=commit, now_ms=now_ms)
    return _end_with_next_epoch(present, producer, busy=busy, commit=commit, next_id=next_id, now_ms=now_ms)


def _end_with_same_epoch(
    present: Transaction | None, producer: ProducerIdAndEpoch, *, busy: bool, commit: bool, now_ms: int
) -> Transaction:
    """EndTxn of a client below transaction version 2."""
    present = _of_producer(present, producer)
    if busy:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if present.state is TransactionState.ONGOING:
        return _prepare(present, commit=commit, now_ms=now_ms)
    if present.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
        return present
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _end_with_next_epoch(
    present: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    busy: bool,
    commit: bool,
    next_id: NextId,
    now_ms: int,
) -> Transaction:
    """EndTxn of a client of transaction version 2. A repeated request has the epoch before the bump (or the last epoch
    of the former producer id), and gets the present producer id and epoch if the outcome is the requested one."""
    if busy:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if present is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    repeated = present.epoch == producer.epoch + 1
    repeated_before_rotation = (
        present.epoch == 0
        and producer.epoch == EXHAUSTED_EPOCH
        and producer.producer_id == present.previous_producer_id
    )
    if present.producer_id != producer.producer_id and not repeated_before_rotation:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    completed = present.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    is_repetition = completed and (repeated or repeated_before_rotation)
    if present.epoch != producer.epoch and not is_repetition:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if present.state is TransactionState.ONGOING:
        return _prepare_with_next_epoch(
            present, commit=commit, next_id=next_id, start_ms=present.start_ms, now_ms=now_ms
        )
    if is_repetition:
        if present.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
            return present
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    if commit:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    # An abort without partitions: the epoch is bumped for requests of the transaction that are still on their way.
    return _prepare_with_next_epoch(present, commit=False, next_id=next_id, start_ms=now_ms, now_ms=now_ms)


def abort_by_coordinator(present: Transaction, *, next_id: NextId, version: int, now_ms: int) -> Transaction:
    """Abort an open transaction that has timed out, or whose producer is replaced. The epoch is bumped, which fences
    the producer. ``version``: the level of ``transaction.version``."""
    if version >= EPOCH_BUMP_VERSION:
        return _prepare_with_next_epoch(
            present, commit=False, next_id=next_id, start_ms=present.start_ms, now_ms=now_ms
        )
    fenced = replace(
        present, epoch=ProducerEpoch(min(present.epoch + 1, LAST_PRODUCER_EPOCH)), last_epoch=NO_PRODUCER_EPOCH
    )
    return _prepare(fenced, commit=False, now_ms=now_ms)


def _prepare(present: Transaction, *, commit: bool, now_ms: int) -> Transaction:
    prepared = replace(present, state=_prepared(commit), update_ms=now_ms, client_version=0)
    return _checked(present, prepared)


def _prepare_with_next_epoch(
    present: Transaction, *, commit: bool, next_id: NextId, start_ms: int, now_ms: int
) -> Transaction:
    following = replace(
        present,
        state=_prepared(commit),
        epoch=ProducerEpoch(min(present.epoch + 1, LAST_PRODUCER_EPOCH)),
        last_epoch=present.epoch,
        next_producer_id=next_id() if present.is_exhausted else NO_PRODUCER_ID,
        start_ms=start_ms,
        update_ms=now_ms,
        client_version=EPOCH_BUMP_VERSION,
    )
    return _checked(present, following)


def _prepared(commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def complete(present: Transaction, *, now_ms: int) -> Transaction:
    """The state of a prepared transaction after all markers are written."""
    rotates = present.client_version >= EPOCH_BUMP_VERSION and present.next_producer_id != NO_PRODUCER_ID
    following = replace(
        present,
        state=TransactionState.COMPLETE_COMMIT if present.commits else TransactionState.COMPLETE_ABORT,
        producer_id=present.next_producer_id if rotates else present.producer_id,
        epoch=ProducerEpoch(0) if rotates else present.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=NO_PARTITIONS,
        update_ms=now_ms,
    )
    return _checked(present, following)


def is_expired(present: Transaction, *, now_ms: int, expiration_ms: int) -> bool:
    """Whether the id has had no transition for ``transactional.id.expiration.ms`` and no transaction is open."""
    return present.state in SETTLED and present.update_ms <= now_ms - expiration_ms


def _checked(present: Transaction, following: Transaction) -> Transaction:
    """Return ``following`` with the former producer id, which Kafka remembers at each transition."""
    following = replace(following, previous_producer_id=present.producer_id)
    check_transition(present, following)
    return following


def check_transition(present: Transaction, following: Transaction) -> None:
    """Raises BrokenInvariant if ``following`` cannot follow ``present`` (Kafka's ``completeTransitionTo``)."""
    if present.state not in _BEFORE[following.state] or not _fits(present, following):
        raise BrokenInvariant(f"the transaction {present} cannot become {following}")


def _fits(present: Transaction, following: Transaction) -> bool:
    if following.producer_id < 0 or following.epoch < 0:
        return False
    match following.state:
        case TransactionState.EMPTY:
            rotated = following.epoch == 0 and following.producer_id != present.producer_id
            bumped = following.producer_id == present.producer_id and following.epoch - present.epoch in (0, 1)
            return (rotated or bumped) and not following.partitions and following.start_ms == NO_TIME
        case TransactionState.ONGOING:
            return (
                following.producer == present.producer
                and following.timeout_ms == present.timeout_ms
                and following.partitions.includes(present.partitions)
            )
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            bumped = following.producer_id == present.producer_id and following.epoch - present.epoch in (0, 1)
            return bumped and following.partitions == present.partitions and following.start_ms != NO_TIME
        case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
            rotated = following.producer_id == present.next_producer_id and following.epoch == 0
            return (following.producer == present.producer or rotated) and not following.partitions
        case _:
            return False
