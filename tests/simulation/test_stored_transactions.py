"""Transactions in logs that move between directories, are compacted, deleted from their start, recovered, and copied to
the tier: readers of committed records find the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest
from structlog.testing import capture_logs

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from milena.protocol.types import ProducerEpoch, ProducerId
from milena.storage.log.unified_log import UnifiedLog
from tests.simulation.moved_logs import fill, move, other_than
from tests.simulation.steps import DIRS, OF_BROKERS, QUICK, directory_of, seeds, until
from tests.simulation.tiered_topics import finished, in_tier, log_of, with_tier
from tests.simulation.transactional import (
    BROKERS,
    committed,
    interleaved,
    led_log,
    markers,
    on_three_brokers,
    producer,
    producers,
    replica,
    transaction,
    until_equal,
    write_marker,
)

COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.01",
}
CLEANER: Mapping[str, object] = {**QUICK, "log_cleaner_backoff_ms": 500}
Scenario = Callable[[SimulatedCluster, Cluster], Awaitable[None]]


def on_one_broker(scenario: Scenario, configs: Mapping[str, str], *, seed: int = 1, **overrides: object) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 1, {**CLEANER, **overrides}, watched=True)
        async with cluster.client() as client:
            assert await admin.create_topics(client, [admin.NewTopic("t", 1, 1, configs=configs)]) == {"t": None}
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


async def last_values(client: Cluster, log: UnifiedLog) -> Mapping[bytes | None, bytes | None]:
    """The last value of each key that a read_committed consumer finds up to the last stable offset."""
    consumer = Consumer(client, committed=True, max_wait_ms=50)
    consumer.assign({("t", 0): 0})
    found: dict[bytes | None, bytes | None] = {}
    async with asyncio.timeout(60):
        while (consumer.position("t", 0) or 0) < log.last_stable_offset:
            found |= {record.key: record.value for record in await consumer.poll(0.1)}
    await consumer.close()
    return found


def all_stable(log: UnifiedLog) -> bool:
    return log.last_stable_offset == log.log_end_offset


# -- log directories


@pytest.mark.parametrize("seed", seeds(4))
def test_transactions_continue_while_their_replicas_move(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load = await interleaved(client, seed)
        await load.run(20)
        fill(replica(cluster, 1))
        before = {broker: directory_of(cluster, broker) for broker in BROKERS}
        for broker in BROKERS:
            assert await move(client, broker, other_than(before[broker])) is ErrorCode.NONE
        await load.run(30)
        await until(lambda: all(directory_of(cluster, one) != before[one] for one in BROKERS), 60)
        await load.run(10)
        await load.finish()
        await until_equal(cluster)
        found = [value for value in await committed(client, cluster) if value is not None and value[:2] != b"-1"]
        assert found == load.committed

    on_three_brokers(scenario, seed=seed, of_brokers=OF_BROKERS, configs={})


def test_the_end_of_a_transaction_is_in_both_directories_of_a_move() -> None:
    """The marker is written while the copy is behind, so that its transaction index is written by the copy."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await producer(client)
        writing.begin()
        await writing.send("t", b"aborted", partition=0)
        fill(replica(cluster, 1))
        before = directory_of(cluster, 1)
        assert await move(client, 1, other_than(before)) is ErrorCode.NONE
        await writing.abort()
        await until(lambda: all_stable(led_log(cluster)))
        assert directory_of(cluster, 1) == before
        await until(lambda: directory_of(cluster, 1) != before, 60)
        log = led_log(cluster)
        (aborted,) = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        assert aborted.first_offset == 0 and all_stable(log)
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        await until_equal(cluster)
        assert b"aborted" not in await committed(client, cluster)

    on_three_brokers(scenario, of_brokers=OF_BROKERS, configs={})
    assert len(DIRS) == 2


# -- compaction


