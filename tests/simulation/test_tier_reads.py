"""Consumers of tiered topics read from the first offset, from the local log or the tier."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from milena.client import admin, replicas
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.offsets import find_offset
from milena.lab.cluster import SimulatedCluster, host_of
from milena.protocol.errors import ErrorCode, KafkaError
from tests.simulation.counted_reads import EXPIRED, HANGS, counted, filled, filled_twice, timed
from tests.simulation.fetches import fetch
from tests.simulation.steps import create, partition_image, seeds, until, values, write
from tests.simulation.tiered_topics import TIER, TIERED, bases, finished, log_of, with_tier


@pytest.mark.parametrize("seed", seeds(3))
def test_a_tiered_topic_is_read_from_its_first_offset(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        assert await values(client, 22) == list(range(22))
        assert counted(cluster, "remotefetchrequests") == 5
        assert counted(cluster, "remotefetchbytes") > 20 * 100
        assert counted(cluster, "remotefetcherrors") == 0
        name = "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems"
        assert cluster.brokers[1].metrics.value(name) == 5

    with_tier(scenario, seed=seed)


def test_partitions_of_one_request_are_read_from_the_local_log_and_the_tier() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled_twice(cluster, client)
        answer = await fetch(client, {("t", 0): 4, ("local", 0): 0, ("u", 0): 9})
        assert {topic: one.values for (topic, _), one in answer.partitions.items()} == {
            "t": [4, 5, 6, 7],
            "local": [0, 1, 2],
            "u": [9, 10, 11],
        }
        assert answer.partitions["t", 0][2:] == (22, 0)

    with_tier(scenario)


def test_an_error_of_the_tier_fails_only_the_partition_that_reads_from_it() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "local")
        await filled(cluster, client)
        await write(client, 3, "local")
        cluster.world.tier.fail(TIER, errno.EIO)
        wanted = {("t", 0): 0, ("local", 0): 0}
        answer = await fetch(client, wanted)
        assert answer.partitions["t", 0].error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert answer.partitions["local", 0].values == [0, 1, 2]
        assert counted(cluster, "remotefetcherrors") == 1
        cluster.world.tier.heal()
        assert (await fetch(client, wanted)).partitions["t", 0].values == [0, 1, 2, 3]

    with_tier(scenario)


def test_a_lost_object_is_an_error_and_other_segments_are_read() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        [lost] = [
            path for path in cluster.world.tier.files if "/00000000000000000008-" in path and path.endswith(".log")
        ]
        del cluster.world.tier.files[lost]
        found = {offset: (await fetch(client, {("t", 0): offset})).partitions["t", 0] for offset in (4, 8, 12, 20)}
        assert [one.error for one in found.values()] == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0]
        assert (found[12].values, found[20].values) == ([12, 13, 14, 15], [20, 21])
        assert counted(cluster, "remotefetcherrors") == 1

    with_tier(scenario)


def test_offsets_outside_of_the_local_log_and_the_tier_are_out_of_range() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        assert await admin.delete_records(client, {("t", 0): 9}) == {("t", 0): 9}
        for offset, error in (
            (8, ErrorCode.OFFSET_OUT_OF_RANGE),
            (9, ErrorCode.NONE),
            (23, ErrorCode.OFFSET_OUT_OF_RANGE),
        ):
            assert (await fetch(client, {("t", 0): offset})).partitions["t", 0].error is error
        assert (await fetch(client, {("t", 0): 9})).partitions["t", 0].values == [9, 10, 11]

    with_tier(scenario)


def test_a_tier_that_hangs_delays_only_its_readers() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "local")
        await filled(cluster, client)
        usual = cluster.world.tier.offload_seconds
        cluster.world.tier.offload_seconds = HANGS
        for attempt in range(1, 31):
            answer, seconds = await timed(cluster, fetch(client, {("t", 0): 0, ("local", 0): 0}))
            assert (answer.partitions["t", 0].error, answer.partitions["t", 0].values) == (ErrorCode.NONE, [])
            assert seconds == pytest.approx(0.5, abs=0.1)
            assert cluster.brokers[1].metrics.value(EXPIRED) == attempt
        pool = "kafka_log_remote_remotestoragethreadpool_remotelogreader"
        assert cluster.brokers[1].metrics.value(f"{pool}avgidlepercent") == 0.9, "who asks again takes no second reader"
        assert cluster.brokers[1].metrics.value(f"{pool}taskqueuesize") == 0
        _, seconds = await timed(cluster, write(client, 3, "local"))
        assert seconds < 0.2
        _, seconds = await timed(cluster, write(client, 1, first=22))
        assert seconds < 0.2
        answer, seconds = await timed(cluster, fetch(client, {("t", 0): 20}))
        assert (answer.partitions["t", 0].values, seconds < 0.2) == ([20, 21, 22], True)
        cluster.world.tier.offload_seconds = usual
        assert (await fetch(client, {("t", 0): 8})).partitions["t", 0].values == [8, 9, 10, 11]

    with_tier(scenario)


def test_a_consumer_progresses_with_a_tier_that_is_slower_than_its_fetches_wait() -> None:
    """A remote read that ends too late for one fetch serves the next one."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        cluster.world.tier.offload_seconds = (1.2, 1.2)
        async with asyncio.timeout(60):
            assert await values(client, 22) == list(range(22))

    with_tier(scenario, remote_log_reader_threads=1)


