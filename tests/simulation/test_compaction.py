"""Compacted topics on simulated brokers: what readers find, what the metrics show, what changes at run time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from milena.broker.server import Broker
from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.offsets import LATEST, find_offset
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from milena.storage.files.names import LOG
from milena.storage.log.unified_log import UnifiedLog

SETTINGS = {"log_cleaner_backoff_ms": 1000, "replica_high_watermark_checkpoint_interval_ms": 1000}
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "3000"}
OFFSETS = "__consumer_offsets"


async def create(client: Cluster, replicas: int, configs: Mapping[str, str] = COMPACTED) -> None:
    assert await admin.create_topics(client, [admin.NewTopic("t", 1, replicas, configs=configs)]) == {"t": None}


async def write(client: Cluster, rounds: int, keys: int = 10, *, first: int = 0) -> dict[bytes, bytes]:
    """Write values of each key; return the last value of each key."""
    producer = Producer(client)
    last = {}
    for number in range(first, first + rounds):
        for key in range(keys):
            last[b"%d" % key] = b"%d" % number * 20
            await producer.enqueue("t", last[b"%d" % key], key=b"%d" % key, partition=0)
        await producer.flush()
    await producer.close()
    return last


async def read(client: Cluster) -> tuple[int, dict[bytes | None, bytes | None]]:
    """The number of records from the start to the end, and the last value of each key."""
    end = (await find_offset(client, "t", 0, LATEST)).offset
    consumer = Consumer(client)
    consumer.assign({("t", 0): 0})
    found: dict[bytes | None, bytes | None] = {}
    count = position = 0
    while position < end:
        for record in await consumer.poll(1.0):
            found[record.key] = record.value
            count, position = count + 1, record.offset + 1
    await consumer.close()
    return count, found


def log_of(broker: Broker, topic: str = "t", partition: int = 0) -> UnifiedLog:
    log = broker.logs.get(topic, partition)
    assert log is not None
    return log


async def cleaned(cluster: SimulatedCluster, topic: str = "t", partition: int = 0) -> None:
    """Wait until every replica has cleaned the segments that were closed at the time of the call."""
    closed = {}
    for number, broker in cluster.brokers.items():
        if (log := broker.logs.get(topic, partition)) is not None:
            closed[number] = log.segments.active.base_offset
    for _ in range(60):
        await asyncio.sleep(1)
        if all((log_of(cluster.brokers[one], topic, partition).cleaned_to or 0) >= at for one, at in closed.items()):
            return
    raise AssertionError("not cleaned")


def test_readers_find_the_last_value_of_each_key_on_every_replica() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 3, SETTINGS, watched=True)
        async with cluster.client() as client:
            await create(client, 3)
            last = await write(client, 60)
            await cleaned(cluster)
            count, found = await read(client)
            assert found == last
            assert count < 60 * 10 / 4
            for broker in (1, 2, 3):
                await cluster.kill(f"broker-{broker}")
                await cluster.start_broker(broker)
            last |= await write(client, 10, 5, first=60)
            await cleaned(cluster)
            assert (await read(client))[1] == last
        assert {log_of(broker).log_end_offset for broker in cluster.brokers.values()} == {650}
        metrics = cluster.brokers[1].metrics
        assert 0 < metrics.value("kafka_log_logcleaner_cleaner_recopy_percent") < 100
        assert metrics.value("kafka_log_logcleaner_deadthreadcount") == 0
        assert metrics.value("kafka_log_logcleanermanager_time_since_last_run_ms") <= 1100
        assert metrics.value("kafka_log_logcleanermanager_uncleanable_partitions_count", logdirectory="/data") == 0
        cluster.check_alive()

    simulate(run, seed=3)


def test_a_log_that_cannot_be_cleaned_is_shown_and_still_serves() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, SETTINGS)
        broker = cluster.brokers[1]
        async with cluster.client() as client:
            await create(client, 1, {**COMPACTED, "min.compaction.lag.ms": "20000"})
            await write(client, 60)
            log = log_of(broker)
            world.machine("broker-1").storage.corrupt(log.segments[1].path(LOG), 80)
            await asyncio.sleep(30)
            await write(client, 1)
        where = {"logdirectory": "/data"}
        assert broker.metrics.value("kafka_log_logcleanermanager_uncleanable_partitions_count", **where) == 1
        assert broker.metrics.value("kafka_log_logcleanermanager_uncleanable_bytes", **where) > 5000
        assert list(broker.logs.cleaner.cleaner.uncleanable) == [log]
        cluster.check_alive()

    simulate(run, seed=3)


def test_the_settings_of_the_cleaner_can_be_changed_at_run_time() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 2, {"replica_high_watermark_checkpoint_interval_ms": 1000})
        one, two = (broker.logs.cleaner for broker in cluster.brokers.values())
        async with cluster.client() as client:
            await admin.alter_configs(client, BROKER_RESOURCE, "1", {"log.cleaner.threads": "2"})
            await admin.alter_configs(client, BROKER_RESOURCE, "", {"log.cleaner.io.max.bytes.per.second": "5e5"})
            await asyncio.sleep(1)
            assert [len(cleaner.tasks) for cleaner in (one, two)] == [2, 1]
            assert one.cleaner.settings.bytes_per_second == two.cleaner.settings.bytes_per_second == 5e5
            await create(client, 2)
            await write(client, 60)
            await asyncio.sleep(3)
            assert log_of(cluster.brokers[1]).cleaned_to is None  # the cleaner looks for dirty logs every 15 seconds
            await admin.alter_configs(client, BROKER_RESOURCE, "1", {"log.cleaner.backoff.ms": "100"})
            await asyncio.sleep(3)
            assert log_of(cluster.brokers[1]).cleaned_to == log_of(cluster.brokers[1]).segments.active.base_offset
            assert log_of(cluster.brokers[2]).cleaned_to is None
        cluster.check_alive()

    simulate(run, seed=3)


def test_the_offsets_of_groups_are_compacted_and_survive_a_restart() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, {**SETTINGS, "offsets_topic_num_partitions": 1})
        async with cluster.client() as client:
            await create(client, 1, {})
            await write(client, 1)
            members = [GroupConsumer(client, group, ["t"], auto_commit=False) for group in ("g", "h")]
            for member in members:
                await member.poll(1.0)
            await admin.alter_configs(client, TOPIC_RESOURCE, OFFSETS, {"internal.segment.bytes": "3000"})
            for number in range(200):
                await members[number % 2].commit({("t", 0): number % 10})
            await cleaned(cluster, OFFSETS)
            log = log_of(cluster.brokers[1], OFFSETS)
            assert log.size < 8000 < 40 * log.log_end_offset
            await cluster.kill("broker-1")
            await cluster.start_broker(1)
            assert await admin.group_offsets(client, "g") == {("t", 0): 8}
            assert await admin.group_offsets(client, "h") == {("t", 0): 9}
        cluster.check_alive()

    simulate(run, seed=3)
