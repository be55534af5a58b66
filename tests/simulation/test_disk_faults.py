"""Full and broken disks of simulated nodes: what goes offline, what keeps serving, and that no data is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.producer import OutcomeUnknown, Producer
from milena.lab.cluster import CONTROLLER, NodeEnded, SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from tests.simulation.steps import (
    DIRS,
    METADATA_DIR,
    OF_BROKERS,
    QUICK,
    broker_image,
    create,
    directory_of,
    partition_image,
    produce_once,
    seeds,
    storage_of,
    until,
    values,
    write,
)

RECORDS = 30
LAG_SECONDS = 30
"""The default of ``replica.lag.time.max.ms`` in seconds."""


@dataclass(frozen=True)
class Fault:
    """How the directory of ``t-0`` fails. ``path`` is below that directory."""

    name: str
    number: int
    operation: str
    path: str = "t-0"
    configs: dict[str, str] = field(default_factory=dict)
    by_writing: bool = True
    """Whether appending a record finds the fault; else a periodic task finds it."""


FAULTS = [
    Fault("append to a full disk", errno.ENOSPC, "append"),
    Fault("append", errno.EIO, "append"),
    Fault("sync", errno.EIO, "sync", configs={"flush.messages": "1"}),
    Fault("begin a segment", errno.ENOSPC, "open", configs={"internal.segment.bytes": "6000"}),
    Fault("write a checkpoint", errno.EIO, "", "recovery-point-offset-checkpoint", by_writing=False),
    Fault("write a checkpoint on a full disk", errno.ENOSPC, "", "replication-offset-checkpoint", by_writing=False),
]


def on_a_cluster(
    scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]], *, brokers: int = 1, seed: int = 1
) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, brokers, QUICK, of_brokers=OF_BROKERS)
        async with cluster.client() as client:
            await scenario(cluster, client)

    simulate(run, seed=seed)


async def break_directory(cluster: SimulatedCluster, client: Cluster, fault: Fault) -> str:
    """Let the directory of ``t-0`` on broker 1 fail, wait until it is offline, and return its path."""
    broken = directory_of(cluster, 1)
    storage_of(cluster, 1).fail(f"{broken}/{fault.path}", fault.number, operation=fault.operation)
    if fault.by_writing:
        code = ErrorCode.NONE
        for _ in range(100):
            code = await produce_once(client, 1)
            if code is not ErrorCode.NONE:
                break
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        await write(client, 1, first=RECORDS)
    await until(lambda: bool(cluster.brokers[1].logs.offline_dirs), 120)
    assert [one.path for one in cluster.brokers[1].logs.offline_dirs] == [broken]
    return broken


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_only_the_failing_directory_goes_offline(fault: Fault) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, partitions=2, configs=fault.configs)
        await write(client, RECORDS)
        await write(client, RECORDS, partition=1)
        epoch = partition_image(cluster).leader_epoch
        broken = await break_directory(cluster, client, fault)
        assert directory_of(cluster, 1, partition=1) != broken

        # The controller knows of the failure: the partition has no leader, and keeps its ISR.
        await until(lambda: partition_image(cluster).leader == -1)
        lost = partition_image(cluster)
        assert (lost.isr, lost.leader_epoch) == ((1,), epoch + 1)
        online = cluster.brokers[1].logs.online_dirs
        assert list(broker_image(cluster, 1).log_dirs) == [one.directory_id for one in online]
        assert not broker_image(cluster, 1).fenced

        # Clients see no leader, and the partition in the other directory serves them.
        await until(lambda: cluster.brokers[1].image.topics["t"].partitions[0].leader == -1)
        view = (await client.metadata(["t"])).topics["t"].partitions
        assert (view[0].leader, view[0].offline, view[1].leader) == (-1, (1,), 1)
        assert await produce_once(client, 1) is ErrorCode.KAFKA_STORAGE_ERROR
        await write(client, RECORDS, partition=1, first=RECORDS)
        assert await values(client, 2 * RECORDS, partition=1) == list(range(2 * RECORDS))
        assert await directory_errors(client) == {broken: 56, **{one.path: 0 for one in online}}
        cluster.check_alive()

    on_a_cluster(scenario)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_acknowledged_records_are_there_when_the_disk_is_repaired(fault: Fault) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, partitions=2, configs=fault.configs)
        await write(client, RECORDS)
        epoch = partition_image(cluster).leader_epoch
        await break_directory(cluster, client, fault)
        await until(lambda: partition_image(cluster).leader == -1)
        storage_of(cluster, 1).heal()
        await cluster.kill(host_of(1))
        await cluster.start_broker(1)
        await until(lambda: partition_image(cluster).leader == 1)
        assert partition_image(cluster).leader_epoch > epoch + 1
        assert (await values(client, RECORDS))[:RECORDS] == list(range(RECORDS))
        assert await produce_once(client, 1) is ErrorCode.NONE

    on_a_cluster(scenario)


def test_a_replica_outside_of_the_isr_does_not_lead() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, replicas=2)
        leader = partition_image(cluster).leader
        await cluster.kill(host_of(3 - leader))
        await until(lambda: partition_image(cluster).isr == (leader,))
        storage_of(cluster, leader).fail(directory_of(cluster, leader), errno.EIO)
        assert await produce_once(client, leader) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: partition_image(cluster).leader == -1)
        await cluster.start_broker(3 - leader)
        assert partition_image(cluster).isr == (leader,)
        await asyncio.sleep(5)
        assert partition_image(cluster).leader == -1
        cluster.check_alive()

    on_a_cluster(scenario, brokers=2)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_failed_directory_of_a_follower_does_not_hold_up_the_others(seed: int) -> None:
    """All records are in flight at once, so that no later record can advance the high watermark."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, replicas=3, configs={"min.insync.replicas": "2"})
        await write(client, RECORDS)
        leader = partition_image(cluster).leader
        follower = next(broker for broker in (1, 2, 3) if broker != leader)
        storage_of(cluster, follower).fail(directory_of(cluster, follower), errno.EIO)
        begun = cluster.world.loop.time()
        await write(client, RECORDS, first=RECORDS)
        assert cluster.world.loop.time() - begun < LAG_SECONDS / 2
        assert follower not in partition_image(cluster).isr
        cluster.check_alive()

    on_a_cluster(scenario, brokers=3, seed=seed)


