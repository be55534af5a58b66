"""Three brokers with three replicas: records that acks=all acknowledged survive the loss of any one broker."""

from __future__ import annotations

from typing import Any

import pytest

from milena.client.admin import delete_records
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.config.node_rules import RACK_AWARE_SELECTOR
from milena.lab.cluster import BROKER_PORT, CONTROLLER, SimulatedCluster, host_of
from milena.lab.world.world import World, simulate
from milena.node.metrics_text import render
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import decode_fetch_response
from tests.simulation.steps import QUICK, broker_image, create, partition_image, seeds, until, values, write
from tests.simulation.three_brokers import (
    BROKERS,
    CONFIGS,
    RECORDS,
    content,
    in_sync,
    leader_of,
    on_three_brokers,
    replica,
)


@pytest.mark.parametrize("seed", seeds(3))
def test_the_logs_of_followers_equal_that_of_the_leader_byte_for_byte(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        leader = leader_of(cluster)
        assert replica(cluster, leader).high_watermark == RECORDS
        await until(lambda: all(replica(cluster, one).high_watermark == RECORDS for one in BROKERS), 2)
        assert content(cluster, 1) == content(cluster, 2) == content(cluster, 3)

    on_three_brokers(scenario, seed=seed)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_killed_leader_is_replaced_and_no_acknowledged_record_is_lost(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        killed = leader_of(cluster)
        await cluster.kill(host_of(killed))
        await write(client, RECORDS, first=RECORDS)
        assert leader_of(cluster) != killed and killed not in in_sync(cluster)
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))

        await cluster.start_broker(killed)
        await until(lambda: in_sync(cluster) == BROKERS, 30)
        assert content(cluster, 1) == content(cluster, 2) == content(cluster, 3)

    on_three_brokers(scenario, seed=seed)


def test_a_broker_that_lost_its_disk_copies_all_records_before_it_joins_the_isr() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        wiped = next(one for one in BROKERS if one != leader_of(cluster))
        epoch = broker_image(cluster, wiped).epoch
        await cluster.lose_power(host_of(wiped))
        cluster.wipe(host_of(wiped))
        await cluster.start_broker(wiped)
        assert broker_image(cluster, wiped).epoch > epoch
        await until(lambda: in_sync(cluster) == BROKERS, 30)
        assert content(cluster, wiped) == content(cluster, leader_of(cluster))

    on_three_brokers(scenario)


def test_a_paused_follower_leaves_the_isr_and_rejoins_it() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        leader = leader_of(cluster)
        lagging = next(one for one in BROKERS if one != leader)
        cluster.world.fabric.cut(host_of(leader), host_of(lagging))
        await write(client, 1)
        await until(lambda: lagging not in in_sync(cluster), 10)
        assert replica(cluster, leader).high_watermark == 1
        cluster.world.fabric.heal(host_of(leader), host_of(lagging))
        await until(lambda: in_sync(cluster) == BROKERS, 60)

    on_three_brokers(scenario, replica_lag_time_max_ms=3000, replica_socket_timeout_ms=2000)


def test_metrics_show_the_state_of_the_replicas_of_each_partition() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        leader = leader_of(cluster)
        follower, away = (one for one in BROKERS if one != leader)

        def shown(broker: int) -> list[float]:
            names = ("insyncreplicascount", "replicascount", "underreplicated", "atminisr", "underminisr")
            value = cluster.brokers[broker].metrics.value
            return [value(f"kafka_cluster_partition_{name}", topic="t", partition="0") for name in names]

        assert shown(leader) == [3, 3, 0, 0, 0] and shown(follower) == [0, 0, 0, 0, 0]
        await cluster.kill(host_of(away))
        await until(lambda: shown(leader) == [2, 3, 1, 1, 0], 30)
        await cluster.kill(host_of(follower))
        await until(lambda: shown(leader) == [1, 3, 1, 0, 1], 30)
        text = render(cluster.brokers[leader].metrics)
        assert 'kafka_cluster_partition_underminisr{partition="0",topic="t"} 1\n' in text
        assert 'kafka_cluster_partition_laststableoffsetlag{partition="0",topic="t"} 0\n' in text

    on_three_brokers(scenario)


def test_below_min_insync_replicas_producers_are_refused_and_consumers_see_no_new_records() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await write(client, RECORDS)
        leader = leader_of(cluster)
        others = [one for one in BROKERS if one != leader]
        for one in others:
            await cluster.kill(host_of(one))
        await until(lambda: in_sync(cluster) == (leader,), 30)
        before = replica(cluster, leader).high_watermark
        producing = cluster.world.loop.create_task(write(client, 1, first=RECORDS))
        await until(lambda: cluster.brokers[leader].metrics.value(FAILED, topic="t") > 0, 30)
        assert replica(cluster, leader).high_watermark == before
        await cluster.start_broker(others[0])
        await producing
        assert await values(client, RECORDS + 1) == list(range(RECORDS + 1))

    on_three_brokers(scenario)


async def in_racks(world: World) -> SimulatedCluster:
    """Start brokers with a rack each, which redirect a consumer to the replica in its rack."""
    cluster = SimulatedCluster(world, overrides=QUICK)
    await cluster.start_controller()
    for number in BROKERS:
        cluster.broker_overrides = {"broker_rack": f"rack-{number}", "replica_selector_class": RACK_AWARE_SELECTOR}
        await cluster.start_broker(number)
    return cluster


