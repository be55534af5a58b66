"""Bugs of Kafka's tiered storage that appear only in a cluster and have no scenario in lab/scenarios.

KAFKA-15241, 15351, 16511, 16890, 17062, 17428 and 20732 have one there; KAFKA-16073 is in test_tier_reads, KAFKA-15632
and 17766 are in test_remote_log_metadata. KAFKA-15047, 16414 and 20609 need no cluster and are in
tests/unit/storage/test_tiered_log.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any
from uuid import UUID

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.storage.files.names import LOG
from milena.tiered.metadata.snapshot import FILE_NAME
from tests.simulation.fetches import fetch
from tests.simulation.steps import batches_in, seeds, storage_of, until, values, write
from tests.simulation.tiered_topics import (
    COPIES,
    bases,
    finished,
    in_tier,
    known_segments,
    log_of,
    replica,
    with_tier,
)

BY_HAND: dict[str, Any] = {
    "remote_log_manager_task_interval_ms": 600_000,
    "log_retention_check_interval_ms": 600_000,
}
"""Options that leave tiering and retention to explicit calls of the test."""


async def alter(client: Cluster, **values: str) -> None:
    await admin.alter_configs(client, TOPIC_RESOURCE, "t", {key.replace("_", "."): one for key, one in values.items()})


async def next_epoch(cluster: SimulatedCluster) -> None:
    """Restart the only replica, and wait until it leads in the next epoch."""
    before = replica(cluster).leader_epoch
    await cluster.kill(host_of(1))
    await cluster.start_broker(1)
    await until(lambda: replica(cluster).is_leader and replica(cluster).leader_epoch > before)


@pytest.mark.parametrize("seed", range(2))
def test_epochs_without_records_do_not_prevent_deletion_from_the_tier(seed: int) -> None:
    """The log has leader epochs without records, which its segments do not have."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        for first, last in ((0, 4), (4, 9), (9, 10), (10, 22)):
            await write(client, last - first, first=first)
            await next_epoch(cluster)
            await next_epoch(cluster)
        await until(lambda: bases(cluster) == [20])
        assert [start for start, _ in finished(cluster)] == [0, 4, 8, 12, 16]
        assert len({epoch for one in known_segments(cluster).segments() for epoch, _ in one.epochs}) >= 4
        assert await values(client, 22) == list(range(22))
        await alter(client, retention_bytes="1")
        await until(lambda: in_tier(cluster) == [])
        assert log_of(cluster).log_start_offset == 20

    with_tier(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_segment_expires_locally_and_in_the_tier_in_the_same_millisecond(seed: int) -> None:
    """KAFKA-20091: Kafka deletes a segment locally one millisecond later than in the tier."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        lab_commands, clock = cluster.brokers[1].lab_commands, cluster.brokers[1].runtime.clock
        await write(client, 4)
        await asyncio.sleep(1)
        await write(client, 4, first=4)
        await lab_commands.call("tiering", topic="t", partition=0)
        [segment] = known_segments(cluster).segments()
        await alter(client, local_retention_bytes="-2", retention_ms="60000")
        await until(lambda: log_of(cluster).config.retention_ms == 60_000)
        last = segment.max_timestamp_ms + 60_000

        async def look_at(moment: int) -> tuple[list[int], int, list[int]]:
            await asyncio.sleep((moment - clock.time_ms() - 2) / 1000)
            while clock.time_ms() < moment:  # noqa: ASYNC110 - the clock has fractions of a millisecond
                await asyncio.sleep(0.0001)
            await lab_commands.call("retain")
            assert clock.time_ms() == moment
            await lab_commands.call("tiering", topic="t", partition=0)
            return in_tier(cluster), int(log_of(cluster).log_start_offset), bases(cluster)

        assert await look_at(last) == ([0], 0, [0, 4])
        assert await look_at(last + 1) == ([], 4, [4])

    with_tier(scenario, seed=seed, **BY_HAND)


@pytest.mark.parametrize("base", [4, 16], ids=["before other segments", "before the local log"])
def test_a_consumer_skips_a_hole_at_the_end_of_a_segment(base: int) -> None:
    """KAFKA-15388: the topic was compacted before it was tiered; the test removes the records by hand. In Kafka a
    consumer stalled at the hole for ever."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await alter(client, remote_log_copy_disable="true", local_retention_bytes="-2")
        await write(client, 22)
        await cluster.stop_broker(1)
        [path] = [path for path in storage_of(cluster, 1).files if path.endswith(f"/t-0/{base:020d}{LOG}")]
        inode = storage_of(cluster, 1).files[path]
        kept = sum(batch.size_in_bytes for batch in batches_in(bytes(inode.data))[:2])
        del inode.data[kept:]
        inode.synced = kept
        await cluster.start_broker(1)
        await until(lambda: replica(cluster).is_leader)
        await alter(client, remote_log_copy_disable="false", local_retention_bytes="1")
        await until(lambda: bases(cluster) == [20])
        assert (base, base + 3) in finished(cluster)
        expected = [number for number in range(22) if number not in (base + 2, base + 3)]
        assert await values(client, len(expected)) == expected
        for offset in (base + 2, base + 3):
            assert (await fetch(client, {("t", 0): offset})).partitions["t", 0].values[0] == base + 4

    with_tier(scenario)


def test_a_hole_at_the_start_of_the_active_segment_causes_no_remote_fetch() -> None:
    """KAFKA-15301: the topic was compacted before. Kafka fetched from the tier though only the active segment can have
    the records."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 23)
        await until(lambda: bases(cluster) == [20])
        await cluster.stop_broker(1)
        [path] = [path for path in storage_of(cluster, 1).files if path.endswith(f"/t-0/{20:020d}{LOG}")]
        inode = storage_of(cluster, 1).files[path]
        del inode.data[: sum(batch.size_in_bytes for batch in batches_in(bytes(inode.data))[:2])]
        inode.synced = len(inode.data)
        await cluster.start_broker(1)
        await until(lambda: replica(cluster).is_leader)
        for offset in (20, 21, 22):
            assert (await fetch(client, {("t", 0): offset})).partitions["t", 0].values == [22]
        assert asked(cluster) == 0
        assert await values(client, 21) == [*range(20), 22]
        assert asked(cluster) > 0

    def asked(cluster: SimulatedCluster) -> float:
        name = "kafka_server_brokertopicmetrics_remotefetchrequestspersec_total"
        return cluster.brokers[1].metrics.value(name, topic="t")

    with_tier(scenario)


@pytest.mark.parametrize("seed", seeds(3))
def test_every_replica_of_a_topic_that_is_tiered_later_deletes_its_old_local_segments(seed: int) -> None:
    """KAFKA-17020: in Kafka some replicas kept their segments until a restart, and longer."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await alter(client, remote_storage_enable="false", remote_log_delete_on_disable="true")
        await write(client, 22)
        await until(lambda: all(bases(cluster, number) == [0, 4, 8, 12, 16, 20] for number in (1, 2, 3)))
        await alter(client, remote_storage_enable="true")
        await until(lambda: in_tier(cluster) != [])
        await cluster.kill(host_of(1))  # while it copies
        await until(lambda: bool(replica(cluster, 2).is_leader or replica(cluster, 3).is_leader))
        await until(lambda: all(bases(cluster, number) == [20] for number in (2, 3)))
        await cluster.start_broker(1)
        await until(lambda: bases(cluster, 1) == [20])
        await write(client, 20, first=22)
        await until(lambda: all(bases(cluster, number) == [40] for number in (1, 2, 3)))
        assert await values(client, 42) == list(range(42))

    with_tier(
        scenario,
        seed=seed,
        brokers=3,
        rlmm_config_remote_log_metadata_topic_replication_factor=3,
        rlmm_config_remote_log_metadata_topic_min_isr=1,
    )


def test_a_restarted_broker_knows_the_copies_that_were_only_started() -> None:
    """Review of KIP-1266: if compaction removes COPY_SEGMENT_STARTED, the objects of such a copy stay for ever. The
    topic is not compacted, but the snapshot that a broker keeps beside its log is."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        cluster.world.tier.fail(COPIES, errno.EIO)
        await write(client, 6)
        await until(lambda: len(known_segments(cluster)) >= 3)
        cluster.world.tier.heal()
        await until(lambda: finished(cluster) == [(0, 3)])
        begun = states(cluster)
        assert "COPY_SEGMENT_STARTED" in begun.values()
        await cluster.stop_broker(1)
        [kept] = [path for path in storage_of(cluster, 1).files if path.endswith(f"/t-0/{FILE_NAME}")]
        assert storage_of(cluster, 1).files[kept].data
        await cluster.start_broker(1)
        await until(lambda: replica(cluster).is_leader and finished(cluster) == [(0, 3)])
        assert states(cluster) == begun

    def states(cluster: SimulatedCluster) -> dict[UUID, str]:
        return {one.id: one.state.name for one in known_segments(cluster).segments()}

    with_tier(scenario)
