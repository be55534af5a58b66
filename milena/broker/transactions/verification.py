"""Asks transaction coordinators whether transactions are open, or adds partitions to them, before batches are appended
(KIP-890; Kafka's ``AddPartitionsToTxnManager``).

One AddPartitionsToTxn request is in flight for each coordinator. What arrives in the meantime is sent together in the
next one, which has each transactional id once. If this broker is the coordinator, it is asked without a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from milena.broker.transactions.additions import Added
from milena.broker.transactions.meters import VerificationMeters
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NodeId, ProducerEpoch, ProducerId, ProducerIdAndEpoch, TopicPartition
from milena.runtime.context import Runtime
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.protocol.apis import AddPartitionsToTxnResponse

MAX_PARTITIONS: Final = 1_000
"""The maximum number of partitions in a request that has more than one transaction, or a part of one."""
FIRST_VERSION: Final = 4
"""The first version of AddPartitionsToTxn for brokers. A coordinator that lacks it does not verify."""
PartitionErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""The partitions that have an error."""
Done: TypeAlias = Callable[[PartitionErrors], None]
_Results: TypeAlias = "dict[str, PartitionErrors]"
"""By transactional id."""


class Operation(Enum):
    """What the client supports, by the version of its request (Kafka's ``TransactionSupportedOperation``)."""

    DEFAULT_ERROR = "default"
    """The client knows neither TRANSACTION_ABORTABLE nor transaction.version 2."""
    GENERIC_ERROR = "generic"
    """The client knows TRANSACTION_ABORTABLE."""
    ADD_PARTITION = "add"
    """The client uses transaction.version 2: the broker adds partitions to its transactions."""

    @classmethod
    def of_produce(cls, version: int) -> Operation:
        return _by_version(version, 11, 12)

    @classmethod
    def of_offset_commit(cls, version: int) -> Operation:
        """By the version of TxnOffsetCommit."""
        return _by_version(version, 4, 5)

    @property
    def adds(self) -> bool:
        return self is Operation.ADD_PARTITION


def _by_version(version: int, generic: int, adding: int) -> Operation:
    if version >= adding:
        return Operation.ADD_PARTITION
    return Operation.GENERIC_ERROR if version >= generic else Operation.DEFAULT_ERROR


class Links(Protocol):
    """Connections to the inter-broker listeners of all brokers."""

    async def request(
        self, broker: NodeId, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: object
    ) -> Any: ...  # noqa: ANN401 - decoded response; callers annotate it

    async def version(self, broker: NodeId, key: ApiKey) -> int: ...


class OwnCoordinator(Protocol):
    """The coordinator of this broker."""

    def is_asked(self, node: NodeId) -> bool:
        """Whether ``node`` is this broker, and no fault rule waits for requests."""
        ...

    def add_or_verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Mapping[TopicPartition, None],
        done: Added,
        *,
        verify_only: bool,
    ) -> int:
        """As ``additions.add_or_verify``, for a client of transaction version 2 if partitions are added. Returns the
        elements as which this counts for a ``YieldBudget``."""
        ...


