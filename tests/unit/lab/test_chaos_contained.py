"""An exception that an adapter does not know fails a chaos run at its end, and does not stop other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from milena.lab.chaos.clients import Got, Sent, TransactingClients
from milena.lab.histories.events import RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients import contained
from milena.testing.chaos_clients.contained import MAX_ATTEMPTS, Contained

PLACE = ("plain", 0)


class Fails(Exception):
    """An exception that no adapter expects."""


class Broken:
    """A library whose calls all raise, except polls of consumers: every other poll raises, and its record is lost to
    the caller."""

    name = "broken"
    can = frozenset({"produce", "consume", "group", "admin"})

    def __init__(self, *, made: int = 0) -> None:
        """``made``: the number of attempts to create a client that fail."""
        self.left = made
        self.closed = 0
        self.members = 0
        self.at: dict[TopicPartition, int] = {}
        self.polls = 0

    def _make(self) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise Fails
        return self

    async def producer(self, *, acks: int, idempotent: bool) -> Any:
        return self._make()

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> Any:
        self.at = dict(positions)
        return self._make()

    async def member(self, group: str, topics: Sequence[str]) -> Any:
        self.members += 1
        self.at = {PLACE: 0}
        return self._make()

    async def admin(self) -> Any:
        return self._make()

    @property
    def session(self) -> str:
        return f"member {self.members}"

    async def poll(self, seconds: float) -> Sequence[Got]:
        self.polls += 1
        self.at[PLACE] += 1
        if self.polls % 2:
            raise Fails
        return [Got(PLACE, self.at[PLACE] - 1, None, "value")]

    async def close(self) -> None:
        self.closed += 1
        raise Fails

    async def fail(self, *_: object) -> Any:
        raise Fails

    send = end_of = commit = create_topic = delete_topic = set_config = topics = fail


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contained, "PAUSE", 0.0)


def test_outcomes_are_unknown_after_exceptions_of_a_library() -> None:
    async def work() -> None:
        producer = await library.producer(acks=-1, idempotent=True)
        assert (await producer.send(PLACE, None, "value")).outcome is RequestOutcome.UNKNOWN
        member = await library.member("group", ["plain"])
        assert await member.commit({PLACE: 1}) is RequestOutcome.UNKNOWN
        admin = await library.admin()
        assert await admin.create_topic("one", 1, 1, {}) is RequestOutcome.UNKNOWN
        assert await admin.set_config("one", {}) is RequestOutcome.UNKNOWN
        assert await admin.delete_topic("one") is RequestOutcome.UNKNOWN
        assert await admin.topics() is None
        consumer = await library.consumer({PLACE: 0})
        assert await consumer.end_of(PLACE) is None
        for client in (producer, member, admin, consumer):
            await client.close()

    library = Contained(Broken())
    asyncio.run(work())
    assert library.report() == "broken has raised errors that its adapter does not know: Fails 11 times"


def test_a_consumer_reads_the_records_of_a_failed_poll_again() -> None:
    async def work() -> list[int]:
        consumer = await library.consumer({PLACE: 7})
        return [got.offset for _ in range(8) for got in await consumer.poll(0)]

    library = Contained(Broken())
    assert asyncio.run(work()) == [7, 8, 9, 10]


def test_a_member_is_replaced_by_a_new_one_after_a_failed_poll() -> None:
    async def work() -> list[tuple[str, int]]:
        member = await library.member("group", ["plain"])
        return [(member.session, got.offset) for _ in range(4) for got in await member.poll(0)]

    library = Contained(Broken())
    assert asyncio.run(work()) == [("member 2", 0), ("member 3", 0)]


def test_creation_of_a_client_is_retried() -> None:
    library = Contained(Broken(made=MAX_ATTEMPTS - 1))
    asyncio.run(library.admin())
    assert library.errors == {"Fails": MAX_ATTEMPTS - 1}


def test_a_client_that_can_never_be_created_fails_the_run_at_once() -> None:
    with pytest.raises(Fails):
        asyncio.run(Contained(Broken(made=MAX_ATTEMPTS + 1)).admin())


def test_a_library_that_raises_nothing_is_not_reported() -> None:
    class Sound(Broken):
        async def send(self, *_: object) -> Sent:
            return Sent(RequestOutcome.OK, 3)

    async def work() -> Sent:
        return await (await library.producer(acks=-1, idempotent=True)).send(PLACE, None, "value")

    library = Contained(Sound())
    assert asyncio.run(work()) == Sent(RequestOutcome.OK, 3)
    assert library.report() == ""


class BrokenTransactions(Broken):
    """The same, with transactions."""

    own_epochs = True
    fences_members = True

    async def transactions(self, transactional_id: str, timeout: float) -> Any:
        return self._make()

    committed_consumer = Broken.consumer
    transformer = Broken.member
    init = begin = send_offsets = abort = Broken.fail


def test_calls_of_transactions_fail_or_are_unknown_after_exceptions_of_a_library() -> None:
    async def work() -> list[tuple[str, int]]:
        producer = await library.transactions("id", 1.0)
        member = await library.transformer("group", ["plain"])
        assert not await producer.init()
        assert not await producer.begin()
        assert not await producer.send_offsets({PLACE: 1}, member)
        assert (await producer.send(PLACE, "value")).outcome is RequestOutcome.UNKNOWN
        assert await producer.commit() is RequestOutcome.UNKNOWN
        assert await producer.abort() is RequestOutcome.UNKNOWN
        await producer.close()
        return [(member.session, got.offset) for _ in range(4) for got in await member.poll(0)]

    library = contained.ContainedTransacting(BrokenTransactions())
    assert asyncio.run(work()) == [("member 2", 0), ("member 3", 0)]


def test_a_library_without_transactions_is_not_asked_for_them() -> None:
    assert not isinstance(contained.contained(Broken()), TransactingClients)
    assert isinstance(contained.contained(BrokenTransactions()), TransactingClients)
