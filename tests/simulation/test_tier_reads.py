"""Consumers of tiered topics: everything is read from its first offset, from whichever tier has it."""

from __future__ import annotations

import pytest

from lab.cluster import SimulatedCluster
from node.client.cluster import Cluster
from tests.simulation.steps import until, values, write
from tests.simulation.tiered_topics import bases, with_tier


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_is_read_from_its_first_offset_as_if_nothing_had_moved(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        assert await values(client, 22) == list(range(22))
        metrics = cluster.brokers[1].metrics
        assert metrics.value("kafka_server_brokertopicmetrics_remotefetchrequestspersec_total", topic="t") == 5

    with_tier(scenario, seed=seed)
