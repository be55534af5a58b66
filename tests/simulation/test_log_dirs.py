"""Replicas that move between the log directories of their broker while clients write and read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from milena.client.cluster import Cluster
from milena.lab.cluster import SimulatedCluster, host_of
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.types import LeaderEpoch, Offset
from tests.simulation.moved_logs import FILLED, fill, move, on_brokers, other_than
from tests.simulation.steps import create, directory_of, partition_image, seeds, storage_of, until, values, write

RECORDS = 40


async def described(client: Cluster, broker: int) -> dict[str, list[Any]]:
    """The replicas of each directory in a DescribeLogDirs response."""
    response = await client.to(host_of(broker), 9092).request(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
    return {one.log_dir: [p for topic in one.topics for p in topic.partitions] for one in response.results}


@pytest.mark.parametrize("seed", seeds(3))
def test_a_replica_moves_while_it_is_written(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        before = directory_of(cluster, 1)
        target = other_than(before)
        writing = cluster.world.loop.create_task(write(client, RECORDS, first=RECORDS))
        assert await move(client, 1, target) is ErrorCode.NONE
        await writing
        await until(lambda: directory_of(cluster, 1) == target, 10)
        await write(client, RECORDS, first=2 * RECORDS)
        assert await values(client, 3 * RECORDS) == list(range(3 * RECORDS))
        assert [len(found) for path, found in sorted((await described(client, 1)).items()) if path != before] == [1]
        directory = next(one for one in cluster.brokers[1].logs.dirs if one.path == target)
        await until(lambda: partition_image(cluster).directory_of(1) == directory.directory_id, 10)

        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        assert directory_of(cluster, 1) == target
        assert await values(client, 3 * RECORDS) == list(range(3 * RECORDS))
        await asyncio.sleep(70)
        assert not [path for path in storage_of(cluster, 1).files if path.startswith(f"{before}/t-0")]

    on_brokers(1, scenario, seed=seed)


def test_a_log_whose_last_records_were_compacted_away_keeps_its_end_offset_in_a_move() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 5)
        log = cluster.brokers[1].logs.get("t", 0)
        assert log is not None
        log.end_at(Offset(9))
        assert len(await cluster.brokers[1].lab_commands.call("read_log", topic="t", partition=0)) == 5
        target = other_than(directory_of(cluster, 1))
        assert await move(client, 1, target) is ErrorCode.NONE
        await until(lambda: directory_of(cluster, 1) == target, 10)
        moved = cluster.brokers[1].logs.get("t", 0)
        assert moved is not None and moved is not log
        assert moved.log_end_offset == 9
        await write(client, 1, first=9)
        assert await values(client, 6) == [*range(5), 9]

    on_brokers(1, scenario)


def test_kafka_20961_a_move_keeps_epochs_without_records() -> None:
    """KAFKA-15608, KAFKA-20961: else a follower that asks for such an epoch gets an older epoch from its leader."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 5)
        fill(cluster.brokers[1].partitions.get("t", 0))
        log = cluster.brokers[1].logs.get("t", 0)
        assert log is not None
        log.assign_epoch(LeaderEpoch(7), log.log_end_offset)
        epochs = list(log.epochs.entries)
        target = other_than(directory_of(cluster, 1))
        await move(client, 1, target)
        await until(lambda: directory_of(cluster, 1) == target, 10)
        moved = cluster.brokers[1].logs.get("t", 0)
        assert moved is not None
        assert moved is not log
        assert list(moved.epochs.entries) == epochs
        assert moved.high_watermark == 5 + FILLED

    on_brokers(1, scenario)


def test_kafka_20961_followers_keep_replicating_after_a_leader_with_empty_epochs_has_moved() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        for _ in range(2):
            gone = int(partition_image(cluster).leader)
            await cluster.kill(host_of(gone))
            await until(lambda gone=gone: partition_image(cluster).leader != gone, 30)  # type: ignore[misc]
            await cluster.start_broker(gone)
            await until(lambda: len(partition_image(cluster).isr) == 3, 30)
        leader = int(partition_image(cluster).leader)
        epochs = list(cluster.brokers[leader].partitions.get("t", 0).online_log.epochs.entries)
        assert epochs[-1].start == RECORDS
        target = other_than(directory_of(cluster, leader))
        assert await move(client, leader, target) is ErrorCode.NONE
        await until(lambda: directory_of(cluster, leader) == target, 10)
        assert list(cluster.brokers[leader].partitions.get("t", 0).online_log.epochs.entries) == epochs
        await write(client, RECORDS, first=RECORDS)
        for broker in (1, 2, 3):
            log = cluster.brokers[broker].partitions.get("t", 0).online_log
            await until(lambda log=log: log.high_watermark == 2 * RECORDS, 5)  # type: ignore[misc]

    on_brokers(3, scenario)


