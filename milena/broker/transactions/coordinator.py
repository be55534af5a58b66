"""The transaction coordinator of this broker, for the transactional ids of the ``__transaction_state`` partitions that
it leads (Kafka's ``TransactionCoordinator``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

from milena.broker.coordinators.coordinator import Coordinator
from milena.broker.coordinators.partition_log import PartitionLog
from milena.broker.transactions import decisions
from milena.broker.transactions.loading import load
from milena.broker.transactions.markers import MarkerWork
from milena.broker.transactions.model import NO_TIMEOUT, Done, ProducerDone, Transaction, TransactionSettings
from milena.broker.transactions.shard import Shard
from milena.broker.transactions.transition_log import Cause, TransitionLog
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import EPOCH_BUMP_VERSION
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import NO_PRODUCER, LeaderEpoch, ProducerId, ProducerIdAndEpoch, TopicPartition
from milena.runtime.context import Runtime
from milena.runtime.limited_log import LimitedLog
from milena.runtime.tasks import Tasks

FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""The errors of a producer that another one has replaced."""


class Markers(Protocol):
    """Writes markers to the partitions of transactions (``transactions.markers``)."""

    def send(self, work: MarkerWork) -> None: ...

    def cancel(self, state_partition: int) -> None: ...


class NewIds(Protocol):
    """Allocates producer ids (``controller_link.producer_ids``)."""

    def take(self) -> ProducerId | None:
        """A new id; None if the broker has none now."""
        ...

    def ready(self) -> Coroutine[object, object, None]:
        """Wait until ``take`` has an id. Raises KafkaError."""
        ...


