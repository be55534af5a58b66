"""The contract of ``TransactingClients``: the same tests for every client library that has transactions. Subclasses
also inherit from ``ClientsContract``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from milena.lab.chaos.clients import ChaosTransactions, ChaosTransformer, Clients, Got, TransactingClients
from milena.lab.chaos.transactions.workload import TIMEOUTS
from milena.lab.histories.events import RequestOutcome
from milena.protocol.types import TopicPartition
from tests.chaos.clients.contract import PATIENT, records

TIMEOUT = 60.0
"""Seconds; longer than a test."""


class TransactionsContract:
    @pytest.fixture
    def transacting(self, clients: Clients) -> TransactingClients:
        assert isinstance(clients, TransactingClients)
        return clients

    async def test_only_records_of_committed_transactions_are_read(
        self, transacting: TransactingClients, topic: str
    ) -> None:
        producer = await initialized(transacting, topic)
        for number in range(4):
            assert await producer.begin()
            await send(producer, [(topic, 0), (topic, 1)], str(number))
            ended = await (producer.abort() if number % 2 else producer.commit())
            assert ended is RequestOutcome.OK
        await producer.close()
        assert await committed(transacting, topic, 4) == {(topic, at): ["0", "2"] for at in range(2)}

    async def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(
        self, transacting: TransactingClients, topic: str
    ) -> None:
        old = await initialized(transacting, topic)
        assert await old.begin()
        await send(old, [(topic, 0)], "old")
        new = await initialized(transacting, topic)
        assert await new.begin()
        await send(new, [(topic, 0)], "new")
        assert await new.commit() is RequestOutcome.OK
        async with asyncio.timeout(PATIENT):
            late = await asyncio.gather(*(old.send((topic, 0), "late") for _ in range(3)))
        assert RequestOutcome.OK not in {one.outcome for one in late}
        assert await old.commit() is not RequestOutcome.OK
        await old.close()
        await new.close()
        assert await committed(transacting, topic, 1) == {(topic, 0): ["new"]}

    async def test_an_open_transaction_is_left_to_the_next_producer(
        self, transacting: TransactingClients, topic: str
    ) -> None:
        first = await initialized(transacting, topic)
        assert await first.begin()
        await send(first, [(topic, 0)], "open")
        await first.close()
        second = await initialized(transacting, topic)
        assert await second.begin()
        await send(second, [(topic, 0)], "next")
        assert await second.commit() is RequestOutcome.OK
        await second.close()
        assert await committed(transacting, topic, 1) == {(topic, 0): ["next"]}

    async def test_producers_with_the_shortest_timeout_of_the_workload_can_be_made(
        self, transacting: TransactingClients, topic: str
    ) -> None:
        producer = await transacting.transactions(topic, min(TIMEOUTS))
        assert await producer.init()
        await producer.close()

    async def test_offsets_are_committed_with_their_transaction(
        self, transacting: TransactingClients, topic: str
    ) -> None:
        if not transacting.fences_members:
            return
        producer = await initialized(transacting, topic)
        assert await producer.begin()
        await send(producer, [(topic, 0)] * 3, "input")
        assert await producer.commit() is RequestOutcome.OK
        read = await transformed(transacting, producer, topic, commit=False)
        assert [one.offset for one in read] == [0, 1, 2]
        read = await transformed(transacting, producer, topic, commit=True)
        assert [one.offset for one in read] == [0, 1, 2]
        assert await producer.begin()
        await send(producer, [(topic, 0)], "later")
        assert await producer.commit() is RequestOutcome.OK
        member = await transacting.transformer(topic, [topic])
        assert (await polled(member))[0].value == "later"
        await member.close()
        await producer.close()


async def initialized(transacting: TransactingClients, transactional_id: str) -> ChaosTransactions:
    producer = await transacting.transactions(transactional_id, TIMEOUT)
    async with asyncio.timeout(PATIENT):
        while not await producer.init():
            await producer.close()
            producer = await transacting.transactions(transactional_id, TIMEOUT)
    return producer


async def send(producer: ChaosTransactions, places: Sequence[TopicPartition], value: str) -> None:
    sent = await asyncio.gather(*(producer.send(place, value) for place in places))
    assert {one.outcome for one in sent} == {RequestOutcome.OK}


async def committed(transacting: TransactingClients, topic: str, count: int) -> dict[TopicPartition, list[str | None]]:
    """The values of ``count`` records, which is the number that is visible, by partition."""
    consumer = await transacting.committed_consumer({(topic, 0): 0, (topic, 1): 0})
    found: dict[TopicPartition, list[str | None]] = {}
    for one in await records(consumer, count):
        found.setdefault(one.partition, []).append(one.value)
    assert not await consumer.poll(0.5)
    await consumer.close()
    return found


async def polled(member: ChaosTransformer) -> Sequence[Got]:
    async with asyncio.timeout(PATIENT):
        while True:
            if found := await member.poll(1):
                return found


async def transformed(
    transacting: TransactingClients, producer: ChaosTransactions, topic: str, *, commit: bool
) -> Sequence[Got]:
    """What a new member reads of partition 0. Its offset is committed or aborted."""
    member = await transacting.transformer(topic, [topic])
    found = await polled(member)
    assert member.session
    assert await producer.begin()
    assert await producer.send_offsets({(topic, 0): found[-1].offset + 1}, member)
    assert await (producer.commit() if commit else producer.abort()) is RequestOutcome.OK
    await member.close()
    return found
