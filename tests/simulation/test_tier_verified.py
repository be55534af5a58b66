"""`milena tier verify` finds no fault in the tier of a healthy cluster, neither under load nor afterwards."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Set
from functools import partial

from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.types import Offset
from milena.tiered.offline.epoch_history import lineage_of_replicas, lineage_of_tier
from milena.tiered.offline.findings import Finding
from milena.tiered.offline.metadata_history import MetadataHistory, read_history
from milena.tiered.offline.metadata_reader import metadata_folders
from milena.tiered.offline.verification import Verification, confirmed, in_order, verify
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.local_tier import LocalTier
from tests.simulation.steps import partition_image, until, write
from tests.simulation.tiered_topics import TIER, bases, finished, in_tier, log_of, replica, with_tier

PAUSE = 1.0


class Judge:
    """Runs the checks of the command on the disks of a simulated cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._storage = LocalTier(cluster.world.machine("judge").start(), TIER, "judge")
        self.first: list[Finding] = []
        """The findings of the last check before it looked again."""

    async def findings(self, *, with_metadata: bool = True) -> list[Finding]:
        async def look(again: Set[TopicIdPartition] | None) -> Verification:
            if again is not None:
                await asyncio.sleep(PAUSE)
            found = await self._look(again, with_metadata)
            if again is None:
                self.first = list(found.findings)
            return found

        return (await confirmed(look)).findings

    async def _look(self, again: Set[TopicIdPartition] | None, with_metadata: bool) -> Verification:
        return await verify(
            self._storage,
            self._history() if with_metadata else None,
            self._lineage,
            choose=lambda known: sorted(known if again is None else again & set(known), key=in_order),
        )

    def _history(self) -> MetadataHistory:
        longest = MetadataHistory()
        for broker in self._cluster.brokers.values():
            if metadata_folders(broker.runtime.disk, ["/data"]):
                history = read_history(broker.runtime.disk, ["/data"])
                longest = max(longest, history, key=lambda one: sum(map(len, one.events.values())))
        return longest

    async def _lineage(self, one: TopicIdPartition, segments: list[RemoteLogSegmentMetadata]) -> Lineage | None:
        disks = [broker.runtime.disk for broker in self._cluster.brokers.values()]
        found = [lineage for disk in disks if (lineage := lineage_of_replicas(disk, ["/data"], one)) is not None]
        best = max(found, key=lambda lineage: (lineage.epochs[-1].epoch, lineage.log_end), default=None)
        return best or await lineage_of_tier(self._storage, segments)


async def alter(client: Cluster, **values: str) -> None:
    changes = {name.replace("_", "."): value for name, value in values.items()}
    await admin.alter_configs(client, TOPIC_RESOURCE, "t", changes)


def led_by_another(cluster: SimulatedCluster, old: int) -> bool:
    return partition_image(cluster).leader not in (old, -1)


def test_a_topic_is_healthy_after_remote_storage_was_disabled_and_enabled() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        judge = Judge(cluster)
        await write(client, 22)
        await until(lambda: all(bases(cluster, number) == [20] for number in (1, 2)))
        await asyncio.sleep(61)  # the log start offset is in its checkpoint
        await alter(client, remote_storage_enable="false", remote_log_delete_on_disable="true")
        await until(lambda: not log_of(cluster, 2).remote_enabled and not in_tier(cluster))
        await alter(client, remote_storage_enable="true")
        await write(client, 8, first=22)
        await until(lambda: in_tier(cluster) == [20, 24] and len(finished(cluster)) == 2)
        assert await judge.findings() == []

    with_tier(scenario, brokers=2)


def test_a_topic_is_healthy_after_records_of_a_segment_are_deleted_before_its_copy() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        judge = Judge(cluster)
        cluster.world.tier.fail(TIER, errno.EIO, operation="write")
        await write(client, 10)
        replica(cluster).delete_records(Offset(6))
        cluster.world.tier.heal()
        await until(lambda: finished(cluster) == [(4, 7)])
        for with_metadata in (True, False):
            assert await judge.findings(with_metadata=with_metadata) == []

    with_tier(scenario)


def test_a_cluster_under_load_is_healthy() -> None:
    """Segments that are copied or deleted during a check may be findings of its first look, and not of its second."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        judge = Judge(cluster)
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        await alter(client, retention_bytes="3000")
        worker = asyncio.ensure_future(write(client, 400, first=22))
        seen = 0
        while not worker.done():
            assert await judge.findings() == []
            seen += len(judge.first)
            await asyncio.sleep(0.1)
        await worker
        assert seen, "the cluster must have been at work"
        assert log_of(cluster).log_start_offset > 20

    with_tier(scenario, remote_log_manager_task_interval_ms=50, log_retention_check_interval_ms=50)


def test_retention_under_changing_leaders_leaves_the_tier_healthy() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        judge = Judge(cluster)
        await write(client, 22)
        await until(lambda: all(bases(cluster, number) == [20] for number in (1, 2, 3)))
        await alter(client, retention_bytes="3000")
        for number in range(3):
            await write(client, 20, first=22 + 20 * number)
            old = int(partition_image(cluster).leader)
            await cluster.kill(host_of(old))
            await until(partial(led_by_another, cluster, old), 30)
            await write(client, 4, first=100)
            await cluster.start_broker(old)
            await until(lambda: len(partition_image(cluster).isr) == 3, 60)
            assert await judge.findings() == []
        assert log_of(cluster, int(partition_image(cluster).leader)).log_start_offset > 20

    with_tier(
        scenario,
        brokers=3,
        rlmm_config_remote_log_metadata_topic_replication_factor=3,
        rlmm_config_remote_log_metadata_topic_min_isr=1,
    )
