"""The verification of the transactional batches of one Produce request, like Kafka's
``ReplicaManager.handleProduceAppend`` (KIP-890).

The first batch of a transaction in a partition needs the coordinator's confirmation. Clients of transaction.version 2
do not add partitions to their transactions themselves; for them the broker adds the partition, and asks again for a
short time while the coordinator completes the previous transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple, Protocol

from milena.broker.replica.partition import Partition
from milena.broker.transactions.verification import Operation, PartitionErrors, TransactionVerification
from milena.config.node_config import NodeConfig
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import HEADER_SIZE, NO_SEQUENCE
from milena.protocol.types import ProducerId, TopicPartition
from milena.runtime.clock import Clock
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard

FIRST_PAUSE: Final = 0.125
"""The first pause before a retry, as a part of the longest one. Pauses double."""
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43
"""Producer id, epoch and base sequence in a batch."""
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The errors of a verification that clients get as NOT_ENOUGH_REPLICAS, which they retry."""


class ProducerOfBatch(NamedTuple):
    producer_id: ProducerId
    epoch: int
    sequence: int


def producer_of(records: memoryview) -> ProducerOfBatch | None:
    """The producer of the first batch; None if the batch is incomplete, or has no producer."""
    if len(records) < HEADER_SIZE:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    return None if producer_id < 0 else ProducerOfBatch(ProducerId(producer_id), epoch, sequence)


class VerificationServices(Protocol):
    """What a verification uses of its broker."""

    @property
    def clock(self) -> Clock: ...
    @property
    def coordinators(self) -> TransactionVerification: ...
    @property
    def is_enabled(self) -> bool:
        """``transaction.partition.verification.enable``. Partitions are added even if it is false."""
        ...

    @property
    def retry_backoff(self) -> float:
        """The longest pause: ``add.partitions.to.txn.retry.backoff.ms``, in seconds."""
        ...

    @property
    def retry_max(self) -> float:
        """Seconds after which a retry is no longer begun: ``add.partitions.to.txn.retry.backoff.max.ms``, at most
        ``request.timeout.ms``."""
        ...


class BrokerVerification:
    """The verification services of a broker, by its dynamic configuration. API modules get it as
    ``node.verification``."""

    def __init__(self, clock: Clock, coordinators: TransactionVerification, config: Callable[[], NodeConfig]) -> None:
        self.clock: Final = clock
        self.coordinators: Final = coordinators
        self._config = config

    @property
    def is_enabled(self) -> bool:
        return self._config().get_bool("transaction.partition.verification.enable")

    @property
    def retry_backoff(self) -> float:
        return self._config().get_int("add.partitions.to.txn.retry.backoff.ms") / 1000

    @property
    def retry_max(self) -> float:
        config = self._config()
        longest = config.get_int("add.partitions.to.txn.retry.backoff.max.ms")
        return min(longest, config.get_int("request.timeout.ms")) / 1000

    def verify(
        self,
        partition: Partition,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        operation: Operation,
        then: Callable[[VerificationGuard | ErrorCode], None],
    ) -> None:
        """Verify that ``partition`` is in the open transaction, or add it, for a batch without a sequence. ``then``
        gets the guard for the append, or the error, possibly within this call."""
        if not self.is_enabled and not operation.adds:
            then(NO_GUARD)
            return
        try:
            guard = partition.begin_verification(
                producer_id, epoch, NO_SEQUENCE, self.clock.time_ms(), bumps_epoch=operation.adds
            )
        except KafkaError as error:
            then(error.code)
            return
        if guard is NO_GUARD:
            then(guard)
            return
        asked = partition.topic, partition.index

        def answered(errors: PartitionErrors) -> None:
            error = errors.get(asked)
            if error is None:
                then(guard)
                return
            _drop_unknown(lambda: partition, producer_id, guard, error)
            then(error)

        self.coordinators.add_or_verify(transactional_id, producer_id, epoch, [asked], operation, answered)


