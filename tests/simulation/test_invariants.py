"""The invariants of a simulated cluster: a correct cluster has no violations, and planted violations are found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.invariants.broken import InvariantBroken
from milena.lab.world.world import World, simulate
from milena.node.metadata.image import TopicImage
from milena.protocol.types import LeaderEpoch, NodeId, Offset, PartitionEpoch
from milena.storage.log.unified_log import UnifiedLog
from tests.simulation.steps import QUICK, create, partition_image, until, write

RECORDS = 5


def log_of(cluster: SimulatedCluster, broker: int) -> UnifiedLog:
    log = cluster.brokers[broker].partitions.get("t", 0).log
    assert log is not None
    return log


def run(plant: Callable[[SimulatedCluster], None] | None) -> None:
    """Create three replicas with some records, plant a violation, and return what the check finds."""

    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 3, QUICK, watched=True)
        async with cluster.client() as client:
            await create(client, replicas=3)
            await write(client, RECORDS)
            await until(lambda: all(log_of(cluster, number).high_watermark == RECORDS for number in (1, 2, 3)))
            if plant is not None:
                plant(cluster)
            await asyncio.sleep(0.1)
            assert cluster.watch is not None
            cluster.watch.check_all()

    simulate(scenario, seed=1)


def follower(cluster: SimulatedCluster) -> int:
    return next(number for number in cluster.brokers if number != partition_image(cluster).leader)


def changed_bytes(cluster: SimulatedCluster) -> None:
    log = log_of(cluster, follower(cluster))
    files = cluster.world.machine(host_of(follower(cluster))).storage.files
    files[f"{log.folder}/{0:020d}.log"].data[17] ^= 1


def high_watermark_beyond_the_end(cluster: SimulatedCluster) -> None:
    log = log_of(cluster, follower(cluster))
    log._high_watermark = Offset(log.log_end_offset + 1)
    cluster.brokers[follower(cluster)].partitions.get("t", 0).changed()


def two_leaders(cluster: SimulatedCluster) -> None:
    partition = cluster.brokers[follower(cluster)].partitions.get("t", 0)
    partition.is_leader = True
    partition.changed()


def missing_records(cluster: SimulatedCluster) -> None:
    log = log_of(cluster, follower(cluster))
    log.set_high_watermark(Offset(2))
    log.truncate_to(Offset(2))


def other_metadata(cluster: SimulatedCluster) -> None:
    image = cluster.brokers[1].image
    topic = image.topics["t"]
    other = replace(topic.partitions[0], leader=NodeId(follower(cluster)))
    image.topics["t"] = TopicImage("t", topic.id, {0: other})


def high_watermark_of_the_leader_back(cluster: SimulatedCluster) -> None:
    leader = int(partition_image(cluster).leader)
    cluster.brokers[leader].partitions.get("t", 0).changed()
    assert cluster.watch is not None
    cluster.watch.after_event()
    log_of(cluster, leader).set_high_watermark(Offset(2))
    cluster.brokers[leader].partitions.get("t", 0).changed()


def leader_epoch_back(cluster: SimulatedCluster) -> None:
    partition = cluster.brokers[follower(cluster)].partitions.get("t", 0)
    partition.registration.leader_epoch = LeaderEpoch(partition.leader_epoch - 1)
    partition.changed()


def test_a_cluster_under_load_has_no_violations() -> None:
    run(None)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (changed_bytes, "is committed where"),
        (high_watermark_beyond_the_end, "out of order"),
        (high_watermark_of_the_leader_back, "the leader's high watermark is 2 after 5"),
        (leader_epoch_back, "leader epoch -1 after 0"),
        (two_leaders, "it leads in leader epoch 0, in which broker"),
        (missing_records, r"in the ISR of broker \d, its log ends at 2|its log ends at 2, 5 is committed"),
        (other_metadata, "the controller had"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_planted_violation_is_found(plant: Callable[[SimulatedCluster], None], text: str) -> None:
    with pytest.raises(InvariantBroken, match=text):
        run(plant)


def test_adding_an_earlier_incarnation_to_the_isr_is_found() -> None:
    """The test writes into the metadata what the controller refuses (KIP-903). The new incarnation has an empty log."""

    async def scenario(world: World) -> None:
        cluster = await start_cluster(world, 3, QUICK, watched=True)
        async with cluster.client() as client:
            await create(client, replicas=3)
            await write(client, RECORDS)
            wiped, leader = follower(cluster), int(partition_image(cluster).leader)
            await cluster.kill(host_of(wiped))
            cluster.wipe(host_of(wiped))
            await until(lambda: wiped not in partition_image(cluster).isr, 30)
            world.fabric.cut(host_of(wiped), host_of(leader))
            await cluster.start_broker(wiped)
            await until(lambda: cluster.brokers[wiped].partitions.find("t", 0) is not None, 30)
            assert cluster.controller is not None
            image, before = cluster.controller.state.image, partition_image(cluster)
            joined = replace(
                before,
                isr=(*before.isr, NodeId(wiped)),
                partition_epoch=PartitionEpoch(before.partition_epoch + 1),
            )
            image.topics["t"] = TopicImage("t", image.topics["t"].id, {0: joined})
            await create(client, "another")

    with pytest.raises(InvariantBroken, match="has joined the ISR: its log ends at 0, 5 is committed"):
        simulate(scenario, seed=1)