class PendingVerification:
    """Partitions of a transaction that are to be verified, or added to it. ``done`` is called once."""

    __slots__ = ("_done", "_errors", "_left", "began", "epoch", "operation", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        operation: Operation,
        count: int,
        began: float,
        done: Done,
    ) -> None:
        """``count``: the number of partitions. ``began``: monotonic seconds."""
        self.transactional_id: Final = transactional_id
        self.producer_id: Final = producer_id
        self.epoch: Final = epoch
        self.operation: Final = operation
        self.began: Final = began
        self._errors: dict[TopicPartition, ErrorCode] = {}
        self._left = count
        self._done: Final = done

    def is_same_transaction(self, other: PendingVerification) -> bool:
        return (self.producer_id, self.epoch, self.operation.adds) == (
            other.producer_id,
            other.epoch,
            other.operation.adds,
        )

    def is_older(self, other: PendingVerification) -> bool:
        """Whether ``other`` has a newer epoch of the same producer."""
        return self.producer_id == other.producer_id and self.epoch < other.epoch

    def answer(self, partitions: Sequence[TopicPartition], errors: PartitionErrors) -> bool:
        """Note the result of ``partitions``. Returns whether all are known, and ``done`` was called."""
        for partition in partitions:
            error = errors.get(partition, ErrorCode.NONE)
            if error:
                self._errors[partition] = self._for_client(error)
        self._left -= len(partitions)
        if self._left:
            return False
        self._done(self._errors)
        return True

    def _for_client(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self.operation is Operation.DEFAULT_ERROR:
            return ErrorCode.INVALID_TXN_STATE
        return error

    @property
    def failed(self) -> int:
        """The number of partitions with an error."""
        return len(self._errors)


class _Part:
    """Up to MAX_PARTITIONS partitions of a verification."""

    __slots__ = ("partitions", "verification")

    def __init__(self, verification: PendingVerification, partitions: Sequence[TopicPartition]) -> None:
        self.verification = verification
        self.partitions = partitions


class _Coordinator:
    """What is to be sent to one broker."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = False
        self.waiting: dict[str, list[_Part]] = {}
        """By transactional id."""


class TransactionVerification:
    """The verifications of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        tasks: Tasks,
        links: Links,
        coordinator: Callable[[str], NodeId | None],
        own: OwnCoordinator,
        meters: VerificationMeters,
    ) -> None:
        """``coordinator`` returns the broker that coordinates a transactional id; None if there is none."""
        self._clock = runtime.clock
        self._contained = runtime.contained
        self._tasks = tasks
        self._links = links
        self._coordinator = coordinator
        self._own = own
        self._meters = meters
        self._coordinators: dict[NodeId, _Coordinator] = {}

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        partitions: Sequence[TopicPartition],
        operation: Operation,
        done: Done,
    ) -> None:
        """Ask the coordinator whether all of ``partitions`` are in the open transaction, or add them to it. ``done``
        gets the errors."""
        began = self._clock.monotonic()
        verification = PendingVerification(
            transactional_id, producer_id, epoch, operation, len(partitions), began, done
        )
        node = self._coordinator(transactional_id)
        if node is None:
            self._answer_all(_Part(verification, partitions), ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        coordinator = self._coordinators.get(node)
        if coordinator is None:
            coordinator = self._coordinators[node] = _Coordinator()
        waiting = coordinator.waiting.get(transactional_id, [])
        if any(verification.is_older(part.verification) for part in waiting):
            self._answer_all(_Part(verification, partitions), ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        older = [part for part in waiting if part.verification.is_older(verification)]
        coordinator.waiting[transactional_id] = [part for part in waiting if part not in older] + [
            _Part(verification, partitions[start : start + MAX_PARTITIONS])
            for start in range(0, len(partitions), MAX_PARTITIONS)
        ]
        for part in older:  # a newer epoch has fenced its producer
            self._answer_all(part, ErrorCode.INVALID_PRODUCER_EPOCH)
        if not coordinator.busy:
            coordinator.busy = True
            self._tasks.attempt(self._send_all(node, coordinator), name=f"verification at broker {node}")

    async def _send_all(self, node: NodeId, coordinator: _Coordinator) -> None:
        try:
            while coordinator.waiting:
                parts = _next_request(coordinator)
                try:
                    errors = await self._send(node, parts)
                except Exception as error:  # what waits for the next request must be asked nevertheless
                    self._contained.note("verification of transactions", error, broker=node)
                    errors = [_of_all(part, ErrorCode.NETWORK_EXCEPTION) for part in parts]
                except asyncio.CancelledError:
                    for part in parts:
                        self._answer_all(part, ErrorCode.NETWORK_EXCEPTION)
                    raise
                for part, failed in zip(parts, errors, strict=True):
                    self._answer(part, failed)
        finally:
            coordinator.busy = False
            if not coordinator.waiting and self._coordinators.get(node) is coordinator:
                del self._coordinators[node]

    async def _send(self, node: NodeId, parts: Sequence[_Part]) -> list[PartitionErrors]:
        """Send one request. Returns the errors of each of ``parts``."""
        if self._own.is_asked(node):
            return _errors_of(parts, await self._ask_own(parts))
        try:
            version = await self._links.version(node, ApiKey.ADD_PARTITIONS_TO_TXN)
            if version < FIRST_VERSION:
                return [{} for _ in parts]
            response: AddPartitionsToTxnResponse = await self._links.request(
                node, ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=_transactions(parts)
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return [{} for _ in parts]
            return [_of_all(part, ErrorCode.NETWORK_EXCEPTION) for part in parts]
        except ConnectionError:
            return [_of_all(part, ErrorCode.NETWORK_EXCEPTION) for part in parts]
        if response.error_code:
            code = ErrorCode(response.error_code)
            shown = ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
            return [_of_all(part, shown) for part in parts]
        return _errors_of(parts, _results(response))

    async def _ask_own(self, parts: Sequence[_Part]) -> _Results:
        """Ask the coordinator of this broker. Returns its results when all of them are there. It has up to
        MAX_PARTITIONS records to write, so that other tasks run in between."""
        transactions = _partitions_of(parts)
        results: _Results = {}
        complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(transactional_id: str, errors: PartitionErrors) -> None:
            results[transactional_id] = errors
            if len(results) == len(transactions) and not complete.done():
                complete.set_result(None)

        budget = YieldBudget()
        for transactional_id, (verification, partitions) in transactions.items():
            producer = ProducerIdAndEpoch(verification.producer_id, ProducerEpoch(verification.epoch))
            done = partial(answered, transactional_id)
            verify_only = not verification.operation.adds
            if budget.spend(
                self._own.add_or_verify(transactional_id, producer, partitions, done, verify_only=verify_only)
            ):
                await self._clock.sleep(0)
        await complete
        return results

    def _answer_all(self, part: _Part, error: ErrorCode) -> None:
        self._answer(part, _of_all(part, error))

    def _answer(self, part: _Part, errors: PartitionErrors) -> None:
        verification = part.verification
        try:
            if verification.answer(part.partitions, errors):
                self._meters.answered(self._clock.monotonic() - verification.began, verification.failed)
        except Exception as error:  # of one request; the others must have their answers
            self._contained.note("a verified request", error, transactional_id=verification.transactional_id)


def _next_request(coordinator: _Coordinator) -> list[_Part]:
    """Take the parts of the next request from the queue: each transactional id with one producer and operation, and at
    most MAX_PARTITIONS partitions."""
    taken: list[_Part] = []
    room = MAX_PARTITIONS
    for transactional_id, parts in list(coordinator.waiting.items()):
        first = parts[0].verification
        while parts and len(parts[0].partitions) <= room and first.is_same_transaction(parts[0].verification):
            room -= len(parts[0].partitions)
            taken.append(parts.pop(0))
        if not parts:
            del coordinator.waiting[transactional_id]
        if not room:
            break
    return taken


def _partitions_of(parts: Sequence[_Part]) -> dict[str, tuple[PendingVerification, dict[TopicPartition, None]]]:
    """By transactional id: a verification of the transaction, and the partitions of all of them."""
    found: dict[str, tuple[PendingVerification, dict[TopicPartition, None]]] = {}
    for part in parts:
        _, partitions = found.setdefault(part.verification.transactional_id, (part.verification, {}))
        partitions.update(dict.fromkeys(part.partitions))
    return found


def _transactions(parts: Sequence[_Part]) -> list[dict[str, object]]:
    """The transactions of a request."""
    return [
        {
            "transactional_id": transactional_id,
            "producer_id": verification.producer_id,
            "producer_epoch": verification.epoch,
            "verify_only": not verification.operation.adds,
            "topics": [{"name": topic, "partitions": indexes} for topic, indexes in _by_topic(partitions).items()],
        }
        for transactional_id, (verification, partitions) in _partitions_of(parts).items()
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _errors_of(parts: Sequence[_Part], results: _Results) -> list[PartitionErrors]:
    """The errors of each of ``parts``."""
    return [
        {
            partition: results.get(part.verification.transactional_id, {}).get(partition, ErrorCode.NETWORK_EXCEPTION)
            for partition in part.partitions
        }
        for part in parts
    ]


def _results(response: AddPartitionsToTxnResponse) -> _Results:
    return {
        str(transaction.transactional_id): {
            (str(topic.name), int(result.partition_index)): ErrorCode(result.partition_error_code)
            for topic in transaction.topic_results
            for result in topic.results_by_partition
        }
        for transaction in response.results_by_transaction
    }


def _of_all(part: _Part, error: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(part.partitions, error)
