"""A former leader that does not know of its successor deletes no segment that the current leader serves."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from milena.broker.hosting.applier import PARTITIONS_PER_ITERATION
from milena.broker.replica.partition import Partition
from milena.client import admin
from milena.client.cluster import Cluster
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of
from milena.node.links.outgoing import ChannelError
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from milena.tiered.work import deletion_withdrawal
from milena.tiered.work.deletion import announce_deletion
from milena.tiered.work.fencing import accepted
from tests.simulation.steps import partition_image, seeds, until, values, write
from tests.simulation.tiered_topics import (
    bases,
    finished,
    in_tier,
    known_segments,
    log_of,
    replica,
    role_of,
    with_tier,
)

A, B, C = 1, 2, 3
EXPIRY = 20.0


async def with_other_retention(cluster: SimulatedCluster, client: Cluster) -> None:
    """Wait until another broker leads, and set unlimited retention."""
    await until(lambda: int(partition_image(cluster).leader) in (B, C), 30)
    while True:
        try:
            await admin.alter_configs(client, TOPIC_RESOURCE, "t", {"retention.ms": "-1"})
            return
        except (KafkaError, ChannelError):  # the broker that was asked is cut off
            await asyncio.sleep(0.5)


async def all_in_tier(cluster: SimulatedCluster, client: Cluster) -> None:
    await write(client, 10)
    await until(lambda: all(bases(cluster, number) == [8] for number in (A, B, C)))
    assert finished(cluster, B) == [(0, 3), (4, 7)]


async def everything_is_served(cluster: SimulatedCluster, client: Cluster) -> None:
    assert in_tier(cluster)[:2] == [0, 4]
    leader = int(partition_image(cluster).leader)
    assert finished(cluster, leader)[:2] == [(0, 3), (4, 7)]
    assert log_of(cluster, leader).log_start_offset == 0
    assert await values(client, 10) == list(range(10))


@pytest.mark.parametrize("seed", seeds(3))
def test_a_leader_whose_session_has_expired_deletes_nothing_from_the_tier(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await all_in_tier(cluster, client)
        cluster.world.fabric.cut(host_of(A), CONTROLLER)
        await with_other_retention(cluster, client)
        await asyncio.sleep(2 * EXPIRY)
        assert replica(cluster, A).is_leader, "it must believe so"
        assert log_of(cluster, A).log_start_offset == 0, "it may lead again"
        cluster.world.fabric.heal(host_of(A), CONTROLLER)
        await until(lambda: not replica(cluster, A).is_leader, 30)
        await everything_is_served(cluster, client)

    with_tier(scenario, seed=seed, brokers=3, configs=CONFIGS, **METADATA)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_leader_that_was_paused_reads_the_metadata_before_it_deletes(seed: int) -> None:
    """The first heartbeat after the pause is answered before the metadata arrives."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await all_in_tier(cluster, client)
        cluster.world.machine(host_of(A)).pause()
        await with_other_retention(cluster, client)
        await asyncio.sleep(2 * EXPIRY)
        cluster.world.machine(host_of(A)).resume()
        await until(lambda: not replica(cluster, A).is_leader, 30)
        await everything_is_served(cluster, client)

    with_tier(scenario, seed=seed, brokers=3, configs=CONFIGS, **METADATA)


