"""The contract of ``Clients``: the same tests for every client library. Subclasses create the library."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from milena.lab.chaos.clients import ChaosAdmin, ChaosConsumer, ChaosMember, Clients, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients.limits import Limits
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places
from tests.wire.waiting import wait_until

LARGEST = 4096
"""``message.max.bytes`` of the brokers."""
SETTINGS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "auto.create.topics.enable": "false",
    "message.max.bytes": str(LARGEST),
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "broker.session.timeout.ms": "120000",  # so that a broker which a test pauses is not fenced
    "broker.heartbeat.interval.ms": "200",
}
QUICK = Limits(delivery=4, close=3, request=1.5)
"""For tests in which no broker answers."""
PATIENT = 30.0
"""Seconds after which a test that waits fails."""


class ClientsContract:
    """Each test creates and closes its clients, on an event loop of its own."""

    @abstractmethod
    def library(self, bootstrap: str, limits: Limits) -> Clients: ...

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
        """Two brokers; every partition has a replica on each."""
        with LocalCluster.start(tmp_path_factory.mktemp("clients"), brokers=2, overrides=SETTINGS) as running:
            yield running

    @pytest.fixture
    def clients(self, cluster: LocalCluster) -> Clients:
        return self.library(cluster.bootstrap, Limits())

    @pytest.fixture
    async def admin(self, clients: Clients) -> AsyncIterator[ChaosAdmin]:
        admin = await clients.admin()
        yield admin
        await admin.close()

    @pytest.fixture
    async def topic(self, admin: ChaosAdmin) -> str:
        name = f"topic-{os.urandom(4).hex()}"
        assert await admin.create_topic(name, 2, 2, {}) is RequestOutcome.OK
        return name

    # -- producers

    @pytest.mark.parametrize(("acks", "idempotent"), [(ACKS_ALL, True), (1, False)])
    async def test_records_keep_their_order_while_each_broker_is_restarted(
        self, cluster: LocalCluster, clients: Clients, topic: str, acks: int, idempotent: bool
    ) -> None:
        producer = await clients.producer(acks=acks, idempotent=idempotent)
        writers = [asyncio.create_task(write((topic, number), producer.send)) for number in range(2)]
        for node in cluster.brokers:
            await asyncio.to_thread(cluster.stop_node, node.id)
            await asyncio.to_thread(cluster.start_node, node.id)
            await asyncio.to_thread(in_sync, cluster, topic)
        writers[0].cancel()
        writers[1].cancel()
        for partition, writer in enumerate(writers):
            sent = await writer
            assert len(sent) > 100 and {one.outcome for one in sent} == {RequestOutcome.OK}
            log = await read_log(clients, (topic, partition))
            if acks == ACKS_ALL:
                assert [(one.offset, one.value) for one in log] == [
                    (one.offset, str(at)) for at, one in enumerate(sent)
                ]
            else:  # a leader that stops may lose records, and a retry may write records twice
                values = [int(one.value or "") for one in log]
                assert list(dict.fromkeys(values)) == sorted(set(values))
        await producer.close()

    async def test_a_consumer_reads_the_records_that_were_sent(self, clients: Clients, topic: str) -> None:
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        sent = [("key", "value"), (None, "ä\n\"'"), ("gone", None)]
        result = [await producer.send((topic, 1), key, value) for key, value in sent]
        await producer.close()
        assert [one.offset for one in result] == [0, 1, 2]
        read = await read_all(clients, (topic, 1), 3)
        assert [(one.partition, one.offset, one.key, one.value) for one in read] == [
            ((topic, 1), at, key, value) for at, (key, value) in enumerate(sent)
        ]

    async def test_sending_a_record_that_is_too_large_fails_and_sending_the_next_one_succeeds(
        self, clients: Clients, topic: str
    ) -> None:
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        refused = await producer.send((topic, 0), None, "x" * 2 * LARGEST)
        far_too_large = await producer.send((topic, 0), None, "x" * 3_000_000)
        taken = await producer.send((topic, 0), None, "small")
        assert refused.outcome is RequestOutcome.FAILED and refused.error
        assert far_too_large.outcome is RequestOutcome.FAILED and far_too_large.error
        assert taken == Sent(RequestOutcome.OK, 0)
        await producer.close()

    async def test_more_records_than_the_window_can_be_in_flight_and_keep_their_order(
        self, clients: Clients, topic: str
    ) -> None:
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        sends = [asyncio.create_task(producer.send((topic, 0), None, str(number))) for number in range(2000)]
        sent = await asyncio.gather(*sends)
        await producer.close()
        assert sent == [Sent(RequestOutcome.OK, offset) for offset in range(2000)]
        read = await read_all(clients, (topic, 0), 2000)
        assert [one.value for one in read] == [str(number) for number in range(2000)]

    async def test_sending_to_a_topic_that_does_not_exist_is_an_error(self, cluster: LocalCluster) -> None:
        clients = self.library(cluster.bootstrap, QUICK)
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        async with asyncio.timeout(PATIENT):
            result = await producer.send(("nowhere", 0), None, "value")
            await producer.close()
        assert result.outcome is not RequestOutcome.OK and result.error

    async def test_sending_to_a_deleted_topic_is_an_error(
        self, cluster: LocalCluster, admin: ChaosAdmin, topic: str
    ) -> None:
        producer = await self.library(cluster.bootstrap, QUICK).producer(acks=ACKS_ALL, idempotent=True)
        assert (await producer.send((topic, 0), None, "before")).outcome is RequestOutcome.OK
        assert await admin.delete_topic(topic) is RequestOutcome.OK
        async with asyncio.timeout(PATIENT):
            result = await producer.send((topic, 0), None, "after")
            await producer.close()
        assert result.outcome is not RequestOutcome.OK and result.error

    async def test_closed_clients_leave_no_threads_and_no_descriptors(self, cluster: LocalCluster, topic: str) -> None:
        before = left()
        clients = self.library(cluster.bootstrap, Limits())
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        assert (await producer.send((topic, 0), None, "value")).outcome is RequestOutcome.OK
        consumer = await clients.consumer({(topic, 0): 0})
        member = await clients.member(f"{topic}-left", [topic])
        assert await records(consumer, 1) and await records(member, 1)
        assert await consumer.end_of((topic, 0)) == (0, 1)
        for one in (producer, consumer, member):
            await one.close()
        await until_left(before)

    async def test_closing_ends_in_bounded_time_while_no_broker_answers(
        self, cluster: LocalCluster, topic: str
    ) -> None:
        before = left()
        clients = self.library(cluster.bootstrap, QUICK)
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        consumer = await clients.consumer({(topic, 0): 0})
        member = await clients.member(f"{topic}-closing", [topic])
        admin = await clients.admin()
        assert (await producer.send((topic, 0), None, "value")).outcome is RequestOutcome.OK
        assert await records(consumer, 1) and await records(member, 1)
        try:
            for node in cluster.brokers:
                cluster.pause(node.id)
            under_way = [asyncio.create_task(producer.send((topic, 0), None, str(number))) for number in range(600)]
            async with asyncio.timeout(PATIENT):
                assert await consumer.end_of((topic, 0)) is None
                assert await member.commit({(topic, 0): 1}) is RequestOutcome.UNKNOWN
                assert await admin.topics() is None
                assert await admin.create_topic("unsure", 1, 1, {}) is RequestOutcome.UNKNOWN
            async with asyncio.timeout(PATIENT):
                await producer.close()
                result = await asyncio.gather(*under_way)
            assert not [one for one in result if one.outcome is RequestOutcome.OK]
            assert [one for one in result if one.outcome is RequestOutcome.UNKNOWN]
            async with asyncio.timeout(PATIENT):
                await asyncio.gather(consumer.close(), member.close(), admin.close())
        finally:
            for node in cluster.brokers:
                cluster.resume(node.id)
        await until_left(before)

    async def test_clients_can_be_created_while_no_broker_answers(self, cluster: LocalCluster, topic: str) -> None:
        clients = self.library(cluster.bootstrap, QUICK)
        before = left()
        try:
            for node in cluster.brokers:
                cluster.pause(node.id)
            making = [
                asyncio.create_task(clients.producer(acks=ACKS_ALL, idempotent=True)),
                asyncio.create_task(clients.producer(acks=ACKS_ALL, idempotent=True)),
            ]
            _, waiting = await asyncio.wait(making, timeout=0.5)
            if making[1] in waiting:
                making[1].cancel()
        finally:
            for node in cluster.brokers:
                cluster.resume(node.id)
        async with asyncio.timeout(PATIENT):
            producer = await making[0]
            assert (await producer.send((topic, 0), None, "value")).outcome is RequestOutcome.OK
            await producer.close()
            if not making[1].cancelled() and (done := await asyncio.gather(making[1], return_exceptions=True)):
                for one in done:
                    if not isinstance(one, BaseException):
                        await one.close()
        await until_left(before)

    # -- consumers

    async def test_a_consumer_begins_at_the_given_offsets(self, clients: Clients, topic: str) -> None:
        await fill(clients, (topic, 0), 20)
        consumer = await clients.consumer({(topic, 0): 7, (topic, 1): 0})
        read = await records(consumer, 13)
        assert [one.offset for one in read] == list(range(7, 20))
        assert {one.epoch for one in read} <= {-1, *range(100)}
        assert not await consumer.poll(0.3)
        assert await consumer.end_of((topic, 0)) == (0, 20)
        assert await consumer.end_of((topic, 1)) == (0, 0)
        await consumer.close()

    async def test_a_consumer_at_an_offset_out_of_range_continues_at_the_log_start_offset(
        self, clients: Clients, topic: str
    ) -> None:
        await fill(clients, (topic, 0), 5)
        consumer = await clients.consumer({(topic, 0): 1000})
        read = await records(consumer, 5)
        assert [one.offset for one in read] == list(range(5))
        await consumer.close()

    async def test_an_empty_poll_ends_in_time_and_a_cancelled_poll_loses_no_records(
        self, clients: Clients, topic: str
    ) -> None:
        consumer = await clients.consumer({(topic, 0): 0})
        async with asyncio.timeout(PATIENT):
            assert not await consumer.poll(0.2)
        read: list[Got] = []
        writing = asyncio.create_task(fill(clients, (topic, 0), 300))
        async with asyncio.timeout(PATIENT):
            while len(read) < 300:
                try:
                    async with asyncio.timeout(0.01):
                        read += await consumer.poll(5)
                except TimeoutError:
                    continue
        await writing
        await consumer.close()
        assert [one.offset for one in read] == list(range(300))

    # -- groups

    async def test_a_new_owner_of_a_partition_begins_at_the_committed_offset(
        self, clients: Clients, topic: str
    ) -> None:
        await fill(clients, (topic, 0), 10)
        await fill(clients, (topic, 1), 10)
        first = await clients.member(topic, [topic])
        read = await records(first, 20)
        assert sorted((one.partition, one.offset) for one in read) == [
            ((topic, n), at) for n in (0, 1) for at in range(10)
        ]
        old = first.session
        assert await first.commit({(topic, 0): 4, (topic, 1): 6}) is RequestOutcome.OK
        second = await clients.member(topic, [topic])
        shared = await handed_over(second, {10}, also=first)
        (handed,) = {one.partition for one in shared}
        assert [one.offset for one in shared] == list(range(4 + 2 * handed[1], 10))
        assert (session := second.session) and first.session
        await fill(clients, (topic, 1 - handed[1]), 1)
        assert {one.offset for one in await records(first, 1)} and first.session != old
        await first.close()
        rest = await handed_over(second, {11}, also=None)
        assert second.session not in (session, old, first.session)
        offsets = [one.offset for one in rest if one.partition != handed]
        assert offsets == list(range(6 - 2 * handed[1], 11))
        await second.close()

    # -- admin

    async def test_admin_requests_return_their_outcomes(self, clients: Clients, admin: ChaosAdmin, topic: str) -> None:
        assert topic in (await admin.topics() or ())
        assert await admin.create_topic(topic, 1, 1, {}) is RequestOutcome.FAILED
        assert await admin.create_topic("x" * 300, 1, 1, {}) is RequestOutcome.FAILED
        assert await admin.create_topic(f"{topic}-2", 1, 9, {}) is RequestOutcome.FAILED
        assert await admin.create_topic(f"{topic}-2", 1, 1, {"no.such": "config"}) is RequestOutcome.FAILED
        assert await admin.set_config(topic, {"retention.ms": "soon"}) is RequestOutcome.FAILED
        assert await admin.set_config(topic, {"retention.ms": "3600000"}) is RequestOutcome.OK
        assert await admin.set_config(topic, {"max.message.bytes": "1000"}) is RequestOutcome.OK
        producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
        assert (await producer.send((topic, 0), None, "x" * 2000)).outcome is RequestOutcome.FAILED
        await producer.close()
        assert await admin.delete_topic(topic) is RequestOutcome.OK
        assert await admin.delete_topic(f"{topic}-never") is RequestOutcome.FAILED


def in_sync(cluster: LocalCluster, topic: str) -> None:
    places = Places(cluster.bootstrap, topic)
    wait_until(lambda: all(places.all_have(node.id) for node in cluster.brokers), f"{topic} to be in sync")


async def write(partition: TopicPartition, send: object) -> list[Sent]:
    """Send records, whose values are their numbers, until this is cancelled; return the outcome of each."""
    under_way: list[asyncio.Task[Sent]] = []
    try:
        while True:
            under_way.append(asyncio.create_task(send(partition, None, str(len(under_way)))))  # type: ignore[operator]
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        async with asyncio.timeout(PATIENT):
            return await asyncio.gather(*under_way)


async def fill(clients: Clients, partition: TopicPartition, count: int) -> None:
    producer = await clients.producer(acks=ACKS_ALL, idempotent=True)
    sends = [asyncio.create_task(producer.send(partition, None, str(number))) for number in range(count)]
    assert {one.outcome for one in await asyncio.gather(*sends)} == {RequestOutcome.OK}
    await producer.close()


async def records(reader: ChaosConsumer | ChaosMember, count: int) -> list[Got]:
    found: list[Got] = []
    async with asyncio.timeout(PATIENT):
        while len(found) < count:
            found += await reader.poll(1)
    return found


async def read_log(clients: Clients, partition: TopicPartition) -> list[Got]:
    consumer = await clients.consumer({partition: 0})
    ends = await consumer.end_of(partition)
    assert ends is not None
    found = await records(consumer, ends[1])
    await consumer.close()
    return found


async def read_all(clients: Clients, partition: TopicPartition, count: int) -> list[Got]:
    consumer = await clients.consumer({partition: 0})
    found = await records(consumer, count)
    await consumer.close()
    return found


async def handed_over(member: ChaosMember, ends: set[int], also: ChaosMember | None) -> list[Got]:
    """What ``member`` reads up to the end of one of its partitions, while ``also`` polls too."""
    found: list[Got] = []
    async with asyncio.timeout(PATIENT):
        while not {one.offset + 1 for one in found} & ends:
            found += await member.poll(0.2)
            if also is not None:
                await also.poll(0.2)
    return found


def left() -> tuple[int, int]:
    """The numbers of threads and of open file descriptors."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


async def until_left(before: tuple[int, int]) -> None:
    """Wait until there are no more threads and descriptors than before: asyncio closes some of them later."""
    end = asyncio.get_running_loop().time() + PATIENT
    while (now := left())[0] > before[0] or now[1] > before[1]:
        threads = [thread.name for thread in threading.enumerate()]
        assert asyncio.get_running_loop().time() < end, f"{before} has become {now}: {threads}, {descriptors()}"
        await asyncio.sleep(0.05)


def descriptors() -> list[str]:
    folder = Path("/proc/self/fd")
    return [f"{one.name}: {os.readlink(one)}" for one in folder.iterdir() if one.is_symlink()]
