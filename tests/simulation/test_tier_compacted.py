"""A tiered topic that becomes compacted by a default of the cluster: Kafka refuses both together only on the topic."""

from __future__ import annotations

import asyncio

import pytest

from milena.lab.cluster import SimulatedCluster
from milena.node.client import admin
from milena.node.client.cluster import Cluster
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from milena.protocol.errors import ErrorCode, KafkaError
from tests.simulation.steps import until, values, write
from tests.simulation.tiered_topics import bases, finished, log_of, with_tier


def test_the_tier_wins_over_a_default_of_the_cluster() -> None:
    """Else the log would begin with its local records, and what is in the tier would be lost for good."""

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

    with_tier(scenario)


def test_a_topic_that_says_so_itself_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        with pytest.raises(KafkaError, match=r"only supports topics with cleanup.policy=delete") as refused:
            await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"cleanup.policy": "compact"})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        both = admin.NewTopic("u", configs={"cleanup.policy": "compact", "remote.storage.enable": "true"})
        created = await admin.create_topics(client, [both])
        assert created["u"] is not None and "cleanup.policy=delete" in str(created["u"])

    with_tier(scenario)