def test_remote_reads_beyond_the_limit_of_pending_tasks_are_refused() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        for name in ("u", "v"):
            await create(client, name, configs=TIERED)
            await write(client, 22, name)
        await filled(cluster, client)
        logs = [cluster.brokers[1].partitions.get(name, 0).online_log for name in ("u", "v")]
        await until(lambda: all(log.local_log_start_offset == 20 for log in logs))
        cluster.world.tier.offload_seconds = HANGS
        answer = await fetch(client, {("t", 0): 0, ("u", 0): 0, ("v", 0): 0})
        assert {topic: one.error for (topic, _), one in answer.partitions.items()} == {
            "t": ErrorCode.NONE,
            "u": ErrorCode.NONE,
            "v": ErrorCode.UNKNOWN_SERVER_ERROR,
        }

    with_tier(scenario, remote_log_reader_threads=1, remote_log_reader_max_pending_tasks=1)


def test_the_quota_throttles_readers_of_the_tier() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        found, seconds = await timed(cluster, values(client, 22))
        assert found == list(range(22))
        assert seconds > 5
        _, seconds = await timed(cluster, fetch(client, {("t", 0): 20}))
        assert seconds < 0.1
        assert cluster.brokers[1].metrics.value("kafka_server_remotelogmanager_remote_fetch_throttle_time") > 0

    with_tier(scenario, remote_log_manager_fetch_max_bytes_per_second=300)


def test_records_that_are_written_while_a_session_waits_for_the_tier_are_returned() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "local")
        await filled(cluster, client)
        cluster.world.tier.offload_seconds = (0.3, 0.3)
        waiting = asyncio.create_task(fetch(client, {("t", 0): 0, ("local", 0): 0}, session=(0, 0)))
        await asyncio.sleep(0.1)
        await write(client, 2, "local")
        first = await waiting
        assert (first.partitions["t", 0].values, first.session > 0) == ([], True)
        read = first.partitions["local", 0].values
        epoch = 1
        while len(read) < 2 or epoch < 3:
            answer = await fetch(client, {("local", 0): len(read)}, session=(first.session, epoch))
            read += answer.partitions["local", 0].values if ("local", 0) in answer.partitions else []
            epoch += 1
        assert read == [0, 1]

    with_tier(scenario)


