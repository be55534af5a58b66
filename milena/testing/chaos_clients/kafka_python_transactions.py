"""Transactions of kafka-python.

``init_transactions``, ``commit_transaction`` and the like wait without a limit, or for ``max_block_ms``. Here the same
requests are made, and waited for with a limit. The outcome of a commit that fails is unknown: the library repeats
EndTxn by itself. Transactions of a producer share an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from milena.lab.chaos.clients import ChaosTransformer, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients.bridge import Worker, made
from milena.testing.chaos_clients.kafka_python import (
    BLOCK,
    KafkaPythonClients,
    KafkaPythonConsumer,
    KafkaPythonMember,
    KafkaPythonProducer,
    answered,
    assign,
    close_consumer,
)
from milena.testing.chaos_clients.limits import Limits

CLOSE: Final = 2.0
"""Seconds for records that have no outcome: the transaction stays open in any case."""


class KafkaPythonTransactingClients(KafkaPythonClients):
    """Implements ``Clients`` and ``TransactingClients``."""

    own_epochs = False
    fences_members = True

    async def transactions(self, transactional_id: str, timeout: float) -> KafkaPythonTransactions:
        settings = self._common | {
            "acks": ACKS_ALL,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": int(timeout * 1000),
            "linger_ms": 2,
            "max_block_ms": int(BLOCK * 1000),
            "delivery_timeout_ms": self._limits.delivery_ms,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }
        worker = Worker("kafka-python transactions")
        producer = await made(worker, lambda: answered(KafkaProducer, settings), lambda one: one.close(timeout=0))
        return KafkaPythonTransactions(producer, worker, self._limits)

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> KafkaPythonConsumer:
        worker = Worker("kafka-python consumer")
        consumer = await made(worker, lambda: answered(KafkaConsumer, self._committed()), close_consumer)
        await worker.call(assign, consumer, positions)
        return KafkaPythonConsumer(consumer, worker, self._limits)

    async def transformer(self, group: str, topics: Sequence[str]) -> KafkaPythonTransformer:
        worker = Worker("kafka-python member")
        settings = self._member(self._committed(), group)
        consumer = await made(worker, lambda: answered(KafkaConsumer, settings), close_consumer)
        member = KafkaPythonTransformer(consumer, worker, self._limits)
        await worker.call(consumer.subscribe, list(topics), listener=member.listener)
        return member

    def _committed(self) -> dict[str, Any]:
        return self._reading() | {"isolation_level": "read_committed"}


class KafkaPythonTransactions:
    """Implements ``ChaosTransactions``."""

    def __init__(self, producer: Any, worker: Worker, limits: Limits) -> None:
        self._records = KafkaPythonProducer(producer, worker, replace(limits, close=CLOSE))
        self._producer = producer
        self._worker = worker
        self._seconds = limits.request
        self._ending: Any = None
        """The commit that has not ended yet."""

    @property
    def _manager(self) -> Any:
        return self._producer._transaction_manager

    async def init(self) -> bool:
        return await self._worker.call(self._waits, self._manager.initialize_transactions)

    async def begin(self) -> bool:
        return await self._worker.call(self._begin)

    def _begin(self) -> bool:
        try:
            self._producer.begin_transaction()
        except KafkaError:
            return False
        return True

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        return await self._records.send(partition, None, value)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> bool:
        assert isinstance(member, KafkaPythonTransformer)
        places = {Place(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        group = member.polled_as
        return await self._worker.call(self._waits, lambda: self._manager.send_offsets_to_transaction(places, group))

    async def commit(self) -> RequestOutcome:
        committed = await self._worker.call(self._waits, self._commit)
        return RequestOutcome.OK if committed else RequestOutcome.UNKNOWN

    def _commit(self) -> Any:
        if self._ending is None:
            self._ending = self._manager.begin_commit()
        return self._ending

    async def abort(self) -> RequestOutcome:
        aborted = await self._worker.call(self._waits, self._manager.begin_abort)
        return RequestOutcome.OK if aborted else RequestOutcome.UNKNOWN

    def _waits(self, ask: Callable[[], Any]) -> bool:
        """Make a request and wait for its result. Return whether it succeeded in time."""
        try:
            result = ask()
            self._producer._sender.wakeup()
            succeeded: bool = result.wait(timeout_ms=self._seconds * 1000)
        except KafkaError:
            self._ending = None
            return False
        if succeeded:
            self._ending = None
        return succeeded

    async def close(self) -> None:
        await self._records.close()


class KafkaPythonTransformer(KafkaPythonMember):
    """Implements ``ChaosTransformer``."""

    polled_as: Any = None
    """The membership with which the last records were polled."""

    def _read(self, seconds: float) -> list[Got]:
        found = super()._read(seconds)
        if found:
            self.polled_as = self.listener.membership
        return found
