"""Logs and groups of a broker under Kafka's metric names."""

from __future__ import annotations

from milena.client import admin
from milena.client.group_consumer import GroupConsumer
from milena.client.producer import Producer
from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate

GROUPS = "kafka_coordinator_group_groupmetadatamanager_num"


def test_metrics_show_the_size_and_the_offsets_of_each_log() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world)
        metrics = cluster.brokers[1].metrics
        async with cluster.client() as client:
            await admin.create_topics(client, [admin.NewTopic("t", 1, 1)])
            producer = Producer(client)
            for _ in range(5):
                await producer.send("t", b"x" * 1000, partition=0)
                await producer.flush()
            await producer.close()
            await admin.delete_records(client, {("t", 0): 2})

        def of(name: str) -> float:
            return metrics.value(f"kafka_log_log_{name}", topic="t", partition="0")

        assert (of("logstartoffset"), of("logendoffset"), of("numlogsegments")) == (2, 5, 1)
        log = next(one.log for one in cluster.brokers[1].partitions if one.topic == "t")
        assert log is not None
        assert of("size") == log.size > 5000

    simulate(run, seed=0)


def test_metrics_count_groups_by_state() -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world)
        metrics = cluster.brokers[1].metrics
        async with cluster.client() as client:
            await admin.create_topics(client, [admin.NewTopic("t", 1, 1)])
            producer = Producer(client)
            await producer.send("t", b"x", partition=0)
            await producer.close()
            consumer = GroupConsumer(client, "g", ["t"], reset="earliest")
            while not await consumer.poll(5.0):
                pass
            await consumer.commit()
            assert {name: metrics.value(f"{GROUPS}{name}") for name in ("groups", "groupsstable", "offsets")} == {
                "groups": 1,
                "groupsstable": 1,
                "offsets": 1,
            }
            await consumer.close()
            assert metrics.value(f"{GROUPS}groupsempty") == 1
            assert metrics.value(f"{GROUPS}groupsstable") == 0

    simulate(run, seed=0)
