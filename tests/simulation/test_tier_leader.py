"""The leader of a tiered topic: copies, local and remote retention, deletion, failures, changes of the leader."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.lab.cluster import SimulatedCluster, host_of
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from milena.node.metrics_text import render
from milena.node.serving.lab_commands import LabCommandError
from milena.protocol.records.remote_log_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    decode_remote_log_record,
)
from milena.protocol.types import Offset
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from tests.simulation.steps import broker_image, partition_image, seeds, until, values, write
from tests.simulation.tiered_topics import (
    COPIES,
    ROOT,
    TIER,
    bases,
    finished,
    in_tier,
    known_segments,
    log_of,
    objects_in_tier,
    published,
    replica,
    role_of,
    stored,
    with_tier,
)

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
SEGMENT = 4
"""The number of records in a segment."""


def starts(count: int) -> list[int]:
    return [SEGMENT * number for number in range(count)]


def bounds(log: UnifiedLog) -> tuple[int, int, int]:
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


async def alter(client: Cluster, **values: str) -> None:
    changes = {name.replace("_", "."): value for name, value in values.items()}
    await admin.alter_configs(client, TOPIC_RESOURCE, "t", changes)


@pytest.mark.parametrize("seed", seeds(3))
def test_closed_segments_are_copied_to_the_tier_and_deleted_locally(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        assert in_tier(cluster) == starts(5)
        assert bounds(log_of(cluster)) == (0, 20, 22)
        assert finished(cluster) == [(first, first + 3) for first in starts(5)]
        kinds = ("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint")
        assert objects_in_tier(cluster) == dict.fromkeys(kinds, 5)

    with_tier(scenario, seed=seed)


def test_the_metadata_topic_has_two_records_for_each_copy() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 10)
        await until(lambda: len(finished(cluster)) == 2)
        consumer = Consumer(client)
        consumer.assign({(REMOTE_LOG_METADATA_TOPIC, partition): 0 for partition in range(3)})
        states: list[int] = []
        async with asyncio.timeout(60):
            while len(states) < 4:
                for record in await consumer.poll(1):
                    remote_metadata = decode_remote_log_record(record.value, Offset(record.offset))
                    assert isinstance(
                        remote_metadata, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
                    )
                    states.append(remote_metadata.remote_log_segment_state)
        await consumer.close()
        assert states == [STARTED, FINISHED, STARTED, FINISHED]

    with_tier(scenario)


def test_expired_remote_segments_advance_the_log_start() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        size = known_segments(cluster).segments()[0].size
        await alter(client, retention_bytes=str(2 * size + log_of(cluster).size))
        await until(lambda: in_tier(cluster) == [12, 16])
        assert bounds(log_of(cluster)) == (12, 20, 22)
        await alter(client, retention_ms="1000", local_retention_ms="1000")
        await until(lambda: in_tier(cluster) == [] and bases(cluster) == [22])
        assert bounds(log_of(cluster)) == (22, 22, 22)
        assert not stored(cluster)

    with_tier(scenario)


def test_delete_records_deletes_remote_segments_too() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        assert await admin.delete_records(client, {("t", 0): 9}) == {("t", 0): 9}
        await until(lambda: in_tier(cluster) == [8, 12, 16])
        assert bounds(log_of(cluster)) == (9, 20, 22)

    with_tier(scenario)


def test_the_remote_segments_of_a_deleted_topic_are_deleted() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: in_tier(cluster) == starts(5))
        assert await admin.delete_topics(client, ["t"]) == {"t": None}
        await until(lambda: not stored(cluster))
        tier = cluster.brokers[1].tier
        assert tier is not None
        assert not list(tier)
        assert [path for path in cluster.world.tier.folders if path.startswith(ROOT)] == [ROOT]

    with_tier(scenario)


@pytest.mark.parametrize("seed", seeds(3))
def test_only_the_leader_deletes_the_remote_segments_of_a_deleted_replicated_topic(seed: int) -> None:
    """A2: only the leader gets deleteRemote. The deletion of each segment is announced and confirmed once."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: all(bases(cluster, number) == [20] for number in (1, 2, 3)))
        assert await admin.delete_topics(client, ["t"]) == {"t": None}
        await until(lambda: not stored(cluster))
        await asyncio.sleep(60)
        remote_metadata = [one for one in published(cluster) if one.state in (DELETING, DELETED)]
        deleted = Counter((one.segment_id.id, one.state) for one in remote_metadata)
        assert (len(deleted), set(deleted.values())) == (10, {1})
        assert {one.broker_id for one in remote_metadata} == {1}
        assert all(not list(tier) for number in (1, 2, 3) if (tier := cluster.brokers[number].tier) is not None)

    with_tier(scenario, seed=seed, brokers=3)