@pytest.mark.parametrize("seed", seeds(4))
def test_compaction_keeps_the_last_committed_value_of_each_key(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load = await interleaved(client, seed)
        log = log_of(cluster)
        for _ in range(4):
            await load.run(60)
            await asyncio.sleep(3)
        await load.finish()
        await until(lambda: all_stable(log))
        assert (log.cleaned_to or 0) > 0
        assert await last_values(client, log) == load.last
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        assert await last_values(client, log_of(cluster)) == load.last

    on_one_broker(scenario, COMPACTED, seed=seed)


def test_compaction_stops_at_an_open_transaction() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load, writing = await interleaved(client, 1), await producer(client, transaction_timeout_ms=600_000)
        await load.run(40)
        writing.begin()
        first = (await writing.send("t", b"open", key=b"0", partition=0)).offset
        await load.run(200)
        await asyncio.sleep(20)
        log = log_of(cluster)
        assert (log.cleaned_to or 0) <= first < log.segments.active.base_offset
        await writing.abort()
        await load.finish()
        await until(lambda: (log.cleaned_to or 0) > first, 60)
        assert await last_values(client, log) == load.last

    on_one_broker(scenario, COMPACTED)


def test_compaction_removes_markers_after_the_retention_of_deletes() -> None:
    """The first cleaning removes the records of a transaction, the second one notes that its marker ends nothing, and
    the first one after delete.retention.ms removes the marker."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load, other, log = await interleaved(client, 3), await producer(client, "other"), log_of(cluster)
        await load.run(200)
        await load.finish()
        await until(lambda: all_stable(log))
        written = len(markers(log))
        for _ in range(3):  # each round closes segments, which are cleaned
            other.begin()
            for _ in range(8):
                await other.send("t", b"x" * 500, key=b"other", partition=0)
            await other.commit()
            await asyncio.sleep(70)
        assert len(markers(log)) < written / 2
        assert await last_values(client, log) == {**load.last, b"other": b"x" * 500}

    on_one_broker(scenario, {**COMPACTED, "delete.retention.ms": "60000"})


# -- deletion


def test_records_before_a_marker_may_be_deleted() -> None:
    """DeleteRecords removes the start of an open transaction; its marker still ends it."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing, other = await producer(client), await producer(client, "other")
        writing.begin()
        for number in range(20):
            await writing.send("t", b"%-500d" % number, partition=0)
        await transaction(other, b"kept")
        log = log_of(cluster)
        assert await admin.delete_records(client, {("t", 0): 15}) == {("t", 0): 15}
        await until(lambda: log.segments[0].base_offset > 0)
        assert log.last_stable_offset == 15
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        log = log_of(cluster)
        assert log.last_stable_offset == 15 < log.log_end_offset
        await writing.abort()
        await until(lambda: all_stable(log))
        assert await committed(client, cluster, since=15) == [b"kept"]

    on_one_broker(
        scenario,
        {"internal.segment.bytes": "3000", "file.delete.delay.ms": "0"},
        log_retention_check_interval_ms=500,
    )


def test_retention_may_delete_an_open_transaction_before_it_ends() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing, other = await producer(client), await producer(client, "other")
        writing.begin()
        await writing.send("t", b"old" * 300, partition=0)
        for number in range(20):
            await transaction(other, b"%-500d" % number)
        log = log_of(cluster)
        await until(lambda: log.log_start_offset > 5)
        assert log.last_stable_offset == log.log_start_offset
        await writing.commit()
        await until(lambda: all_stable(log))
        start = log.log_start_offset
        found = await committed(client, cluster, since=start)
        assert found and found[-1] == b"%-500d" % 19

    on_one_broker(
        scenario,
        {"internal.segment.bytes": "3000", "retention.bytes": "6000", "file.delete.delay.ms": "0"},
        log_retention_check_interval_ms=500,
    )


# -- recovery


@pytest.mark.parametrize("ends", ["stop", "kill", "power"])
@pytest.mark.parametrize("seed", seeds(3))
def test_open_transactions_survive_a_restart(seed: int, ends: str) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load = await interleaved(client, seed)
        await load.run(50)
        begun = load.begun
        assert begun
        if ends == "power":
            for partition in cluster.brokers[1].partitions:
                partition.online_log.flush()
            await cluster.lose_power(host_of(1))
        elif ends == "kill":
            await cluster.kill(host_of(1))
        else:
            await cluster.stop_broker(1)
        await cluster.start_broker(1)
        log = log_of(cluster)
        known = {int(producer_id): entry.txn_first_offset for producer_id, entry in log.producers}
        assert {producer_id: known[producer_id] for producer_id in begun} == begun
        await until(lambda: log.last_stable_offset == min(begun.values()))
        await load.run(30)
        await load.finish()
        await until(lambda: all_stable(log))
        assert await committed(client, cluster) == load.committed

    on_one_broker(scenario, {"internal.segment.bytes": "3000"}, seed=seed)


# -- the tier


@pytest.mark.parametrize("seed", seeds(4))
def test_readers_of_committed_records_find_them_in_the_tier(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load = await interleaved(client, seed)
        await load.run(120)
        await load.finish()
        log = log_of(cluster)
        await until(lambda: all_stable(log) and log.local_log_start_offset > 50)
        assert log.log_start_offset == 0 and len(finished(cluster)) > 5
        assert await committed(client, cluster) == load.committed

    with_tier(scenario, seed=seed)


def test_an_open_transaction_stops_copies_and_local_retention() -> None:
    """As in Kafka, segments from the last stable offset on are not copied; after the abort all is caught up."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load, writing = await interleaved(client, 1), await producer(client, transaction_timeout_ms=600_000)
        await load.run(20)
        await load.finish()
        writing.begin()
        first = (await writing.send("t", b"open", partition=0)).offset
        await load.run(100)
        await asyncio.sleep(30)
        log = log_of(cluster)
        assert max(end for _, end in finished(cluster)) < first
        assert log.local_log_start_offset <= first
        await writing.abort()
        await load.finish()
        await until(lambda: max(end for _, end in finished(cluster)) > first and log.local_log_start_offset > first, 60)
        assert await committed(client, cluster) == load.committed

    with_tier(scenario)


def test_a_transaction_that_hangs_for_an_hour_is_reported_and_its_backlog_is_measured() -> None:
    """Its coordinator does not know it: without verification a late batch has begun it (KAFKA-14402)."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load, log, value = await interleaved(client, 1), log_of(cluster), cluster.brokers[1].metrics.value
        await load.run(20)
        first = log.log_end_offset
        late = build_batch(
            [Record(0, 0, None, b"late")],
            base_timestamp=cluster.brokers[1].runtime.clock.time_ms(),
            transactional=True,
            producer_id=ProducerId(7_777),
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
        )
        cluster.brokers[1].partitions.get_for_write("t", 0).append(memoryview(bytearray(late)), 1)
        await load.run(100)
        await load.finish()
        with capture_logs() as lines:
            await asyncio.sleep(3_600)
        (warning,) = [line for line in lines if line["event"] == "transaction open for too long"]
        assert (warning["topic"], warning["partition"], warning["producer_id"]) == ("t", 0, 7_777)
        assert warning["first_offset"] == first == log.last_stable_offset
        assert 1_200 <= warning["seconds_since_last_batch"] <= 1_300
        assert max(end for _, end in finished(cluster)) < first and log.local_log_start_offset <= first
        assert value("kafka_server_replicamanager_partitionswithlatetransactionscount") == 1
        held_back = log.log_end_offset - first
        assert value("kafka_cluster_partition_laststableoffsetlag", topic="t", partition="0") == held_back > 100
        assert value("kafka_server_brokertopicmetrics_remotecopylagbytes", topic="t") > 700
        assert await write_marker(client, 1, 7_777, 0) is ErrorCode.NONE
        await until(lambda: max(end for _, end in finished(cluster)) > first and log.local_log_start_offset > first, 60)
        assert value("kafka_server_replicamanager_partitionswithlatetransactionscount") == 0
        assert value("kafka_cluster_partition_laststableoffsetlag", topic="t", partition="0") == 0
        await until(lambda: value("kafka_server_brokertopicmetrics_remotecopylagbytes", topic="t") == 0, 60)
        assert await committed(client, cluster) == load.committed

    with_tier(scenario, transaction_partition_verification_enable=False)


def test_a_follower_that_begins_in_the_tier_knows_the_open_transactions() -> None:
    """Its producer state is the snapshot of the segment before its local log."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load, writing = await interleaved(client, 2), await producer(client, transaction_timeout_ms=600_000)
        await load.run(120)
        await load.finish()
        await until(lambda: all_stable(log_of(cluster)) and log_of(cluster).local_log_start_offset > 50)
        writing.begin()
        await writing.send("t", b"open", partition=0)
        await cluster.kill(host_of(2))
        cluster.wipe(host_of(2))
        await cluster.start_broker(2)
        await until(lambda: log_of(cluster, 2).log_end_offset == log_of(cluster).log_end_offset, 60)
        assert log_of(cluster, 2).local_log_start_offset > 50
        await until(lambda: producers(log_of(cluster, 2)) == producers(log_of(cluster)), 10)
        assert log_of(cluster, 2).last_stable_offset == log_of(cluster).last_stable_offset
        await writing.commit()
        await load.run(10)
        await load.finish()
        await until(lambda: all_stable(log_of(cluster)) and all_stable(log_of(cluster, 2)), 20)
        assert producers(log_of(cluster, 2)) == producers(log_of(cluster))
        expected = sorted([*load.committed, b"open"])
        assert sorted(one or b"" for one in await committed(client, cluster)) == expected

    with_tier(
        scenario,
        brokers=3,
        transaction_state_log_replication_factor=3,
        rlmm_config_remote_log_metadata_topic_replication_factor=3,
    )


def test_a_marker_of_records_in_the_tier_is_written_by_an_administrator() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        load = await interleaved(client, 4)
        await load.run(60)
        await load.finish()
        log = log_of(cluster)
        await until(lambda: bool(in_tier(cluster)) and all_stable(log))
        end = log.log_end_offset
        assert await write_marker(client, 1, 4711, 0, commit=False) is ErrorCode.NONE
        await until(lambda: all_stable(log))
        assert log.log_end_offset == end + 1 and 4711 in producers(log)
        assert await committed(client, cluster) == load.committed

    with_tier(scenario)