def test_a_log_that_begins_in_the_middle_of_a_batch_is_copied() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        partition = cluster.brokers[1].partitions.get("t", 0)
        partition.delete_records(partition.high_watermark)
        await write(client, 3, first=RECORDS)
        target = other_than(directory_of(cluster, 1))
        await move(client, 1, target)
        await until(lambda: directory_of(cluster, 1) == target, 10)
        log = partition.online_log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (RECORDS, RECORDS + 3, RECORDS + 3)

    on_brokers(1, scenario)


def test_leaders_and_followers_move_while_the_cluster_serves() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        targets = {broker: other_than(directory_of(cluster, broker)) for broker in (1, 2, 3)}
        for broker, target in targets.items():
            assert await move(client, broker, target) is ErrorCode.NONE
        await write(client, RECORDS, first=RECORDS)
        await until(lambda: all(directory_of(cluster, broker) == targets[broker] for broker in targets), 10)
        await write(client, RECORDS, first=2 * RECORDS)
        await until(lambda: len(partition_image(cluster).isr) == 3, 30)
        assert await values(client, 3 * RECORDS) == list(range(3 * RECORDS))
        logs = [cluster.brokers[broker].partitions.get("t", 0).online_log for broker in (1, 2, 3)]
        await until(lambda: {log.high_watermark for log in logs} == {3 * RECORDS}, 10)
        contents = {
            bytes(log.read_bytes(log.log_start_offset, 1 << 20, upper=log.log_end_offset, min_one=True)) for log in logs
        }
        assert len(contents) == 1

    on_brokers(3, scenario)


def test_a_move_to_the_current_directory_cancels_the_move_in_progress() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        home = directory_of(cluster, 1)
        away, broker = other_than(home), cluster.brokers[1]
        partition = broker.partitions.get("t", 0)
        fill(partition)
        assert await move(client, 1, away) is ErrorCode.NONE
        found = await described(client, 1)
        assert [one.is_future_key for one in found[home]] == [False]
        ((is_future, lag),) = [(one.is_future_key, one.offset_lag) for one in found[away]]
        assert is_future
        assert lag > 0
        assert await move(client, 1, home) is ErrorCode.NONE
        await asyncio.sleep(70)
        assert directory_of(cluster, 1) == home
        assert broker.logs.futures.find("t", 0) is None
        assert not [path for path in storage_of(cluster, 1).files if path.startswith(f"{away}/t-0")]

    on_brokers(1, scenario)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_crash_in_the_middle_of_a_move_loses_nothing(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        target = other_than(directory_of(cluster, 1))
        fill(cluster.brokers[1].partitions.get("t", 0))
        await move(client, 1, target)
        await asyncio.sleep(0.004 * seed)
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        await until(lambda: directory_of(cluster, 1) == target, 10)
        assert await values(client, RECORDS + FILLED) == [*range(RECORDS), *[-1] * FILLED]
        assert len([1 for one in cluster.brokers[1].logs if one.topic == "t"]) == 1

    on_brokers(1, scenario, seed=seed)


def test_a_replica_stays_in_its_directory_if_the_target_fails() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        home = directory_of(cluster, 1)
        broker = cluster.brokers[1]
        target = next(one for one in broker.logs.dirs if one.path == other_than(home))
        broker.log_mover.move(broker.partitions.get("t", 0), target)
        broker.logs.take_offline(target, OSError(5, "broken"))
        await write(client, RECORDS, first=RECORDS)
        assert directory_of(cluster, 1) == home
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))
        assert await move(client, 1, target.path) is ErrorCode.KAFKA_STORAGE_ERROR

    on_brokers(1, scenario)


def test_impossible_moves_are_refused_with_the_error_codes_of_kafka() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        home = directory_of(cluster, 1)
        assert await move(client, 1, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(client, 1, home) is ErrorCode.NONE
        assert await move(client, 1, home, "unknown") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(client, 1, home, "x" * 240) is ErrorCode.INVALID_TOPIC_EXCEPTION
        await create(client, "elsewhere", replicas=1)
        leader = partition_image(cluster, "elsewhere").leader
        assert await move(client, 3 - leader, home, "elsewhere") is ErrorCode.REPLICA_NOT_AVAILABLE

    on_brokers(2, scenario)


def test_the_last_directory_counts_for_a_partition_that_is_named_twice() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 1)
        before = directory_of(cluster, 1)
        topics = [{"name": "t", "partitions": [0]}]
        response = await client.to(host_of(1), 9092).request(
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            dirs=[{"path": path, "topics": topics} for path in (other_than(before), before) * 50],
        )
        ((one,),) = (result.partitions for result in response.results)
        assert (one.partition_index, one.error_code) == (0, 0)
        await asyncio.sleep(5)
        assert directory_of(cluster, 1) == before

    on_brokers(1, scenario)