@pytest.mark.parametrize("republishes", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_a_leader_that_was_paused_before_the_unlink_deletes_only_a_republished_segment(
    seed: int, republishes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its DELETE_SEGMENT_STARTED was accepted. Its successor, which would not delete the segment, has published it
    again under another id. Without that (the control experiment) the records are lost."""
    if not republishes:
        monkeypatch.setattr(deletion_withdrawal, "unjustified", lambda *_, **__: [])

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await all_in_tier(cluster, client)
        tier, role, first = cluster.brokers[A].tier, role_of(cluster, A), known_segments(cluster, A).segments()[0]
        assert tier is not None
        await announce_deletion(tier.tier, first, role.leader_epoch)
        accepted(tier.tier, first, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, role.leader_epoch)
        cluster.world.machine(host_of(A)).pause()
        await until(lambda: int(partition_image(cluster).leader) in (B, C), 30)
        leader = int(partition_image(cluster).leader)
        if republishes:
            await until(lambda: in_tier(cluster)[:2] == [0, 4] and first.id not in ids(cluster, leader), 60)
        else:
            await until(lambda: log_of(cluster, leader).log_start_offset == 4, 60)
        cluster.world.machine(host_of(A)).resume()
        await tier.tier.storage.delete(first)
        await until(lambda: not replica(cluster, A).is_leader, 30)
        if republishes:
            await everything_is_served(cluster, client)
        else:
            assert in_tier(cluster)[0] == 4

    with_tier(scenario, seed=seed, brokers=3, **METADATA)


def ids(cluster: SimulatedCluster, broker: int) -> set[UUID]:
    return {one.id for one in known_segments(cluster, broker).segments()}


def test_a_broker_is_not_in_session_until_all_its_roles_follow_its_metadata() -> None:
    """Role changes of many partitions are applied in slices, between which the tasks of former leaders still run."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        count = 5 * PARTITIONS_PER_ITERATION
        wide = admin.NewTopic("wide", assignments=dict.fromkeys(range(count), (A, B)))
        assert await admin.create_topics(client, [wide]) == {"wide": None}
        broker, tier = cluster.brokers[A], cluster.brokers[A].tier
        assert tier is not None

        def led() -> int:
            found = (broker.partitions.find("wide", index) for index in range(count))
            return sum(one is not None and one.is_leader for one in found)

        await until(lambda: led() == count, 30)
        cluster.world.machine(host_of(A)).pause()
        await until(lambda: int(partition_image(cluster, "wide").leader) == B, 30)
        seen: dict[int, bool] = {}
        take_up = tier.take_up

        def watched(taken: Partition) -> None:
            take_up(taken)
            seen[led()] = tier.tier.in_session()

        tier.take_up = watched  # type: ignore[method-assign, assignment]
        cluster.world.machine(host_of(A)).resume()
        await until(lambda: not led(), 30)
        assert set(range(count)) <= set(seen) and not any(seen[left] for left in range(1, count))
        await until(tier.tier.in_session, 30)

    with_tier(scenario, brokers=3, **METADATA)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_leader_that_is_cut_off_for_less_than_its_session_still_deletes(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await all_in_tier(cluster, client)
        cluster.world.fabric.cut(host_of(A), CONTROLLER)
        await asyncio.sleep(1)
        cluster.world.fabric.heal(host_of(A), CONTROLLER)
        await until(lambda: in_tier(cluster) == [], 2 * EXPIRY)
        assert replica(cluster, A).is_leader

    with_tier(scenario, seed=seed, brokers=3, configs=CONFIGS, **METADATA)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_log_begins_with_its_local_records_if_remote_storage_is_disabled_without_a_leader(seed: int) -> None:
    """The next leader was a follower when the change came. Else it would send readers to offsets that no broker has."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await all_in_tier(cluster, client)
        cluster.world.machine(host_of(A)).pause()
        await switched_off(client)
        assert int(partition_image(cluster).leader) == A
        await until(lambda: int(partition_image(cluster).leader) in (B, C), 30)
        leader = int(partition_image(cluster).leader)
        await until(lambda: replica(cluster, leader).is_leader)
        assert log_of(cluster, leader).log_start_offset == 8
        cluster.world.machine(host_of(A)).resume()
        await until(lambda: all(log_of(cluster, number).log_start_offset == 8 for number in (A, B, C)), 30)

    with_tier(scenario, seed=seed, brokers=3, **METADATA)


async def switched_off(client: Cluster) -> None:
    """Disable remote storage with a request to broker B."""
    channel = client.to(host_of(B), 9092)
    await channel.connect()
    configs = [{"name": "remote.storage.enable", "config_operation": 0, "value": "false"}]
    configs += [{"name": "remote.log.delete.on.disable", "config_operation": 0, "value": "true"}]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "t", "configs": configs}
    await channel.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)


CONFIGS = {"retention.ms": str(int(EXPIRY * 1000))}
METADATA: dict[str, Any] = {
    "rlmm_config_remote_log_metadata_topic_replication_factor": 3,
    "rlmm_config_remote_log_metadata_topic_min_isr": 1,
}