def test_a_log_begins_with_its_first_local_record_after_remote_storage_is_disabled() -> None:
    """KIP-950, `remote.log.delete.on.disable`."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster, 1) == [20])
        await alter(client, remote_storage_enable="false", remote_log_delete_on_disable="true")
        await until(lambda: not stored(cluster))
        await until(lambda: all(bounds(log_of(cluster, number)) == (20, 20, 22) for number in (1, 2)))
        await alter(client, remote_storage_enable="true")
        await write(client, 8, first=22)
        await until(lambda: in_tier(cluster) == [20, 24])

    with_tier(scenario, brokers=2)


def test_with_copying_disabled_the_limits_of_the_whole_log_apply_and_remote_segments_expire() -> None:
    """KIP-950, `remote.log.copy.disable`."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        await alter(client, remote_log_copy_disable="true", local_retention_bytes="-2")
        await write(client, 20, first=22)
        await asyncio.sleep(5)
        assert (in_tier(cluster), bases(cluster)) == (starts(5), [20, 24, 28, 32, 36, 40])
        await alter(client, retention_ms="1000")
        await until(lambda: in_tier(cluster) == [])
        await alter(client, remote_log_copy_disable="false", retention_ms="-1")
        await write(client, 8, first=42)
        await until(lambda: len(in_tier(cluster)) == 2)

    with_tier(scenario)


def test_segments_are_copied_when_they_have_reached_the_copy_lag() -> None:
    """KIP-1241. A segment has about 680 bytes, and the active one half of that."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: in_tier(cluster) == starts(3))
        await asyncio.sleep(5)
        assert in_tier(cluster) == starts(3)
        await alter(client, remote_copy_lag_ms="20000")
        await asyncio.sleep(5)
        assert in_tier(cluster) == starts(3)
        await until(lambda: in_tier(cluster) == starts(5))

    lag = {"remote.copy.lag.ms": "-1", "remote.copy.lag.bytes": "1100", "local.retention.bytes": "-2"}
    with_tier(scenario, configs=lag)


def test_a_failing_tier_does_not_affect_produce() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        cluster.world.tier.fail(TIER, errno.EIO)
        await write(client, 22)
        await asyncio.sleep(5)
        assert (in_tier(cluster), bases(cluster)) == ([], [*starts(5), 20])
        assert all(one.state is STARTED for one in known_segments(cluster).segments())
        cluster.world.tier.heal()
        await until(lambda: bases(cluster) == [20])
        assert in_tier(cluster) == starts(5)

    with_tier(scenario)


def test_copies_to_a_full_tier_are_retried_with_growing_backoff() -> None:
    """Each attempt writes a record to the metadata topic."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        cluster.world.tier.fail(COPIES, errno.ENOSPC, operation="write")
        await write(client, 22)
        await asyncio.sleep(60)
        assert 3 <= len(known_segments(cluster)) <= 9
        cluster.world.tier.heal()
        await until(lambda: bases(cluster) == [20])

    with_tier(scenario)


def test_failed_copies_do_not_count_for_retention() -> None:
    """KAFKA-17062."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await alter(client, retention_bytes="4000")
        cluster.world.tier.fail(COPIES, errno.EIO, operation="write")
        await write(client, 22)
        await until(lambda: len(known_segments(cluster)) >= 5)
        assert log_of(cluster).log_start_offset == 0
        cluster.world.tier.heal()
        await until(lambda: bases(cluster) == [20])
        await asyncio.sleep(5)
        assert in_tier(cluster) == starts(5)
        assert log_of(cluster).log_start_offset == 0

    with_tier(scenario)


def test_a_failed_copy_that_could_not_be_deleted_is_deleted_later() -> None:
    """KAFKA-17428."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        cluster.world.tier.fail(COPIES, errno.EROFS)
        cluster.world.tier.fail(ROOT, errno.EROFS, operation="list")
        await write(client, 6)
        await until(lambda: any(one.state is not STARTED for one in known_segments(cluster).segments()))
        cluster.world.tier.heal()
        await until(lambda: finished(cluster) == [(0, 3)])
        await until(lambda: len(known_segments(cluster)) == 1)
        assert in_tier(cluster) == [0]

    with_tier(scenario)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_new_leader_continues_copying_and_deletes_nothing_within_retention(seed: int) -> None:
    """KAFKA-20732: the new leader has segments both locally and in the tier, and must not count their size twice."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await alter(client, local_retention_bytes="-2", retention_bytes="100000000")
        await write(client, 22)
        await until(lambda: in_tier(cluster) == starts(5))
        total = sum(one.size for one in known_segments(cluster).segments()) + log_of(cluster).segments.active.size
        await alter(client, retention_bytes=str(total))
        await until(lambda: all(len(partition_image(cluster, topic).isr) == 3 for topic in ("t",)))
        old = int(partition_image(cluster).leader)
        await cluster.kill(host_of(old))
        await until(lambda: partition_image(cluster).leader not in (old, -1))
        new = int(partition_image(cluster).leader)
        await until(lambda: role_of(cluster, new).figures.remote_segments == 5)
        await asyncio.sleep(5)
        assert log_of(cluster, new).log_start_offset == 0
        assert in_tier(cluster) == starts(5)
        await write(client, 4, first=22)
        await until(lambda: 20 in in_tier(cluster))
        assert len(in_tier(cluster)) == len(set(in_tier(cluster)))

    with_tier(
        scenario,
        seed=seed,
        brokers=3,
        rlmm_config_remote_log_metadata_topic_replication_factor=3,
        rlmm_config_remote_log_metadata_topic_min_isr=2,
    )


def test_followers_learn_of_copied_segments_and_delete_them_locally() -> None:
    """KAFKA-17020."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: all(bases(cluster, number) == [20] for number in (1, 2, 3)))
        assert {bounds(log_of(cluster, number)) for number in (1, 2, 3)} == {(0, 20, 22)}
        assert in_tier(cluster) == starts(5)

    with_tier(scenario, brokers=3)