class TransactionCoordinator(Coordinator[Shard]):
    """The shards of one broker. API modules get it as ``node.transactions``. The ids of a partition are loaded again in
    each leader epoch, as in Kafka: markers have the epoch of the coordinator."""

    SUBJECT = "transaction"
    COUNTED = "transactional_ids"
    KEEPS_SHARDS = False

    def __init__(
        self,
        runtime: Runtime,
        tasks: Tasks,
        *,
        turn: Callable[[], Awaitable[None]],
        partition_count: Callable[[], int],
        version: Callable[[], int],
        producer_ids: NewIds,
        markers: Markers,
        settings: TransactionSettings,
    ) -> None:
        """``turn`` as in ``Coordinator``. ``version``: the finalized level of ``transaction.version``."""
        super().__init__(
            runtime,
            tasks,
            turn=turn,
            partition_count=partition_count,
            commit_timeout_ms=settings.commit_timeout_ms,
            load_bytes=settings.load_bytes,
        )
        self._version = version
        self._producer_ids = producer_ids
        self._lacked_ids = False
        self._markers = markers
        self.settings = settings
        self.transitions = TransitionLog(runtime.clock, keeps=runtime.lab)
        self._events = LimitedLog(self._log, runtime.clock.monotonic)

    def start(self) -> None:
        self._tasks.keep(self._abort_timed_out, name="transaction-timeouts")
        self._tasks.keep(self._expire_ids, name="transactional-id-expiration")

    # -- leadership

    def _new_shard(self, index: int, leader_epoch: LeaderEpoch, log: PartitionLog) -> Shard:
        self.transitions.touch()
        return Shard(
            log,
            clock=self._runtime.clock,
            version=self._version,
            send_markers=partial(self._send_markers, index, leader_epoch),
            transitions=self.transitions,
        )

    def _load(self, log: PartitionLog, shard: Shard) -> Cooperative[None]:
        return load(log, shard, self._events)

    def _loaded(self, index: int) -> None:
        self.transitions.touch()

    def _closed(self, index: int) -> None:
        self._markers.cancel(index)

    def _send_markers(
        self,
        index: int,
        leader_epoch: LeaderEpoch,
        transactional_id: str,
        transaction: Transaction,
        done: Callable[[], None],
    ) -> None:
        def fenced(error: ErrorCode) -> None:
            # As in Kafka the transaction stays prepared until this partition has another leader epoch.
            self._events.warning(
                "markers refused", id=transactional_id, producer=transaction.producer_id, error=error.name
            )

        self._markers.send(
            MarkerWork(
                transactional_id=transactional_id,
                state_partition=index,
                coordinator_epoch=leader_epoch,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                commit=transaction.commits,
                partitions=transaction.partitions,
                transaction_version=transaction.client_version,
                done=done,
                fenced=fenced,
            )
        )

    # -- look-ups

    def shard(self, transactional_id: str) -> Shard:
        """The shard of an id. Raises KafkaError: INVALID_REQUEST for the empty id, NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self._shard_for(transactional_id)

    @property
    def loading_count(self) -> int:
        """How many partitions of ``__transaction_state`` are being loaded."""
        return sum(not led.loaded for led in self._led.values())

    def find(self, transactional_id: str) -> Transaction | None:
        """The committed state of an id. Raises as ``shard``."""
        return self.shard(transactional_id).get(transactional_id)

    # -- requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        done: ProducerDone,
        *,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> None:
        """Give a producer the next epoch of its producer id, or another id (InitProducerId). An open transaction is
        aborted, and the client has to repeat the request. Raises KafkaError, in particular NoProducerIds."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if two_phase_commit and not self.settings.two_phase_commit:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not two_phase_commit and not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        shard = self.shard(transactional_id)
        with self._noting_refusals(transactional_id, expected):
            following = decisions.init_producer_id(
                shard.get(transactional_id),
                busy=shard.is_busy(transactional_id),
                expected=expected,
                timeout_ms=NO_TIMEOUT if two_phase_commit else timeout_ms,
                next_id=self._next_id,
                version=self._version(),
                now_ms=self._runtime.clock.time_ms(),
            )

        def written(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and following.state is not TransactionState.EMPTY:
                error = ErrorCode.CONCURRENT_TRANSACTIONS  # the open transaction is being aborted
            done(error, following.producer if error is ErrorCode.NONE else NO_PRODUCER)

        cause = Cause.REQUEST if following.state is TransactionState.EMPTY else Cause.FENCED
        shard.change(transactional_id, following, written, cause)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        done: Done,
    ) -> None:
        """Add partitions to the transaction of a producer (AddPartitionsToTxn, AddOffsetsToTxn). Raises KafkaError.

        A client that adds them itself waits for a short time while its previous transaction is being completed. Kafka
        answers CONCURRENT_TRANSACTIONS at once, and the client repeats the request after 20 ms or more. The request of
        a broker does not wait, since others wait for its answer."""

        def step() -> None:
            shard = self.shard(transactional_id)
            present = shard.get(transactional_id)
            with self._noting_refusals(transactional_id, producer):
                following = decisions.add_partitions(
                    present,
                    producer,
                    partitions,
                    busy=shard.is_busy(transactional_id),
                    client_version=client_version,
                    now_ms=self._runtime.clock.time_ms(),
                )
            if following is present:
                shard.confirm(done)
            else:
                shard.change(transactional_id, following, done)

        def completed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                done(error)
                return
            try:
                step()
            except KafkaError as refused:
                done(refused.code)
            except BrokenInvariant:
                done(ErrorCode.UNKNOWN_SERVER_ERROR)
                raise

        shard = self.shard(transactional_id)
        if client_version >= EPOCH_BUMP_VERSION or not shard.wait_for_completion(transactional_id, completed):
            step()

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The error of each partition: NONE if it is in the open transaction of this producer. Raises KafkaError with
        an error for all of them."""
        with self._noting_refusals(transactional_id, producer):
            present = decisions.verify_partitions(self.find(transactional_id), producer)
        return {
            partition: ErrorCode.NONE if partition in present.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        commit: bool,
        client_version: int,
        done: ProducerDone,
    ) -> None:
        """Commit or abort the transaction of a producer (EndTxn). ``done`` gets the producer id and epoch of the next
        transaction, NO_PRODUCER below transaction version 2; it is called when the outcome is committed to the log,
        before the markers are written. Raises KafkaError, in particular NoProducerIds."""
        shard = self.shard(transactional_id)
        present = shard.get(transactional_id)
        with self._noting_refusals(transactional_id, producer):
            following = decisions.end(
                present,
                producer,
                busy=shard.is_busy(transactional_id),
                commit=commit,
                client_version=client_version,
                next_id=self._next_id,
                now_ms=self._runtime.clock.time_ms(),
            )
        bumps = client_version >= EPOCH_BUMP_VERSION
        repeated = following is present
        completed = following if repeated else decisions.complete(following, now_ms=following.update_ms)

        def ended(error: ErrorCode) -> None:
            done(error, completed.producer if bumps and error is ErrorCode.NONE else NO_PRODUCER)

        if repeated:
            shard.confirm(ended)
        else:
            shard.change(transactional_id, following, ended)

    @contextmanager
    def _noting_refusals(self, transactional_id: str, producer: ProducerIdAndEpoch | None) -> Iterator[None]:
        """Note for the lab that a producer with an older epoch, or with a former producer id, is refused."""
        try:
            yield
        except KafkaError as refused:
            if refused.code in FENCED and producer is not None:
                present = self.find(transactional_id)
                if present is not None:
                    self.transitions.refuse(transactional_id, present, producer)
            raise

    async def with_producer_ids(self, step: Callable[[], None]) -> None:
        """Allocate producer ids, then run ``step`` again, which has raised NoProducerIds. Raises KafkaError."""
        await self._producer_ids.ready()
        step()

    def _next_id(self) -> ProducerId:
        producer_id = self._producer_ids.take()
        if producer_id is None:
            self._lacked_ids = True
            raise decisions.NoProducerIds
        return producer_id

    # -- time

    async def _abort_timed_out(self) -> None:
        while True:
            await self._runtime.clock.sleep(self.settings.abort_interval_ms / 1000)
            for led in list(self._led.values()):
                if led.loaded and led.shard.open_count:
                    await self._finish(led, led.shard.abort_timed_out(self._next_id))
            if self._lacked_ids:
                self._lacked_ids = False
                await self._allocate()

    async def _allocate(self) -> None:
        try:
            await self._producer_ids.ready()
        except KafkaError as error:
            self._events.warning("no producer ids", reason=error.message)

    async def _expire_ids(self) -> None:
        while True:
            await self._runtime.clock.sleep(self.settings.expiration_interval_ms / 1000)
            for led in list(self._led.values()):
                if led.loaded:
                    await self._finish(led, led.shard.expire(self.settings.id_expiration_ms))
