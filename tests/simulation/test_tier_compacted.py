"""Compacted tiered topics: the configuration of the topic decides, if the feature is enabled, and never the default of
the cluster."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from milena.node.metrics_text import render
from milena.protocol.errors import ErrorCode, KafkaError
from tests.simulation.steps import until, values, write
from tests.simulation.tiered_topics import bases, finished, in_tier, log_of, with_tier

COMPACTED = {"cleanup.policy": "compact", "retention.ms": "1000", "local.retention.ms": "500"}


async def write_keys(client: Cluster, count: int, *, first: int = 0, keys: int = 1000) -> None:
    """Write ``count`` records of about 100 bytes, like ``steps.write``, with a few keys in turn."""
    producer = Producer(client, request_timeout=2.0, delivery_timeout=60.0)
    for number in range(first, first + count):
        await producer.send("t", b"%-99d" % number, key=b"%d" % (number % keys), partition=0)
    await producer.close()


def test_a_default_of_the_cluster_does_not_compact_a_tiered_topic() -> None:
    """Else the log would begin with its local records, and the records in the tier would be lost."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: bases(cluster) == [8])
        await admin.alter_configs(client, BROKER_RESOURCE, "", {"log.cleanup.policy": "compact"})
        broker = cluster.brokers[1]
        await until(lambda: broker.config.get("log.cleanup.policy") == ("compact",))
        await asyncio.sleep(60)
        assert (log_of(cluster).log_start_offset, finished(cluster)) == (0, [(0, 3), (4, 7)])
        assert await values(client, 10) == list(range(10))
        assert log_of(cluster).remote_enabled and not log_of(cluster).config.compacted
        assert "\nmilena_remote_uncompacted_replicas 1" in render(broker.metrics)

    with_tier(scenario)


def test_a_tiered_topic_with_cleanup_policy_compact_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        with pytest.raises(KafkaError, match=r"only supports topics with cleanup.policy=delete") as refused:
            await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"cleanup.policy": "compact"})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        both = admin.NewTopic("u", configs={"cleanup.policy": "compact", "remote.storage.enable": "true"})
        created = await admin.create_topics(client, [both])
        assert created["u"] is not None and "cleanup.policy=delete" in str(created["u"])

    with_tier(scenario)


def test_dirty_segments_of_a_compacted_topic_are_copied_and_deleted_locally() -> None:
    """Its segments do not expire, unless the policy includes `delete`."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write_keys(client, 10)
        await until(lambda: finished(cluster) == [(0, 3), (4, 7)] and bases(cluster) == [8])
        await asyncio.sleep(60)
        assert (log_of(cluster).log_start_offset, log_of(cluster).config.compacted) == (0, True)
        assert await values(client, 10) == list(range(10))
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"cleanup.policy": "compact,delete"})
        await until(lambda: finished(cluster) == [] and log_of(cluster).log_start_offset == 10)

    with_tier(scenario, configs=COMPACTED, remote_log_compaction_enable=True)


def _has_segments(cluster: SimulatedCluster, count: int) -> bool:
    return len(finished(cluster)) == count


def test_the_cleanup_policy_of_a_tiered_topic_can_be_changed() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        for number, policy in enumerate(["delete", "compact", "delete", "compact,delete", "compact"]):
            await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"cleanup.policy": policy, "retention.ms": "-1"})
            await write_keys(client, 4, first=4 * number)
            await until(partial(_has_segments, cluster, number))
            assert log_of(cluster).config.cleanup_policy == tuple(policy.split(","))
        assert await values(client, 20) == list(range(20))

    with_tier(scenario, remote_log_compaction_enable=True)


def test_remote_storage_of_a_compacted_topic_can_be_enabled_and_disabled() -> None:
    """Afterwards its local log is cleaned again."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write_keys(client, 10)
        await until(lambda: bases(cluster) == [8])
        with pytest.raises(KafkaError, match=r"without deleting remote data"):
            await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"remote.storage.enable": "false"})
        off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        await admin.alter_configs(client, TOPIC_RESOURCE, "t", off)
        await until(lambda: log_of(cluster).log_start_offset == 8 and not in_tier(cluster))
        await write_keys(client, 10, first=10)
        await until(lambda: (log_of(cluster).cleaned_to or 0) > 12, 60)
        assert await values(client, 1) != [8]

    with_tier(
        scenario,
        configs=COMPACTED | {"min.cleanable.dirty.ratio": "0.01"},
        remote_log_compaction_enable=True,
        log_cleaner_backoff_ms=1000,
        replica_high_watermark_checkpoint_interval_ms=1000,
    )
