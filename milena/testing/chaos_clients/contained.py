"""Handles errors of a library that its adapter does not know. They are logged and counted, so that the run fails at its
end; until then the workload continues, and the history is still checked.

The outcome of the record, commit or change is then unknown. A consumer is replaced by a new one at the same position, a
group member by a new member, so that records which the old one had fetched and not returned are read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from milena.lab.chaos.clients import (
    ChaosAdmin,
    ChaosConsumer,
    ChaosMember,
    ChaosProducer,
    ChaosTransactions,
    ChaosTransformer,
    Clients,
    Got,
    Sent,
    TransactingClients,
)
from milena.lab.histories.events import RequestOutcome
from milena.protocol.types import TopicPartition

T = TypeVar("T")
U = TypeVar("U")
MakeConsumer: TypeAlias = Callable[[Mapping[TopicPartition, int]], Awaitable[ChaosConsumer]]
UNSURE: Final = RequestOutcome.UNKNOWN
UNKNOWN: Final = Sent(UNSURE, error="an error that the adapter does not know")

PAUSE: Final = 0.5
"""Seconds before the next attempt."""
MAX_ATTEMPTS: Final = 20
"""Attempts to create a client; if all fail, the settings or the library are wrong."""


class Contained:
    """Implements ``Clients`` with the adapter of a library."""

    def __init__(self, clients: Clients) -> None:
        self.name = clients.name
        self.can = clients.can
        self.errors: Counter[str] = Counter()
        """The number of unknown errors by type."""
        self._clients = clients

    def report(self) -> str:
        """Return a description of the errors; "" if there were none."""
        errors = ", ".join(f"{name} {count} times" for name, count in sorted(self.errors.items()))
        return f"{self.name} has raised errors that its adapter does not know: {errors}" if errors else ""

    async def contain(self, doing: str, work: Awaitable[T], instead: U) -> T | U:
        """Return the result of ``work``, or ``instead`` if it raises; the error is logged with ``doing``."""
        try:
            return await work
        except Exception as error:
            self.errors[type(error).__name__] += 1
            logging.getLogger(f"chaos.{self.name}").error("%s", doing, exc_info=error)
            return instead

    async def made(self, doing: str, make: Callable[[], Awaitable[T]]) -> T:
        """Call ``make`` until it succeeds. Raises the error of the last attempt."""
        for _ in range(MAX_ATTEMPTS):
            found = await self.contain(doing, make(), None)
            if found is not None:
                return found
            await asyncio.sleep(PAUSE)
        return await make()

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
        make = lambda: self._clients.producer(acks=acks, idempotent=idempotent)  # noqa: E731
        return ContainedProducer(self, await self.made("make a producer", make))

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        return await ContainedConsumer.of(self, self._clients.consumer, positions)

    async def member(self, group: str, topics: Sequence[str]) -> ChaosMember:
        make = lambda: self._clients.member(group, topics)  # noqa: E731
        return ContainedMember(self, make, await self.made("make a member", make))

    async def admin(self) -> ChaosAdmin:
        return ContainedAdmin(self, await self.made("make an admin client", self._clients.admin))


class ContainedProducer:
    """Implements ``ChaosProducer``."""

    def __init__(self, library: Contained, producer: ChaosProducer) -> None:
        self._library = library
        self._producer = producer

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        return await self._library.contain("send", self._producer.send(partition, key, value), UNKNOWN)

    async def close(self) -> None:
        await self._library.contain("close a producer", self._producer.close(), None)


class ContainedConsumer:
    """Implements ``ChaosConsumer``."""

    def __init__(
        self, library: Contained, make: MakeConsumer, positions: Mapping[TopicPartition, int], consumer: ChaosConsumer
    ) -> None:
        self._library = library
        self._make = make
        self._positions = dict(positions)
        """The next offset of each partition after the returned records."""
        self._consumer = consumer

    @classmethod
    async def of(
        cls, library: Contained, make: MakeConsumer, positions: Mapping[TopicPartition, int]
    ) -> ContainedConsumer:
        consumer = await library.made("make a consumer", lambda: make(positions))
        return cls(library, make, positions, consumer)

    async def poll(self, seconds: float) -> Sequence[Got]:
        found = await self._library.contain("poll", self._consumer.poll(seconds), None)
        if found is not None:
            for got in found:
                self._positions[got.partition] = got.offset + 1
            return found
        await self.close()
        self._consumer = await self._library.made("make a consumer again", lambda: self._make(self._positions))
        return ()

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        return await self._library.contain("ask for the end", self._consumer.end_of(partition), None)

    async def close(self) -> None:
        await self._library.contain("close a consumer", self._consumer.close(), None)


class ContainedMember:
    """Implements ``ChaosMember``."""

    def __init__(self, library: Contained, make: Callable[[], Awaitable[ChaosMember]], member: ChaosMember) -> None:
        self._library = library
        self._make = make
        self._member = member

    @property
    def session(self) -> str:
        return self._member.session

    async def poll(self, seconds: float) -> Sequence[Got]:
        found = await self._library.contain("poll of a member", self._member.poll(seconds), None)
        if found is not None:
            return found
        await self.close()
        self._member = await self._library.made("make a member again", self._make)
        return ()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        return await self._library.contain("commit", self._member.commit(offsets), UNSURE)

    async def close(self) -> None:
        await self._library.contain("close a member", self._member.close(), None)


class ContainedAdmin:
    """Implements ``ChaosAdmin``."""

    def __init__(self, library: Contained, admin: ChaosAdmin) -> None:
        self._library = library
        self._admin = admin

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome:
        return await self._library.contain(
            "create a topic", self._admin.create_topic(name, partitions, replicas, config), UNSURE
        )

    async def delete_topic(self, name: str) -> RequestOutcome:
        return await self._library.contain("delete a topic", self._admin.delete_topic(name), UNSURE)

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome:
        return await self._library.contain("configure a topic", self._admin.set_config(topic, config), UNSURE)

    async def topics(self) -> Sequence[str] | None:
        return await self._library.contain("list topics", self._admin.topics(), None)

    async def close(self) -> None:
        await self._library.contain("close an admin client", self._admin.close(), None)


def contained(clients: Clients) -> Contained:
    """Return the library with its errors handled."""
    return ContainedTransacting(clients) if isinstance(clients, TransactingClients) else Contained(clients)


class ContainedTransacting(Contained):
    """Implements ``Clients`` and ``TransactingClients``."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        assert isinstance(clients, TransactingClients)
        self._transacting: TransactingClients = clients
        self.own_epochs = clients.own_epochs
        self.fences_members = clients.fences_members

    async def transactions(self, transactional_id: str, timeout: float) -> ChaosTransactions:
        make = lambda: self._transacting.transactions(transactional_id, timeout)  # noqa: E731
        return ContainedTransactions(self, await self.made("make a transactional producer", make))

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        return await ContainedConsumer.of(self, self._transacting.committed_consumer, positions)

    async def transformer(self, group: str, topics: Sequence[str]) -> ChaosTransformer:
        make = lambda: self._transacting.transformer(group, topics)  # noqa: E731
        return ContainedTransformer(self, make, await self.made("make a member with transactions", make))


