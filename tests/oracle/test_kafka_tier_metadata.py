"""A real Kafka broker with a tier: Milena reads the segment metadata that it publishes, and it acts on Milena's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.protocol.types import NodeId
from milena.protocol.uuids import to_text
from milena.runtime.process import real_runtime
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)
from tests.oracle.kafka_node import KafkaNode, running_kafka
from tests.oracle.tier_settings import tier_settings

SETTINGS = MetadataTopicSettings(partitions=5, replication_factor=1, min_isr=1)
CONFIGS = {"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.bytes": "1"}
RECORDS = 60
"""Number of records of 1,000 bytes."""


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - what another process does
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(what) from None


async def write(client: Cluster) -> TopicIdPartition:
    """Create a tiered topic with some closed segments."""
    assert await admin.create_topics(client, [admin.NewTopic("t", 1, 1, configs=CONFIGS)]) == {"t": None}
    producer = Producer(client)
    for number in range(RECORDS):
        await producer.send("t", b"%-1000d" % number, partition=0)
    await producer.close()
    topic_id = (await client.topic("t", fresh=True)).id
    assert topic_id is not None
    return TopicIdPartition(topic_id, "t", 0)


def in_tier(folder: Path, partition: TopicIdPartition) -> list[str]:
    """Return the log files of a partition, with the names that Kafka's LocalTieredStorage uses."""
    name = f"t-0-{to_text(partition.topic_id)}"
    return sorted(file.name for file in folder.glob(f"kafka-tiered-storage/{name}/*.log"))


def names(segments: list[RemoteLogSegmentMetadata]) -> list[str]:
    return [f"{one.start_offset:020d}-{to_text(one.id)}.log" for one in segments]


def test_milena_reads_kafkas_metadata_and_kafka_deletes_segments_by_milenas(tmp_path: Path) -> None:
    async def scenario(node: KafkaNode) -> None:
        runtime, tier = real_runtime(), tmp_path / "tier"
        client = Cluster(runtime, [node.broker])
        partition = await write(client)
        manager = TopicMetadataManager(runtime, NodeId(7), SETTINGS, lambda: [node.broker], lambda _: str(tmp_path))
        manager.start()
        manager.assign([], [partition])
        assert await manager.wait_ready(partition, 30)
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

        def copied() -> list[RemoteLogSegmentMetadata]:
            return [one for one in manager.cache(partition).segments() if one.state is finished]

        await until(lambda: len(copied()) >= 3, "Kafka copies three segments, and we hear of it")
        first, *others = copied()
        assert set(names([first, *others])) <= set(in_tier(tier, partition))
        assert [one.start_offset for one in others[:1]] == [first.end_offset + 1]
        assert (first.start_offset, first.epochs, first.broker_id, first.txn_index_empty) == (0, ((0, 0),), 1, True)
        assert manager.cache(partition).highest_offset_for_epoch(first.epochs[0].epoch) == copied()[-1].end_offset

        started = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        await manager.update(RemoteLogSegmentUpdate(first.segment_id, NodeId(7), 1, None, started))
        await until(lambda: manager.cache(partition).get(first.id) is None, "Kafka deletes what we said")
        assert names([first])[0] not in in_tier(tier, partition)
        await manager.stop()
        client.close()

    with running_kafka(tmp_path / "kafka", **tier_settings(tmp_path / "tier", metadata_partitions=5)) as node:
        asyncio.run(scenario(node))
