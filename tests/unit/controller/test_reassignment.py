"""Reassignments: begun, changed, cancelled and completed (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import Any

import pytest

from milena.controller.commands.brokers import unregister
from milena.controller.commands.reassignment import Target, alter_reassignments, ongoing
from milena.lab.world.world import simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.metadata_records import ConfigRecord, PartitionChangeRecord
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.proposals import propose
from tests.unit.controller.simulated import Site, scenario


def on(*replicas: int, isr: tuple[int, ...] | None = None, brokers: int = 5) -> Cluster:
    """Brokers, and a partition on ``replicas`` that are all in sync where ``isr`` does not say otherwise."""
    cluster = Cluster(brokers)
    topic = cluster.assign_topic(*replicas)
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=isr or replicas)])
    return cluster


def reassign(
    cluster: Cluster, *replicas: int, cancel: bool = False, name: str = "t", number: int = 0, **options: bool
) -> str:
    target = Target(number, None if cancel else [NodeId(r) for r in replicas])
    ((_, ((_, error),)),) = cluster.commit(alter_reassignments(cluster.state, [(name, [target])], **options))
    return error.code.name if error else "NONE"


def plan(cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = cluster.partition()
    return partition.replicas, partition.adding, partition.removing


def test_new_replicas_come_first_and_old_ones_stay_until_all_new_ones_are_in_sync() -> None:
    cluster = on(1, 2, 3)
    before = cluster.partition()
    assert reassign(cluster, 4, 5, 1) == "NONE"
    assert plan(cluster) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert cluster.partition().leader_epoch == before.leader_epoch
    assert propose(cluster, 1, 2, 3, 4).code is ErrorCode.NONE
    assert plan(cluster) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert propose(cluster, 1, 2, 3, 4, 5).code is ErrorCode.NONE
    after = cluster.partition()
    assert (plan(cluster), after.isr, after.leader) == (((4, 5, 1), (), ()), (1, 4, 5), 1)
    assert after.leader_epoch == before.leader_epoch + 1, "replicas that have gone must not fetch on"


@pytest.mark.parametrize("target", [(3, 2, 1), (2, 1, 3)])
def test_another_order_takes_effect_at_once(target: tuple[int, ...]) -> None:
    cluster = on(1, 2, 3)
    assert reassign(cluster, *target) == "NONE"
    assert (plan(cluster), cluster.partition().leader) == ((target, (), ()), 1)


def test_removing_replicas_alone_ends_at_once_where_the_others_are_in_sync() -> None:
    cluster = on(1, 2, 3)
    assert reassign(cluster, 2, 3) == "NONE"
    after = cluster.partition()
    assert (plan(cluster), after.isr, after.leader) == (((2, 3), (), ()), (2, 3), 2)


def test_removing_replicas_alone_waits_for_those_that_stay() -> None:
    cluster = on(1, 2, 3, isr=(1,))
    assert reassign(cluster, 2, 3) == "NONE"
    assert plan(cluster) == ((2, 3, 1), (), (1,))
    assert propose(cluster, 1, 2).code is ErrorCode.NONE
    assert plan(cluster) == ((2, 3, 1), (), (1,)), "the replication factor falls: all that stay must be in sync"
    assert propose(cluster, 1, 2, 3).code is ErrorCode.NEW_LEADER_ELECTED
    assert (plan(cluster), cluster.partition().leader) == (((2, 3), (), ()), 2)


def test_what_is_already_so_changes_nothing() -> None:
    cluster = on(1, 2, 3)
    before = cluster.state.next_offset
    assert reassign(cluster, 1, 2, 3) == "NONE"
    assert cluster.state.next_offset == before


def test_cancelling_goes_back_to_the_former_replicas() -> None:
    cluster = on(1, 2, 3)
    reassign(cluster, 4, 5, 1)
    propose(cluster, 1, 2, 3, 4)
    assert reassign(cluster, cancel=True) == "NONE"
    assert sorted(cluster.partition().replicas) == [1, 2, 3]
    assert (plan(cluster)[1:], cluster.partition().isr) == (((), ()), (1, 2, 3))
    assert reassign(cluster, cancel=True) == "NO_REASSIGNMENT_IN_PROGRESS"


def test_cancelling_must_not_lose_data_unless_that_is_allowed() -> None:
    cluster = on(1, 2, 3)
    topic = cluster.state.image.topics["t"].id
    reassign(cluster, 4, 5, 1)
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=(4,), leader=4)])
    assert reassign(cluster, cancel=True) == "INVALID_REPLICA_ASSIGNMENT"
    key = "unclean.leader.election.enable"
    cluster.write([ConfigRecord(resource_type=2, resource_name="t", name=key, value="true")])
    assert reassign(cluster, cancel=True) == "NONE"
    assert (cluster.partition().isr, cluster.partition().leader) == ((1,), 1)


def test_a_plan_may_be_changed_on_its_way() -> None:
    cluster = on(1, 2, 3)
    reassign(cluster, 1, 2, 4)
    assert plan(cluster) == ((1, 2, 4, 3), (4,), (3,))
    assert reassign(cluster, 1, 2, 5) == "NONE"
    assert plan(cluster) == ((1, 2, 5, 3, 4), (5,), (3, 4))


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((), "INVALID_REPLICA_ASSIGNMENT"),
        ((1, 1), "INVALID_REPLICA_ASSIGNMENT"),
        ((1, 9), "INVALID_REPLICA_ASSIGNMENT"),
        ((1, 2), "INVALID_REPLICATION_FACTOR"),
        ((1, 2, 3, 4), "INVALID_REPLICATION_FACTOR"),
        ((1, 2, 4), "NONE"),
    ],
)
def test_targets_are_checked(target: tuple[int, ...], error: str) -> None:
    cluster = on(1, 2, 3)
    before = cluster.state.next_offset
    assert reassign(cluster, *target, allow_factor_change=False) == error
    assert (cluster.state.next_offset == before) == (error != "NONE")


def test_the_replication_factor_is_that_of_the_plan() -> None:
    """KIP-860."""
    cluster = on(1, 2, 3)
    reassign(cluster, 1, 2, 4, 5)
    assert reassign(cluster, 1, 2, 3, allow_factor_change=False) == "INVALID_REPLICATION_FACTOR"
    assert reassign(cluster, 1, 2, 3, 4, allow_factor_change=False) == "NONE"


@pytest.mark.parametrize(("name", "number"), [("none", 0), ("t", 7)])
def test_what_there_is_not_cannot_be_reassigned(name: str, number: int) -> None:
    assert reassign(on(1, 2, 3), 1, name=name, number=number) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_what_goes_on_is_listed() -> None:
    cluster = on(1, 2, 3)
    cluster.assign_topic(1, 2, name="other")
    reassign(cluster, 1, 2, 4)
    assert ongoing(cluster.state, None) == [("t", [(0, cluster.partition())])]
    assert ongoing(cluster.state, [("t", [0, 1]), ("other", [0]), ("none", [0])]) == [("t", [(0, cluster.partition())])]
    assert ongoing(cluster.state, []) == []
    reassign(cluster, cancel=True)
    assert ongoing(cluster.state, None) == []


def test_an_unregistered_broker_leaves_every_isr() -> None:
    cluster = on(1, 2, 3)
    cluster.commit(unregister(cluster.state, 1))
    after = cluster.partition()
    assert (after.leader, after.isr, 1 in cluster.state.image.brokers) == (2, (2, 3), False)


@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_over_the_wire(version: int) -> None:
    async def steps(site: Site) -> None:
        for broker in (1, 2):
            await site.register(broker)
        assignment = [{"partition_index": 0, "broker_ids": [1]}]
        await site.create("t", num_partitions=-1, replication_factor=-1, assignments=assignment)

        async def alter(replicas: list[int] | None) -> int:
            strict: dict[str, Any] = {"allow_replication_factor_change": False} if version else {}
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": replicas}]}]
            answer = await site.ask(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, timeout_ms=1000, topics=topics, **strict
            )
            assert answer.error_code == 0
            code: int = answer.responses[0].partitions[0].error_code
            return code

        async def listed(topics: list[dict[str, Any]] | None) -> list[Any]:
            answer = await site.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, timeout_ms=1000, topics=topics)
            return [
                (t.name, p.replicas, p.adding_replicas, p.removing_replicas)
                for t in answer.topics
                for p in t.partitions
            ]

        assert await alter([2, 1]) == (ErrorCode.INVALID_REPLICATION_FACTOR if version else 0)
        assert await alter([2]) == 0
        expected = [("t", (2, 1), (2,), (1,))]
        assert await listed(None) == await listed([{"name": "t", "partition_indexes": [0]}]) == expected
        assert await listed([]) == []
        assert await alter(None) == 0
        assert await listed(None) == []
        assert await alter(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    simulate(scenario(steps), seed=54)


def test_brokers_are_unregistered_over_the_wire() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        assert (await site.ask(ApiKey.UNREGISTER_BROKER, broker_id=1)).error_code == 0
        assert site.controller.state.image.brokers == {}
        again = await site.ask(ApiKey.UNREGISTER_BROKER, broker_id=1)
        assert (again.error_code, again.error_message) == (
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Broker 1 is not registered.",
        )

    simulate(scenario(steps), seed=55)
