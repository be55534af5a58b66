"""A compacted topic in the tier of simulated brokers: its remote segments are cleaned under any leader and reader."""

from __future__ import annotations

import asyncio
import random

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from tests.simulation.compacted_tier import CLEANING, COMPACTED, METADATA, is_clean, leader, read, write
from tests.simulation.steps import partition_image, seeds, until
from tests.simulation.tiered_topics import known_segments, log_of, with_tier


def test_consumers_read_the_last_values_from_the_tier_and_replaced_segments_are_deleted() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        last = await write(client, 30, 4)
        await until(lambda: is_clean(cluster, 1, 100), 120)
        found = await read(client)
        assert {key: value for _, key, value in found} == last
        assert len(found) < 120 / 2 and [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        assert (log_of(cluster).log_start_offset, log_of(cluster).local_log_start_offset > 100) == (0, True)
        metrics = cluster.brokers[1].metrics
        assert metrics.value("kafka_server_brokertopicmetrics_remotecleanbytespersec_total", topic="t") > 1000
        assert metrics.value("kafka_server_brokertopicmetrics_remotecleanerrorspersec_total", topic="t") == 0
        assert metrics.value("kafka_server_brokertopicmetrics_remotecleaneruncleanablepartitions", topic="t") == 0
        labels = {"topic": "t", "partition": "0"}
        assert metrics.value("kafka_log_remote_remotelogmanager_remotedirtyinpercent", **labels) <= 20

    with_tier(scenario, configs=COMPACTED, **CLEANING)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_slow_reader_is_never_refused_while_its_segments_are_replaced(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10, 4)
        reading = asyncio.ensure_future(read(client, pause=0.7))
        last = await write(client, 40, 4, first=10, pause=0.2)
        first = await reading
        assert [offset for offset, _, _ in first] == sorted({offset for offset, _, _ in first})
        await until(lambda: is_clean(cluster, leader(cluster), 150), 120)
        assert {key: value for _, key, value in await read(client)} == last

    immediately = {**CLEANING, "remote_log_compaction_source_retention_ms": 0}
    with_tier(scenario, seed=seed, configs=COMPACTED, **immediately)


@pytest.mark.parametrize("seed", seeds(6))
def test_leaders_that_are_killed_and_paused_while_they_clean_lose_nothing(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        chance = random.Random(seed)
        writing = asyncio.ensure_future(write(client, 60, 5, pause=1.0))
        epochs = set()
        while not writing.done():
            await asyncio.sleep(chance.uniform(1, 6))
            now = leader(cluster)
            if now not in cluster.brokers:
                continue
            epochs.add(partition_image(cluster).leader_epoch)
            machine = cluster.world.machine(host_of(now))
            if chance.random() < 0.5:
                await cluster.kill(host_of(now))
                await asyncio.sleep(chance.uniform(0, 6))
                await cluster.start_broker(now)
            else:
                machine.pause()
                await asyncio.sleep(chance.uniform(0, 8))
                machine.resume()
        last = await writing
        await until(lambda: leader(cluster) in cluster.brokers and is_clean(cluster, leader(cluster), 250), 300)
        found = await read(client)
        assert {key: value for _, key, value in found} == last
        assert len(epochs) > 1 and len(found) < 150
        for number in (1, 2, 3):
            events = [one for one in known_segments(cluster, number).segments() if one.cleaned]
            assert events, "every broker knows what was cleaned"

    with_tier(scenario, seed=seed, brokers=3, configs=COMPACTED, **CLEANING, **METADATA)


def test_segments_of_a_compacted_topic_are_copied_and_cleaned_when_they_have_reached_the_copy_lag() -> None:
    """KIP-1241."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        last = await write(client, 20, 4)
        await asyncio.sleep(15)
        assert len(known_segments(cluster)) == 0
        await until(lambda: is_clean(cluster, 1, 50), 120)
        found = await read(client)
        assert {key: value for _, key, value in found} == last

    lag = {"remote.copy.lag.ms": "20000", "remote.copy.lag.bytes": "-1", "local.retention.bytes": "-2"}
    with_tier(scenario, configs={**COMPACTED, **lag}, **CLEANING)


def test_cleaning_does_not_restore_deleted_records() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 20, 4)
        await until(lambda: log_of(cluster).local_log_start_offset > 50)
        assert await admin.delete_records(client, {("t", 0): 42}) is not None
        last = await write(client, 20, 4, first=20)
        await until(lambda: is_clean(cluster, 1, 120), 120)
        assert log_of(cluster).log_start_offset == 42
        found = await read(client, 42)
        assert {key: value for _, key, value in found} == last

    with_tier(scenario, configs={**COMPACTED, "cleanup.policy": "compact,delete"}, **CLEANING)
