"""Followers: truncation, fetcher threads and changes of the leader."""

from __future__ import annotations

import asyncio

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of
from milena.protocol.records.records import Record, build_batch
from tests.simulation.steps import create, partition_image, seeds, until, values, write
from tests.simulation.three_brokers import BROKERS, RECORDS, content, in_sync, leader_of, on_three_brokers, replica

FETCHES = "kafka_server_brokertopicmetrics_totalfetchrequestspersec_total"
MANAGER = "kafka_server_replicafetchermanager"


def others(leader: int) -> list[int]:
    return [one for one in BROKERS if one != leader]


def all_equal(cluster: SimulatedCluster) -> bool:
    return content(cluster, 1) == content(cluster, 2) == content(cluster, 3)


def test_a_former_leader_that_was_cut_off_truncates_the_records_that_only_it_has() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        old, fabric = leader_of(cluster), cluster.world.fabric
        away = [CONTROLLER, *map(host_of, others(old))]
        for peer in away:
            fabric.cut(host_of(old), peer)
        for number in range(5):
            data = build_batch([Record(0, 0, None, b"lost %d" % number)], base_timestamp=1)
            replica(cluster, old).append(memoryview(bytearray(data)), 1)
        await until(lambda: leader_of(cluster) != old, 30)
        await write(client, 10, first=RECORDS)
        assert replica(cluster, old).online_log.log_end_offset >= RECORDS + 5
        for peer in away:
            fabric.heal(host_of(old), peer)
        await until(lambda: in_sync(cluster) == BROKERS, 60)
        assert all_equal(cluster)
        assert await values(client, RECORDS + 10) == list(range(RECORDS + 10))
        assert [entry.epoch for entry in replica(cluster, old).online_log.epochs.entries] == [
            entry.epoch for entry in replica(cluster, leader_of(cluster)).online_log.epochs.entries
        ]

    on_three_brokers(scenario, replica_socket_timeout_ms=2000)


@pytest.mark.parametrize("seed", seeds(6))
def test_kafka_16541_epochs_are_right_after_a_truncation_and_a_power_loss(seed: int) -> None:
    """A truncation does not sync the leader-epoch-checkpoint: recovery of the log must correct the old file."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        old, fabric = leader_of(cluster), cluster.world.fabric
        away = [CONTROLLER, *map(host_of, others(old))]
        for peer in away:
            fabric.cut(host_of(old), peer)
        data = build_batch([Record(0, 0, None, b"lost")], base_timestamp=1)
        replica(cluster, old).append(memoryview(bytearray(data)), 1)
        await until(lambda: leader_of(cluster) != old, 30)
        await write(client, 10, first=RECORDS)
        for peer in away:
            fabric.heal(host_of(old), peer)
        await until(lambda: len(replica(cluster, old).online_log.epochs.entries) > 1, 60)
        await asyncio.sleep(0.002 * seed)
        await cluster.lose_power(host_of(old))
        await cluster.start_broker(old)
        await until(lambda: in_sync(cluster) == BROKERS, 60)
        await write(client, 1, first=RECORDS + 10)
        assert await values(client, RECORDS + 11) == list(range(RECORDS + 11))
        await until(lambda: all_equal(cluster), 5)
        epochs = [list(replica(cluster, one).online_log.epochs.entries) for one in BROKERS]
        assert epochs[0] == epochs[1] == epochs[2]

    on_three_brokers(scenario, seed=seed, replica_socket_timeout_ms=2000)


def test_a_follower_behind_the_log_start_of_its_leader_begins_at_that_log_start() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, 5)
        away = others(leader_of(cluster))[0]
        await cluster.kill(host_of(away))
        await write(client, RECORDS, first=5)
        await until(lambda: away not in in_sync(cluster), 30)
        replica(cluster, leader_of(cluster)).delete_records(None)
        await write(client, 3, first=RECORDS + 5)
        await cluster.start_broker(away)
        await until(lambda: in_sync(cluster) == BROKERS, 30)
        log = replica(cluster, away).online_log
        assert (log.log_start_offset, log.log_end_offset) == (RECORDS + 5, RECORDS + 8)
        assert content(cluster, away) == content(cluster, leader_of(cluster))

    on_three_brokers(scenario)


def test_deleted_records_are_deleted_at_the_followers_too() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        replica(cluster, leader_of(cluster)).delete_records(None)
        await until(lambda: all(replica(cluster, one).online_log.log_start_offset == RECORDS for one in BROKERS), 2)

    on_three_brokers(scenario)


def test_fetches_do_not_name_idle_partitions() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "idle", partitions=100, replicas=3)
        await write(client, 1, "idle", 7)
        await asyncio.sleep(5)
        before = [cluster.brokers[one].metrics.value(FETCHES, topic="idle") for one in BROKERS]
        await write(client, RECORDS)
        await asyncio.sleep(20)
        assert [cluster.brokers[one].metrics.value(FETCHES, topic="idle") for one in BROKERS] == before

    on_three_brokers(scenario)


async def longest_send_during_shutdown(cluster: SimulatedCluster, client: Cluster, leaving: int) -> float:
    """Send 300 records one after the other while ``leaving`` is shut down; return the seconds of the slowest send."""
    loop, longest = cluster.world.loop, 0.0
    producer = Producer(client, request_timeout=2.0, delivery_timeout=60.0)
    await producer.send("t", b"%-100d" % 0, partition=0)
    stopping = loop.create_task(cluster.stop_broker(leaving))
    for number in range(1, 300):
        began = loop.time()
        await producer.send("t", b"%-100d" % number, partition=0)
        longest = max(longest, loop.time() - began)
        await asyncio.sleep(0.001)
    await stopping
    await producer.close()
    return longest


def test_a_controlled_shutdown_of_the_leader_does_not_delay_producers() -> None:
    """The broker leads until the metadata names another leader, from which the followers fetch at once."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        leaving = leader_of(cluster)
        longest = await longest_send_during_shutdown(cluster, client, leaving)
        assert leader_of(cluster) != leaving
        assert await values(client, 300) == list(range(300))
        assert longest < 1.0

    on_three_brokers(scenario)