class ContainedTransactions:
    """Implements ``ChaosTransactions``."""

    def __init__(self, library: Contained, producer: ChaosTransactions) -> None:
        self._library = library
        self._producer = producer

    async def init(self) -> bool:
        return await self._library.contain("initialize", self._producer.init(), False)

    async def begin(self) -> bool:
        return await self._library.contain("begin a transaction", self._producer.begin(), False)

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        return await self._library.contain("send in a transaction", self._producer.send(partition, value), UNKNOWN)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> bool:
        assert isinstance(member, ContainedTransformer)
        sending = self._producer.send_offsets(offsets, member.member)
        return await self._library.contain("send offsets", sending, False)

    async def commit(self) -> RequestOutcome:
        return await self._library.contain("commit a transaction", self._producer.commit(), UNSURE)

    async def abort(self) -> RequestOutcome:
        return await self._library.contain("abort a transaction", self._producer.abort(), UNSURE)

    async def close(self) -> None:
        await self._library.contain("close a transactional producer", self._producer.close(), None)


class ContainedTransformer:
    """Implements ``ChaosTransformer``."""

    def __init__(
        self, library: Contained, make: Callable[[], Awaitable[ChaosTransformer]], member: ChaosTransformer
    ) -> None:
        self._library = library
        self._make = make
        self.member = member
        """The library's member."""

    @property
    def session(self) -> str:
        return self.member.session

    async def poll(self, seconds: float) -> Sequence[Got]:
        found = await self._library.contain("poll of a member with transactions", self.member.poll(seconds), None)
        if found is not None:
            return found
        await self.close()
        self.member = await self._library.made("make a member with transactions again", self._make)
        return ()

    async def close(self) -> None:
        await self._library.contain("close a member with transactions", self.member.close(), None)
