"""Milena's client on a simulated cluster: producer, consumer, groups, admin requests, and failures of brokers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, find_offset
from milena.client.producer import OutcomeUnknown, Producer
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import Codec
from tests.simulation.steps import seeds

T = TypeVar("T")


def on_a_cluster(
    scenario: Callable[[SimulatedCluster, Cluster], Awaitable[T]],
    *,
    brokers: int = 1,
    seed: int = 1,
    **overrides: object,
) -> T:
    async def run(world: World) -> T:
        cluster = await start_cluster(world, brokers, overrides)
        async with cluster.client() as client:
            result = await scenario(cluster, client)
        cluster.check_alive()
        return result

    return simulate(run, seed=seed)


async def create(client: Cluster, name: str = "t", partitions: int = 1, **configs: str) -> None:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    results = await admin.create_topics(client, [admin.NewTopic(name, partitions, 1, configs=dotted)])
    assert results == {name: None}


async def read(client: Cluster, topic: str, partitions: int, count: int, **options: Any) -> list[ConsumedRecord]:
    """The first ``count`` records of a topic, within a virtual minute."""
    consumer = Consumer(client, **options)
    consumer.assign({(topic, number): None for number in range(partitions)})
    records: list[ConsumedRecord] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll(1)
    await consumer.close()
    return records


class TestProducer:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_records_are_read_back_as_they_were_written(self, codec: Codec) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> list[ConsumedRecord]:
            await create(client)
            producer = Producer(client, codec=codec)
            await producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1234)
            await producer.send("t", None, key=b"k")
            await producer.send("t", b"")
            await producer.close()
            return await read(client, "t", 1, 3)

        first, second, third = on_a_cluster(scenario)
        assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"), ("h", None)))
        assert (first.offset, first.timestamp, first.leader_epoch) == (0, 1234, 0)
        assert (second.value, third.key, third.value) == (None, None, b"")

    def test_many_records_are_sent_in_batches_and_in_order(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> tuple[list[int], list[ConsumedRecord]]:
            await create(client, partitions=3)
            producer = Producer(client, batch_bytes=2000)
            futures = [await producer.enqueue("t", b"%d" % n, partition=n % 3) for n in range(600)]
            await producer.flush()
            offsets = [future.result().offset for future in futures]
            await producer.close()
            return offsets, await read(client, "t", 3, 600)

        offsets, records = on_a_cluster(scenario, brokers=2)
        assert offsets == [number // 3 for number in range(600)]
        for partition in range(3):
            values = [int(record.value or b"") for record in records if record.partition == partition]
            assert values == list(range(partition, 600, 3))

    def test_keys_choose_the_partition_that_java_clients_choose(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> list[int]:
            await create(client, partitions=3)
            producer = Producer(client)
            sent = [await producer.send("t", b"", key=key) for key in (b"21", b"foobar", b"a-little-bit-long-string")]
            await producer.close()
            return [record.partition for record in sent]

        # murmur2 of these keys: -973932308, -790332482, -985981536.
        assert on_a_cluster(scenario) == [(h & 0x7FFFFFFF) % 3 for h in (-973932308, -790332482, -985981536)]

    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_a_producer_sends_with_each_setting_of_acks(self, acks: int) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> tuple[int, int]:
            await create(client)
            producer = Producer(client, acks=acks, idempotent=False)
            sent = await producer.send("t", b"v")
            await producer.close()
            return sent.offset, len(await read(client, "t", 1, 1))

        assert on_a_cluster(scenario) == (-1 if acks == 0 else 0, 1)

    def test_a_batch_that_is_too_large_is_split_and_keeps_its_order(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> list[int]:
            await create(client, max_message_bytes="1000")
            producer = Producer(client)
            waiting = [await producer.enqueue("t", b"%0100d" % number, partition=0) for number in range(50)]
            await producer.flush()
            await producer.close()
            return [(await one).offset for one in waiting]

        assert on_a_cluster(scenario) == list(range(50))

    def test_only_the_batch_that_the_broker_refuses_fails(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client, max_message_bytes="1000")
            producer = Producer(client)
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"x" * 2000)
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (await producer.send("t", b"small")).offset == 0
            await producer.close()

        on_a_cluster(scenario)

    def test_an_unknown_topic_is_an_error_where_none_are_created(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            producer = Producer(client, request_timeout=1)
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.send("nowhere", b"v")
            await producer.close()

        on_a_cluster(scenario, auto_create_topics_enable="false")

    def test_topics_are_created_on_first_use(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> int:
            producer = Producer(client)
            sent = await producer.send("new", b"v")
            await producer.close()
            return sent.offset

        assert on_a_cluster(scenario) == 0

    def test_idempotence_needs_acks_of_all(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            with pytest.raises(ValueError, match="acks=all, not acks=1"):
                Producer(client, acks=1)

        on_a_cluster(scenario)


class TestFailures:
    @pytest.mark.parametrize("seed", seeds(4))
    def test_killing_a_broker_loses_no_acknowledged_record_and_duplicates_none(self, seed: int) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            futures = []
            for number in range(300):
                futures.append(await producer.enqueue("t", b"%d" % number))
                await asyncio.sleep(0.001)
                if number == 150:
                    await cluster.kill("broker-1")
                    await cluster.start_broker(1)
            await producer.close()
            offsets = [future.result().offset for future in futures]
            records = await read(client, "t", 1, 300)
            assert [int(record.value or b"") for record in records] == list(range(300))
            assert [record.offset for record in records] == offsets

        on_a_cluster(scenario, seed=seed)

    def test_without_a_broker_the_outcome_of_sent_records_is_unknown(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client, request_timeout=1, delivery_timeout=3)
            await producer.send("t", b"first")
            cluster.world.fabric.cut("client", "broker-1")
            with pytest.raises(OutcomeUnknown):
                await producer.send("t", b"lost?")
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"never sent")
            assert not isinstance(caught.value, OutcomeUnknown)
            cluster.world.fabric.heal("client", "broker-1")
            await producer.send("t", b"last")
            await producer.close()
            values = [record.value for record in await read(client, "t", 1, 2)]
            assert values[0] == b"first" and values[-1] == b"last"

        on_a_cluster(scenario)

    def test_all_records_are_there_after_a_restart_of_all_nodes(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, partitions=2)
            producer = Producer(client)
            for number in range(20):
                await producer.send("t", b"%d" % number, partition=number % 2)
            await producer.close()
            for machine in ("broker-1", "controller"):
                await cluster.kill(machine)
            await cluster.start_controller()
            await cluster.start_broker(1)
            records = await read(client, "t", 2, 20)
            assert sorted(int(record.value or b"") for record in records) == list(range(20))

        on_a_cluster(scenario)


class TestConsumer:
    def test_a_consumer_seeks_and_returns_its_position(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            for number in range(10):
                await producer.send("t", b"%d" % number)
            await producer.close()
            consumer = Consumer(client)
            consumer.assign({("t", 0): 4})
            assert [record.offset for record in await consumer.poll(5, max_records=2)] == [4, 5]
            assert consumer.position("t", 0) == 6
            consumer.seek("t", 0, 9)
            assert [record.offset for record in await consumer.poll(5)] == [9]
            assert await consumer.poll(1) == []
            await consumer.close()

        on_a_cluster(scenario)

    def test_an_offset_out_of_range_is_reset_or_an_error(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            await producer.send("t", b"v")
            strict = Consumer(client, reset=None)
            strict.assign({("t", 0): 99})
            with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
                await strict.poll(5)
            latest = Consumer(client, reset="latest")
            latest.assign({("t", 0): 99})
            assert await latest.poll(0.5) == []
            await producer.send("t", b"w")
            assert [record.value for record in await latest.poll(5)] == [b"w"]
            for closing in (strict, latest, producer):
                await closing.close()

        on_a_cluster(scenario)

    def test_offsets_are_found_by_time(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            for stamp in (100, 300, 200):
                await producer.send("t", b"v", timestamp=stamp)
            await producer.close()
            asked = (EARLIEST, LATEST, MAX_TIMESTAMP, 150, 301)
            found = [tuple(await find_offset(client, "t", 0, stamp)) for stamp in asked]
            assert found == [(0, -1), (3, -1), (1, 300), (1, 300), (-1, -1)]

        on_a_cluster(scenario)


class TestWhatLongLivedReadersNeed:
    def test_a_partition_that_is_assigned_during_a_poll_is_read_at_once(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer, consumer = Producer(client), Consumer(client)
            await producer.send("t", b"x")
            clock = client.runtime.clock
            begin = clock.monotonic()
            polling = asyncio.ensure_future(consumer.poll(30))
            await clock.sleep(1)
            consumer.assign({("t", 0): 0})
            assert [record.value for record in await polling] == [b"x"]
            assert clock.monotonic() - begin < 2
            await consumer.close()
            await producer.close()

        on_a_cluster(scenario)

    def test_a_damaged_partition_does_not_keep_the_others_from_being_read(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, partitions=3)
            producer, consumer = Producer(client), Consumer(client)
            for number in range(3):
                await producer.send("t", b"%d" % number, partition=number)
            cluster.world.machine("broker-1").storage.corrupt("/data/t-0/00000000000000000000.log", 65)
            consumer.assign({("t", number): 0 for number in range(3)})
            found: list[bytes | None] = []
            refused = 0
            async with asyncio.timeout(60):
                while len(found) < 2 or not refused:
                    try:
                        found += [record.value for record in await consumer.poll(1)]
                    except KafkaError as error:
                        assert error.code is ErrorCode.CORRUPT_MESSAGE
                        refused += 1
            assert sorted(value or b"" for value in found) == [b"1", b"2"]
            await consumer.close()
            await producer.close()

        on_a_cluster(scenario)

    def test_closing_a_producer_without_waiting_fails_the_pending_sends(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            await producer.send("t", b"x")
            await cluster.kill("broker-1")
            sending = asyncio.ensure_future(producer.send("t", b"y"))
            await asyncio.sleep(0.1)
            await producer.close(flush=False)
            with pytest.raises(OutcomeUnknown):
                await sending

        on_a_cluster(scenario)


class TestGroups:
    def test_members_share_the_partitions_and_take_over_those_of_others(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client, partitions=4)
            producer = Producer(client)
            first = GroupConsumer(client, "g", ["t"], session_timeout_ms=6000, rebalance_timeout_ms=6000)
            second = GroupConsumer(client, "g", ["t"], session_timeout_ms=6000, rebalance_timeout_ms=6000)
            await first.poll(1)
            assert len(first.assignment) == 4
            polls = [asyncio.ensure_future(second.poll(5)), asyncio.ensure_future(first.poll(5))]
            for poll in polls:
                await poll
            assert sorted(first.assignment + second.assignment) == [("t", number) for number in range(4)]
            assert len(second.assignment) == 2 and first.generation == second.generation
            await second.close()
            await first.poll(5)
            assert len(first.assignment) == 4
            for number in range(8):
                await producer.send("t", b"%d" % number, partition=number % 4)
            values: list[int] = []
            while len(values) < 8:
                values += [int(record.value or b"") for record in await first.poll(5)]
            assert sorted(values) == list(range(8))
            await first.close()
            await producer.close()

        on_a_cluster(scenario, group_min_session_timeout_ms=1000)

    def test_a_group_continues_at_its_committed_offsets_even_after_a_restart(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            for number in range(10):
                await producer.send("t", b"%d" % number)
            member = GroupConsumer(client, "g", ["t"])
            taken = await member.poll(10, max_records=4)
            await member.close()
            assert await admin.group_offsets(client, "g") == {("t", 0): len(taken)}
            await cluster.kill("broker-1")
            await cluster.start_broker(1)
            again = GroupConsumer(client, "g", ["t"], auto_commit=False)
            rest = await again.poll(30)
            assert [record.offset for record in taken + rest] == list(range(10))
            await again.commit({("t", 0): 7})
            assert await again.committed([("t", 0)]) == {("t", 0): 7}
            await again.close()
            await producer.close()

        on_a_cluster(scenario)

    def test_groups_are_listed_described_and_deleted(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            member = GroupConsumer(client, "g", ["t"])
            await member.poll(1)
            assert await admin.list_groups(client) == {"g": "Stable"}
            view = await admin.describe_group(client, "g")
            assert (view.state, view.protocol, [m.member_id for m in view.members]) == (
                "Stable",
                "range",
                [member.member_id],
            )
            refused = (await admin.delete_groups(client, ["g"]))["g"]
            assert refused is not None and refused.code is ErrorCode.NON_EMPTY_GROUP
            await member.close()
            assert await admin.delete_groups(client, ["g"]) == {"g": None}
            assert await admin.list_groups(client) == {}

        on_a_cluster(scenario)


class TestAdmin:
    def test_topics_are_created_get_partitions_and_are_deleted(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client, partitions=1)
            exists = (await admin.create_topics(client, [admin.NewTopic("t")]))["t"]
            assert exists is not None and exists.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert await admin.create_partitions(client, {"t": 3}) == {"t": None}
            await asyncio.sleep(1)
            assert len((await client.topic("t", fresh=True)).partitions) == 3
            assert await admin.delete_topics(client, ["t"]) == {"t": None}
            await asyncio.sleep(1)
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await client.topic("t", fresh=True)

        on_a_cluster(scenario, brokers=2)

    def test_configurations_are_changed_and_described(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            await admin.alter_configs(client, 2, "t", {"retention.ms": "1234"})
            await asyncio.sleep(1)
            described = {entry.name: entry for entry in await admin.describe_configs(client, 2, "t")}
            assert (described["retention.ms"].value, described["retention.ms"].source) == ("1234", 1)
            await admin.alter_configs(client, 2, "t", {}, ["retention.ms"])
            await asyncio.sleep(1)
            described = {entry.name: entry for entry in await admin.describe_configs(client, 2, "t")}
            assert described["retention.ms"].value == "604800000"
            with pytest.raises(KafkaError, match="INVALID_CONFIG"):
                await admin.alter_configs(client, 2, "t", {"no.such.key": "1"})
            broker = {entry.name: entry.value for entry in await admin.describe_configs(client, 4, "1")}
            assert broker["node.id"] == "1"

        on_a_cluster(scenario)

    def test_records_are_deleted_from_the_start(self) -> None:
        async def scenario(_: SimulatedCluster, client: Cluster) -> None:
            await create(client)
            producer = Producer(client)
            for number in range(5):
                await producer.send("t", b"%d" % number)
            await producer.close()
            assert await admin.delete_records(client, {("t", 0): 3}) == {("t", 0): 3}
            assert [record.offset for record in await read(client, "t", 1, 2)] == [3, 4]

        on_a_cluster(scenario)


def test_list_offsets_goes_to_the_next_leader_once_the_former_one_is_down() -> None:
    """A regression: a broker that reads the metadata of its tier asked a dead leader for ever."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        topic = admin.NewTopic("t", assignments={0: (2, 1)})
        assert await admin.create_topics(client, [topic]) == {"t": None}
        await read_offset(client)
        await cluster.kill(host_of(2))
        assert await read_offset(client) == 0

    on_a_cluster(scenario, brokers=2)


async def read_offset(client: Cluster) -> int:
    async with asyncio.timeout(20):
        for attempt in itertools.count():
            try:
                return (await find_offset(client, "t", 0, LATEST)).offset
            except (KafkaError, ChannelError):
                await client.pause(attempt)
    raise AssertionError("not reached")
