"""Brokers with a tier read and write remote log metadata over their own listener, in a topic of their cluster."""

from __future__ import annotations

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.snapshot import FILE_NAME
from tests.simulation.steps import until, write
from tests.simulation.tiered_topics import finished, with_tier

BROKERS = (1, 2, 3)


def test_a_stopped_broker_leaves_a_metadata_snapshot_and_a_wiped_broker_reads_the_topic() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 21)
        await until(lambda: len(finished(cluster)) == 5, 30)
        expected = finished(cluster)
        await until(lambda: all(finished(cluster, broker) == expected for broker in BROKERS), 10)
        await cluster.stop_broker(2)
        assert f"/data/t-0/{FILE_NAME}" in cluster.world.machine(host_of(2)).storage.files
        await cluster.start_broker(2)
        await until(lambda: finished(cluster, 2) == expected, 10)
        await cluster.lose_power(host_of(3))
        cluster.wipe(host_of(3))
        await cluster.start_broker(3)
        await until(lambda: finished(cluster, 3) == expected, 30)
        topic = (await client.metadata([REMOTE_LOG_METADATA_TOPIC])).topics[REMOTE_LOG_METADATA_TOPIC]
        assert all(len(one.replicas) == 3 for one in topic.partitions.values())

    with_tier(scenario, brokers=3, rlmm_config_remote_log_metadata_topic_replication_factor=3)