def test_an_unclean_election_elects_the_replica_outside_of_the_isr() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, replicas=2, configs={"unclean.leader.election.enable": "true"})
        leader = partition_image(cluster).leader
        epoch = partition_image(cluster).leader_epoch
        storage_of(cluster, leader).fail(directory_of(cluster, leader), errno.EIO)
        assert await produce_once(client, leader) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: partition_image(cluster).leader == 3 - leader)
        after = partition_image(cluster)
        assert (after.isr, after.leader_epoch) == ((3 - leader,), epoch + 1)
        await write(client, RECORDS)
        assert await values(client, RECORDS) == list(range(RECORDS))

    on_a_cluster(scenario, brokers=2)


def test_new_partitions_are_placed_in_a_directory_that_is_online() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client)
        broken = await break_directory(cluster, client, FAULTS[0])
        await create(client, "new", partitions=3)
        for partition in range(3):
            await write(client, 1, "new", partition)
            assert directory_of(cluster, 1, "new", partition) != broken

    on_a_cluster(scenario)


def test_a_broker_ends_when_its_last_directory_fails() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, partitions=2)
        for directory in DIRS:
            storage_of(cluster, 1).fail(directory, errno.EIO)
        producer = Producer(client, request_timeout=1, delivery_timeout=5)
        futures = [await producer.enqueue("t", b"v", partition=number) for number in range(2)]
        for future in futures:
            with pytest.raises(OutcomeUnknown):
                await future
        await producer.close()
        machine = cluster.world.machine(host_of(1))
        assert not machine.alive
        assert [text for text, _ in machine.failures] == ["all log directories have failed"]
        await until(lambda: broker_image(cluster, 1).fenced)

    on_a_cluster(scenario)


def test_a_broker_ends_when_its_metadata_log_fails_and_loses_no_records() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client)
        await write(client, RECORDS)
        storage_of(cluster, 1).fail(METADATA_DIR, errno.EIO)
        with suppress(ChannelError):  # the broker ends before it has read the change that it forwarded
            await admin.create_topics(client, [admin.NewTopic("u")])
        machine = cluster.world.machine(host_of(1))
        await until(lambda: not machine.alive)
        assert [text for text, _ in machine.failures] == ["the metadata log has failed"]
        storage_of(cluster, 1).heal()
        await cluster.start_broker(1)
        assert await values(client, RECORDS) == list(range(RECORDS))
        assert (await client.topic("u", fresh=True)).error == 0

    on_a_cluster(scenario)


@pytest.mark.parametrize("operation", ["append", "sync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_the_controller_ends_when_its_log_fails_and_loses_no_metadata(operation: str, number: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client)
        await write(client, RECORDS)
        machine = cluster.world.machine(CONTROLLER)
        machine.storage.fail("/data/__cluster_metadata-0", number, operation=operation)
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await admin.create_topics(client, [admin.NewTopic("u")])
        assert not machine.alive
        assert "the metadata log cannot be" in machine.failures[0][0]
        # Brokers keep serving with the metadata that they have.
        await write(client, RECORDS, first=RECORDS)
        machine.storage.heal()
        await cluster.start_controller()
        await create(client, "v")
        assert await values(client, 2 * RECORDS) == list(range(2 * RECORDS))
        assert partition_image(cluster, "v").leader == 1

    on_a_cluster(scenario)


def test_a_controller_does_not_start_on_a_broken_disk_and_reports_the_reason() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await cluster.kill(CONTROLLER)
        cluster.world.machine(CONTROLLER).storage.fail("/data", errno.EIO)
        with pytest.raises(NodeEnded, match="Input/output error: '/data"):
            await cluster.start_controller()

    on_a_cluster(scenario)


def test_a_broker_that_cannot_report_a_failed_directory_to_the_controller_ends() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, partitions=2)
        cluster.world.fabric.cut(host_of(1), CONTROLLER)
        await break_directory(cluster, client, FAULTS[0])
        machine = cluster.world.machine(host_of(1))
        await asyncio.sleep(28)
        assert machine.alive
        await until(lambda: not machine.alive, 5)
        ((text, _),) = machine.failures
        assert text.startswith("the failure of log directory /")
        assert f"could not be reported to the controller at {CONTROLLER}:" in text

    on_a_cluster(scenario)


async def directory_errors(client: Cluster) -> dict[str, int]:
    """The error code of each directory of broker 1 in a DescribeLogDirs response."""
    response = await client.to(host_of(1), 9092).request(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
    return {result.log_dir: int(result.error_code) for result in response.results}