def test_a_restarted_broker_knows_its_log_start_and_copies_no_segment_again() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        await until(lambda: not broker_image(cluster, 1).fenced and replica(cluster).is_leader)
        assert bounds(log_of(cluster)) == (0, 20, 22)
        await write(client, 8, first=22)
        await until(lambda: bases(cluster) == [28])
        assert in_tier(cluster) == starts(7)
        assert all(path.startswith(ROOT) for path in stored(cluster))

    with_tier(scenario)


def test_the_quota_limits_the_rate_of_copies() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: len(in_tier(cluster)) == 1)
        await asyncio.sleep(3)
        assert len(in_tier(cluster)) < 3
        await until(lambda: in_tier(cluster) == starts(5))
        assert cluster.brokers[1].metrics.value("kafka_server_remotelogmanager_remote_copy_throttle_time") > 0

    with_tier(scenario, remote_log_manager_copy_max_bytes_per_second=300)


def test_the_index_cache_size_can_be_changed_at_run_time() -> None:
    """A13."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        assert await values(client, 20) == list(range(20))
        tier = cluster.brokers[1].tier
        assert tier is not None
        indexes = tier.tier.indexes
        whole = indexes.size
        limit = {"remote.log.index.file.cache.total.size.bytes": str(whole // 2)}
        await admin.alter_configs(client, BROKER_RESOURCE, "1", limit)
        await until(lambda: 0 < indexes.size <= whole // 2)
        assert await values(client, 20) == list(range(20))
        await admin.alter_configs(client, BROKER_RESOURCE, "1", {}, list(limit))
        assert await values(client, 20) == list(range(20))
        await until(lambda: indexes.size == whole)

    with_tier(scenario)


def test_metrics_show_copied_bytes_and_the_copy_lag() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 22)
        await until(lambda: bases(cluster) == [20])
        metrics, prefix = cluster.brokers[1].metrics, "kafka_server_brokertopicmetrics"
        size = sum(one.size for one in known_segments(cluster).segments())
        assert metrics.value(f"{prefix}_remotecopybytespersec_total", topic="t") == size
        assert metrics.value(f"{prefix}_remotecopyrequestspersec_total", topic="t") == 5
        assert metrics.value(f"{prefix}_remotecopylagsegments", topic="t") == 0
        await until(lambda: metrics.value(f"{prefix}_remotelogsizebytes", topic="t") == size)
        assert metrics.value(f"{prefix}_remotelogmetadatacount", topic="t") == 5
        await admin.delete_topics(client, ["t"])
        await until(lambda: 'topic="t"' not in render(metrics))

    with_tier(scenario)


def test_lab_commands_describe_the_tier_and_run_its_tasks() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        lab_commands = cluster.brokers[1].lab_commands
        await write(client, 6)
        assert await lab_commands.call("remote_segments", topic="t", partition=0) == []
        assert await lab_commands.call("tiering", topic="t", partition=0) == {
            "log_start_offset": 0,
            "local_log_start_offset": 0,
            "highest_offset_in_remote_storage": 3,
        }
        [segment] = await lab_commands.call("remote_segments", topic="t", partition=0)
        assert (segment["start_offset"], segment["end_offset"], segment["epochs"]) == (0, 3, [[0, 0]])
        assert (segment["state"], segment["broker"], segment["on_lineage"]) == ("COPY_SEGMENT_FINISHED", 1, True)
        assert await lab_commands.call("retain") == {"t-0": 1}
        cluster.world.tier.fail(COPIES, errno.EIO)
        await write(client, 4, first=6)
        with pytest.raises(LabCommandError, match="cannot copy segment"):
            await lab_commands.call("tiering", topic="t", partition=0)

    with_tier(scenario, remote_log_manager_task_interval_ms=60_000, log_retention_check_interval_ms=600_000)
