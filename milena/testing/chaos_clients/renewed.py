"""A producer that is replaced by a new one after a fatal error, as an application would do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from milena.lab.chaos.clients import ChaosProducer, Sent
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients.outcomes import FATAL


class RenewedProducer:
    """Implements ``ChaosProducer``. After a fatal error new records wait for the next producer. Records of the old
    producer have an unknown outcome, and may still be appended."""

    def __init__(self, first: ChaosProducer, make: Callable[[], Awaitable[ChaosProducer]]) -> None:
        self._producer = first
        self._make = make
        self._turn = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def of(cls, make: Callable[[], Awaitable[ChaosProducer]]) -> RenewedProducer:
        return cls(await make(), make)

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        async with self._turn:  # suspends only while a producer is replaced
            producer = self._producer
            sending = asyncio.ensure_future(
                producer.send(partition, key, value)
            )  # tasks start in the order of creation
        sent = await sending
        renewing = self._closed or (self._renewing is not None and not self._renewing.done())
        if sent.error.startswith(FATAL) and producer is self._producer and not renewing:
            self._renewing = asyncio.create_task(self._renew())
        return sent

    async def _renew(self) -> None:
        async with self._turn:
            await self._producer.close()
            self._producer = await self._make()

    async def close(self) -> None:
        self._closed = True
        if self._renewing is not None and not self._renewing.done():
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        await self._producer.close()
