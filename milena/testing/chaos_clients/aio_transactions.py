"""Transactions of aiokafka.

The library commits offsets without the generation of a member (TxnOffsetCommit v0), so that an old member is not
fenced: it does no consume-transform-produce work. The outcome of a commit that fails is unknown, because the library
repeats EndTxn by itself. Transactions of a producer share an epoch, also after an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Place
from aiokafka.errors import KafkaError

from milena.lab.chaos.clients import ChaosTransformer, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients.aio import AiokafkaClients, AiokafkaConsumer, AiokafkaProducer, started
from milena.testing.chaos_clients.limits import Limits

CLOSE: Final = 2.0
"""Seconds for records that have no outcome: the transaction stays open in any case."""


class AiokafkaTransactingClients(AiokafkaClients):
    """Implements ``Clients`` and ``TransactingClients``."""

    own_epochs = False
    fences_members = False

    async def transactions(self, transactional_id: str, timeout: float) -> AiokafkaTransactions:
        def one() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                **self._common,
                acks=ACKS_ALL,
                transactional_id=transactional_id,
                transaction_timeout_ms=int(timeout * 1000),
                linger_ms=2,
            )

        return AiokafkaTransactions(one(), self._limits)

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> AiokafkaConsumer:
        settings = self._reading() | {"isolation_level": "read_committed"}
        consumer = await started(lambda: AIOKafkaConsumer(**settings))
        consumer.assign([Place(*partition) for partition in positions])
        for partition, offset in positions.items():
            consumer.seek(Place(*partition), offset)
        return AiokafkaConsumer(consumer, self._limits)

    async def transformer(self, group: str, topics: Sequence[str]) -> NoReturn:
        raise NotImplementedError(f"{self.name} does not commit offsets with the generation of a member")


class AiokafkaTransactions:
    """Implements ``ChaosTransactions``. A call that has not ended in time ends with the next call of the same kind."""

    def __init__(self, producer: AIOKafkaProducer, limits: Limits) -> None:
        self._producer = producer
        self._records = AiokafkaProducer(producer, replace(limits, close=CLOSE))
        self._seconds = limits.request
        self._committing: asyncio.Future[None] | None = None

    async def init(self) -> bool:
        return await self._ended(self._producer.start())

    async def begin(self) -> bool:
        return await self._ended(self._producer.begin_transaction())

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        return await self._records.send(partition, None, value)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> NoReturn:
        raise NotImplementedError

    async def commit(self) -> RequestOutcome:
        if self._committing is None:
            self._committing = asyncio.ensure_future(self._producer.commit_transaction())
        await asyncio.wait([self._committing], timeout=self._seconds)
        if not self._committing.done():
            return RequestOutcome.UNKNOWN
        committing, self._committing = self._committing, None
        return RequestOutcome.OK if await self._ended(committing) else RequestOutcome.UNKNOWN

    async def abort(self) -> RequestOutcome:
        aborted = await self._ended(self._producer.abort_transaction())
        return RequestOutcome.OK if aborted else RequestOutcome.UNKNOWN

    async def _ended(self, work: Awaitable[object]) -> bool:
        """Return whether the work succeeded in time. A producer in a wrong state raises AssertionError."""
        try:
            async with asyncio.timeout(self._seconds):
                await work
        except (KafkaError, TimeoutError, AssertionError):
            return False
        return True

    async def close(self) -> None:
        if self._committing is not None:
            self._committing.cancel()
        await self._records.close()