def test_a_leaders_partitions_are_spread_over_as_many_fetchers_as_configured() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "many", partitions=12, replicas=3)
        for number in range(12):
            await write(client, 2, "many", number)
        fetchers = {str(one["fetcher"]) for one in cluster.brokers[1].fetchers.describe()}
        assert fetchers <= {f"ReplicaFetcherThread-{number}-{leader}" for number in range(3) for leader in (2, 3)}
        assert len({name.split("-")[1] for name in fetchers}) == 3

    on_three_brokers(scenario, num_replica_fetchers=3)


def test_metrics_show_the_lag_and_the_fetchers() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        leader = leader_of(cluster)
        follower = cluster.brokers[others(leader)[0]]
        await until(lambda: replica(cluster, follower.node_id).high_watermark == RECORDS, 2)
        value = follower.metrics.value
        name = f"ReplicaFetcherThread-0-{leader}"
        lag = value("kafka_server_fetcherlagmetrics_consumerlag", clientid=name, topic="t", partition="0")
        assert lag == value(f"{MANAGER}_maxlag", clientid="Replica") == 0
        assert value(f"{MANAGER}_failedpartitionscount", clientid="Replica") == 0
        assert value(f"{MANAGER}_deadthreadcount", clientid="Replica") == 0
        assert value(f"{MANAGER}_minfetchrate", clientid="Replica") > 1
        assert value("kafka_server_brokertopicmetrics_replicationbytesinpersec_total") > RECORDS * 100

    on_three_brokers(scenario)


def test_the_first_record_of_a_new_topic_does_not_wait_for_parked_fetches() -> None:
    """The fetches of the followers are in the purgatory of the leader, and do not name the new partition yet."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        loop = cluster.world.loop
        await asyncio.sleep(2)
        for number in range(6):
            await create(client, f"new{number}", replicas=3)
            assert partition_image(cluster, f"new{number}").leader >= 0
            began = loop.time()
            await write(client, 1, f"new{number}")
            assert loop.time() - began < 0.1

    on_three_brokers(scenario)


def test_a_partition_that_is_deleted_while_the_fetcher_connects_is_not_fetched() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        follower, leader = others(leader_of(cluster))
        cluster.world.fabric.slow(host_of(follower), host_of(leader), 0.5)
        placed = {0: [leader, follower]}
        await admin.create_topics(client, [admin.NewTopic(name, assignments=placed) for name in ("short", "long")])
        await until(lambda: cluster.brokers[follower].partitions.find("short", 0) is not None, 1)
        await admin.delete_topics(client, ["short"])
        await until(lambda: cluster.brokers[follower].partitions.find("short", 0) is None, 0.5)
        await write(client, 1, "long")
        copy = cluster.brokers[follower].partitions.find("long", 0)
        assert copy is not None
        assert copy.online_log.log_end_offset == 1

    on_three_brokers(scenario)


def test_followers_soon_fetch_from_a_leader_that_learns_of_its_role_after_them() -> None:
    """The new leader refuses their first fetches, and its high watermark waits for them: the refusal must not cost a
    whole ``replica.fetch.backoff.ms``."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        leaving = leader_of(cluster)
        successor = next(one for one in partition_image(cluster).replicas if one != leaving)
        assert cluster.controller is not None
        await cluster.controller.lab_commands.call("delay", api="FETCH", peer=successor, side="response", ms=100)
        longest = await longest_send_during_shutdown(cluster, client, leaving)
        assert leader_of(cluster) == successor
        assert longest < 0.5

    on_three_brokers(scenario)