def test_a_consumer_is_redirected_to_the_replica_in_its_rack_and_served_there() -> None:
    """KIP-392. The fetches have the rack of the consumer and the leader epoch that it knows."""

    async def run(world: World) -> None:
        cluster = await in_racks(world)
        async with cluster.client() as client:
            await create(client, replicas=3, configs=CONFIGS)
            await write(client, RECORDS)
            leader = leader_of(cluster)
            near = next(one for one in BROKERS if one != leader)
            await until(lambda: replica(cluster, near).high_watermark == RECORDS, 2)
            answer = await fetch_once(cluster, client, leader, rack=f"rack-{near}")
            assert (answer.preferred_read_replica, bytes(answer.records or b"")) == (near, b"")
            served = await fetch_once(cluster, client, near, rack=f"rack-{near}")
            assert served.preferred_read_replica == -1 and served.high_watermark == RECORDS
            assert bytes(served.records or b"") == content(cluster, leader)
            stays = await fetch_once(cluster, client, leader, rack=f"rack-{leader}")
            assert bytes(stays.records or b"") == content(cluster, leader)
        cluster.check_alive()

    simulate(run, seed=1)


def test_a_consumer_reads_from_its_rack_and_from_the_leader_if_that_replica_is_down() -> None:
    async def run(world: World) -> None:
        cluster = await in_racks(world)
        async with cluster.client() as client:
            await create(client, replicas=3, configs=CONFIGS)
            leader = leader_of(cluster)
            near = next(one for one in BROKERS if one != leader)

            def sent_to_consumers() -> tuple[float, float]:
                """Bytes that the leader and the nearer replica sent to consumers."""
                first, second = (cluster.brokers[one].metrics.value(BYTES_OUT, topic="t") for one in (leader, near))
                return first, second

            consumer = Consumer(client, rack=f"rack-{near}")
            consumer.assign({("t", 0): 0})

            async def read(count: int) -> list[int]:
                found: list[int] = []
                while len(found) < count:
                    found += [int(record.value or b"-1") for record in await consumer.poll(1)]
                return found

            await write(client, RECORDS)
            assert await read(RECORDS) == list(range(RECORDS))
            by_leader, by_near = sent_to_consumers()
            assert by_leader == 0 and by_near > 0
            await cluster.kill(host_of(near))
            await write(client, RECORDS, first=RECORDS)
            assert await read(RECORDS) == list(range(RECORDS, 2 * RECORDS))
            assert cluster.brokers[leader].metrics.value(BYTES_OUT, topic="t") > 0
            await consumer.close()
        cluster.check_alive()

    simulate(run, seed=1)


BYTES_OUT = "kafka_server_brokertopicmetrics_bytesoutpersec_total"


async def fetch_once(cluster: SimulatedCluster, client: Cluster, broker: int, *, rack: str) -> Any:
    """Fetch t-0 from its start; return the response of the partition with copied records."""
    wanted = FetchPartition(0, 0, 1 << 20, current_leader_epoch=partition_image(cluster).leader_epoch)
    request = FetchRequest(0, 1, 1 << 20, [("t", None, [wanted])], rack_id=rack)

    def decode(body: memoryview) -> Any:
        ((_, _, (one,)),) = decode_fetch_response(12, body).topics
        records: Any = one.records
        return one._replace(records=bytes(records or b""))

    channel = client.to(host_of(broker), 9092)
    await channel.connect()
    return await channel.request_raw(ApiKey.FETCH, 12, [encode_fetch_request(12, request)], decode)


FAILED = "kafka_server_brokertopicmetrics_failedproducerequestspersec_total"


def test_a_consumer_does_not_go_back_to_a_leader_that_is_cut_off() -> None:
    """The position of the consumer is beyond the log of that leader: out of range there, which would reset it."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        fabric, old = cluster.world.fabric, leader_of(cluster)
        others = [one for one in BROKERS if one != old]
        for peer in (CONTROLLER, *map(host_of, others)):
            fabric.cut(host_of(old), peer)
        await until(lambda: leader_of(cluster) != old, 30)
        await until(lambda: in_sync(cluster) == tuple(others), 30)
        reader = Cluster(client.runtime, [(host_of(one), BROKER_PORT) for one in (*others, old)])
        await write(reader, RECORDS)
        consumer = Consumer(reader)
        consumer.assign({("t", 0): 0})
        read: list[int] = []
        while len(read) < RECORDS:
            read += [record.offset for record in await consumer.poll(1)]
        for one in others:
            fabric.cut("client", host_of(one))
        assert await consumer.poll(120) == []
        for one in others:
            fabric.heal("client", host_of(one))
        await write(reader, 1, first=RECORDS)
        assert [record.offset for record in await consumer.poll(30)] == [RECORDS]
        await consumer.close()
        reader.close()

    on_three_brokers(scenario)


def test_only_a_former_leader_deletes_records_that_it_was_asked_to_delete_too_late() -> None:
    """It moves its log start at once, and waits for followers that no longer follow it (ReplicaManager.deleteRecords).
    A reader with its metadata starts there, although the other replicas keep the records."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        fabric, old = cluster.world.fabric, leader_of(cluster)
        await write(client, RECORDS)
        fabric.cut(CONTROLLER, host_of(old))
        await until(lambda: leader_of(cluster) != old, 30)
        async with cluster.client("stale") as reader:
            for one in BROKERS:
                if one != old:
                    fabric.cut("stale", host_of(one))
            with pytest.raises(KafkaError, match="did not answer DELETE_RECORDS"):
                await delete_records(reader, {("t", 0): RECORDS - 10})
            assert await values(reader, 10) == list(range(RECORDS - 10, RECORDS))
        fabric.heal(CONTROLLER, host_of(old))
        await until(lambda: in_sync(cluster) == BROKERS, 60)
        starts = {one: replica(cluster, one).online_log.log_start_offset for one in BROKERS}
        assert starts == {one: RECORDS - 10 if one == old else 0 for one in BROKERS}
        assert await values(client, RECORDS) == list(range(RECORDS))

    on_three_brokers(scenario)