class BatchVerification:
    """The transactional batches of one producer in one request, in different partitions."""

    def __init__(
        self,
        services: VerificationServices,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        operation: Operation,
        find: Callable[[int], Partition],
    ) -> None:
        """``find`` returns the partition of a position, which this broker leads. It raises KafkaError."""
        self.guards: dict[int, VerificationGuard] = {}
        """By position: the guards for the appends."""
        self.errors: dict[int, ErrorCode] = {}
        """By position: the errors of batches that must not be appended."""
        self._services = services
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._epoch = epoch
        self._operation = operation
        self._find = find
        self._sequences: dict[int, int] = {}
        self._partitions: dict[int, TopicPartition] = {}
        self._began = services.clock.monotonic()
        self._pause = FIRST_PAUSE

    def add(self, position: int, sequence: int) -> None:
        """Add the batch at a position of the request, whose first sequence is ``sequence``."""
        self._sequences[position] = sequence

    def begin(self, budget: YieldBudget | None) -> Cooperative[bool]:
        """Begin the verification in all partitions. Returns whether ``ask_coordinator`` has to follow."""
        services = self._services
        if not services.is_enabled and not self._operation.adds:
            return False
        now = services.clock.time_ms()
        for position in self._sequences:
            self._begin_one(position, now)
            if budget is not None and budget.spend(1):
                yield
        return bool(self.guards)

    def _begin_one(self, position: int, now_ms: int) -> None:
        try:
            partition = self._find(position)
            guard = partition.begin_verification(
                self._producer_id, self._epoch, self._sequences[position], now_ms, bumps_epoch=self._operation.adds
            )
        except KafkaError as error:
            self.errors[position] = error.code
            return
        if guard is not NO_GUARD:
            self.guards[position] = guard
            self._partitions[position] = partition.topic, partition.index

    def ask_coordinator(self, done: Callable[[], None]) -> None:
        """Ask the coordinator about the batches that need it. ``done`` is called when ``guards`` and ``errors`` are
        complete, possibly within this call."""
        self._ask(list(self.guards), done)

    def _ask(self, positions: list[int], done: Callable[[], None]) -> None:
        if not positions:
            done()
            return

        def answered(errors: PartitionErrors) -> None:
            self._answered(positions, errors, done)

        partitions = list(dict.fromkeys(self._partitions[position] for position in positions))
        self._services.coordinators.add_or_verify(
            self._transactional_id, self._producer_id, self._epoch, partitions, self._operation, answered
        )

    def _answered(self, positions: list[int], errors: PartitionErrors, done: Callable[[], None]) -> None:
        services = self._services
        late = services.clock.monotonic() - self._began >= services.retry_max
        again: list[int] = []
        for position in positions:
            error = errors.get(self._partitions[position])
            if error is None:
                continue
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and self._operation.adds and not late:
                del self.guards[position]
                again.append(position)
            else:
                self._fail(position, error)
        if not again:
            done()
            return

        def retry() -> None:
            now = services.clock.time_ms()
            for position in again:
                self._begin_one(position, now)
            self._ask([position for position in again if position in self.guards], done)

        # Markers take a few milliseconds, so the first pauses are shorter than in Kafka.
        services.clock.call_later(services.retry_backoff * self._pause, retry)
        self._pause = min(2 * self._pause, 1.0)

    def _fail(self, position: int, error: ErrorCode) -> None:
        self.errors[position] = error
        guard = self.guards.pop(position)
        _drop_unknown(lambda: self._find(position), self._producer_id, guard, error)


def _drop_unknown(
    find: Callable[[], Partition], producer_id: ProducerId, guard: VerificationGuard, error: ErrorCode
) -> None:
    """Drop the verification of a producer that the coordinator does not know: clients can send any number of them."""
    if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        with suppress(KafkaError):
            find().require().producers.end_verification(producer_id, guard)


def error_for_client(error: ErrorCode, operation: Operation) -> tuple[ErrorCode, str | None]:
    """The error code and message of a partition whose batch could not be verified."""
    if error is ErrorCode.INVALID_TXN_STATE:
        return error, "the partition was not added to the transaction"
    if error in _RETRIABLE or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds):
        message = f"it cannot be verified that the partition was added to the transaction: {error.name}"
        return ErrorCode.NOT_ENOUGH_REPLICAS, message
    return error, None