def test_a_change_of_the_leader_ends_the_wait_for_the_tier() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        await until(lambda: len(partition_image(cluster).isr) == 2 and bases(cluster, 2) == [20])
        old = int(partition_image(cluster).leader)
        other = 3 - old
        cluster.world.tier.offload_seconds = HANGS
        epoch = int(partition_image(cluster).leader_epoch)
        waiting = asyncio.create_task(timed(cluster, fetch(client, {("t", 0): 0}, broker=old, epoch=epoch)))
        await asyncio.sleep(0.1)
        assert await replicas.alter_reassignments(client, {("t", 0): (other,)}) == {("t", 0): None}
        answer, seconds = await waiting
        assert answer.partitions["t", 0].error in (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        assert seconds < 20

    with_tier(scenario, brokers=2, remote_fetch_max_wait_ms=60_000)


def test_deleting_a_topic_ends_its_remote_reads_with_an_error() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        cluster.world.tier.offload_seconds = HANGS
        waiting = asyncio.create_task(timed(cluster, fetch(client, {("t", 0): 0})))
        await asyncio.sleep(0.1)
        assert await admin.delete_topics(client, ["t"]) == {"t": None}
        answer, seconds = await waiting
        assert answer.partitions["t", 0].error in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert seconds < 5

    with_tier(scenario, remote_fetch_max_wait_ms=60_000)


@pytest.mark.parametrize("seed", range(2))
def test_followers_serve_records_from_the_tier(seed: int) -> None:
    """KIP-392."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        await until(lambda: all(bases(cluster, number) == [20] for number in (1, 2, 3)))
        for number in (1, 2, 3):
            await until(lambda number=number: len(finished(cluster, number)) == 5)  # type: ignore[misc]
            read: list[int] = []
            while len(read) < 20:
                answer = await fetch(client, {("t", 0): len(read)}, broker=number)
                assert answer.partitions["t", 0].error is ErrorCode.NONE
                read += answer.partitions["t", 0].values
            assert read == list(range(20))

    with_tier(scenario, brokers=3, seed=seed)


def test_timestamp_searches_find_offsets_in_the_local_log_and_the_tier() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        clock = cluster.brokers[1].runtime.clock
        times = []
        for number in range(22):
            times.append(clock.time_ms())
            await write(client, 1, first=number)
            await asyncio.sleep(0.05)
        await until(lambda: bases(cluster) == [20])
        for number, time in enumerate(times):
            assert (await find_offset(client, "t", 0, time)).offset == number
        assert (await find_offset(client, "t", 0, 0)).offset == 0
        assert (await find_offset(client, "t", 0, clock.time_ms())).offset == -1
        special = {timestamp: (await find_offset(client, "t", 0, timestamp)).offset for timestamp in range(-6, 0)}
        assert special == {-1: 22, -2: 0, -3: 21, -4: 20, -5: 19, -6: 20}
        cluster.world.tier.offload_seconds = HANGS
        waiting = asyncio.create_task(find_offset(client, "t", 0, times[12]))
        await asyncio.sleep(0.1)
        assert (await find_offset(client, "t", 0, -4)).offset == 20
        await write(client, 1, first=22)
        assert log_of(cluster).log_end_offset == 23
        waiting.cancel()

    with_tier(scenario)


def test_no_offset_is_out_of_range_while_segments_are_deleted_locally() -> None:
    """KAFKA-16073."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = asyncio.create_task(write(client, 60))
        log, seen = log_of(cluster), set[int]()
        while not writing.done() or log.local_log_start_offset < 56:
            await asyncio.sleep(0.005)
            seen.add(log.local_log_start_offset)
            for offset in {
                0,
                log.local_log_start_offset - 1,
                log.local_log_start_offset,
                log.local_log_start_offset + 1,
            }:
                if 0 <= offset < log.high_watermark:
                    answer = (await fetch(client, {("t", 0): offset})).partitions["t", 0]
                    assert (answer.error, offset in answer.values) == (ErrorCode.NONE, True)
        assert len(seen) > 5

    with_tier(scenario, log_retention_check_interval_ms=20, remote_log_manager_task_interval_ms=20)


@pytest.mark.parametrize("seed", range(2))
def test_despite_faults_of_brokers_and_tier_a_consumer_reads_every_record_once_and_in_order(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        random = Random(seed)
        reading = asyncio.create_task(read_all(client, 200))
        writing = asyncio.create_task(write(client, 200))
        while not reading.done():
            await trouble(cluster, random)
            await asyncio.sleep(random.uniform(0, 1))
        await writing
        assert await reading == list(range(200))
        assert await values(client, 200) == list(range(200))

    with_tier(
        scenario,
        seed=seed,
        brokers=3,
        configs={"min.insync.replicas": "2"},
        rlmm_config_remote_log_metadata_topic_replication_factor=3,
        rlmm_config_remote_log_metadata_topic_min_isr=2,
        remote_log_manager_task_interval_ms=100,
        log_retention_check_interval_ms=100,
    )


async def trouble(cluster: SimulatedCluster, random: Random) -> None:
    """Let the tier fail or be slow, or a broker be down, for a while."""
    tier = cluster.world.tier
    usual = tier.offload_seconds
    match random.randrange(4):
        case 0:
            tier.fail(TIER, errno.EIO, operation=random.choice(["", "read", "write"]))
        case 1:
            tier.offload_seconds = (0.0, random.uniform(0.1, 2))
        case 2:
            number = random.choice([1, 2, 3])
            await cluster.kill(host_of(number))
            await asyncio.sleep(random.uniform(0, 2))
            await cluster.start_broker(number)
            await until(lambda: len(partition_image(cluster).isr) == 3)
    await asyncio.sleep(random.uniform(0, 2))
    tier.heal()
    tier.offload_seconds = usual


async def read_all(client: Cluster, count: int) -> list[int]:
    """Like ``steps.values``, but retry after UNKNOWN_SERVER_ERROR, as a consumer does."""
    consumer, found = Consumer(client), list[int]()
    consumer.assign({("t", 0): 0})
    while len(found) < count:
        try:
            found += [int(record.value or b"-1") for record in await consumer.poll(1)]
        except KafkaError as error:
            assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await consumer.close()
    return found
