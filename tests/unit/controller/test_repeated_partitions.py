"""A partition that stands twice in one request: all are computed on one image, so that only one may be written."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.controller.commands.alter_partition import Proposal, alter_partitions
from milena.controller.commands.directories import assign
from milena.controller.commands.leader_elections import elect_leaders
from milena.controller.commands.reassignment import Target, alter_reassignments
from milena.protocol.errors import ErrorCode
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import LOST_DIR, NodeId
from tests.unit.controller.cluster import Cluster, directory


def on(*replicas: int) -> Cluster:
    cluster = Cluster(5)
    topic = cluster.assign_topic(*replicas)
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=tuple(NodeId(one) for one in replicas))])
    return cluster


def reassign(cluster: Cluster, *targets: tuple[int, ...] | None, name: str = "t") -> list[str]:
    wanted = [(name, [Target(0, None if one is None else [NodeId(r) for r in one])]) for one in targets]
    outcomes = cluster.commit(alter_reassignments(cluster.state, wanted))
    return [error.code.name if error else "NONE" for _, results in outcomes for _, error in results]


def plan(cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = cluster.partition()
    return partition.replicas, partition.adding, partition.removing


def test_the_last_target_of_a_reassignment_counts() -> None:
    cluster = on(1, 2)
    assert reassign(cluster, (3, 4), (5, 1)) == ["NONE", "NONE"]
    alone = on(1, 2)
    reassign(alone, (5, 1))
    assert plan(cluster) == plan(alone) == ((5, 1, 2), (5,), (2,))


def test_the_present_replicas_as_the_last_target_leave_things_as_they_are() -> None:
    cluster = on(1, 2)
    assert reassign(cluster, (3, 4), (1, 2)) == ["NONE", "NONE"]
    assert plan(cluster) == ((1, 2), (), ())


def test_a_last_target_that_cannot_be_does_not_count() -> None:
    cluster = on(1, 2)
    assert reassign(cluster, (3, 2), (9, 1), None) == [
        "NONE",
        "INVALID_REPLICA_ASSIGNMENT",
        "NO_REASSIGNMENT_IN_PROGRESS",
    ]
    assert plan(cluster) == ((3, 2, 1), (3,), (1,))


def test_a_leader_is_elected_once() -> None:
    cluster = on(2, 1)
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=cluster.state.image.topics["t"].id, leader=1)])
    before = cluster.partition().leader_epoch
    outcomes = cluster.commit(elect_leaders(cluster.state, 0, [("t", [0, 0]), ("t", [0])]))
    assert [error for _, results in outcomes for _, error in results] == [None] * 3
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (2, before + 1)


def test_of_two_proposals_of_an_isr_the_first_is_taken() -> None:
    cluster = on(1, 2, 3)
    present, brokers = cluster.partition(), cluster.state.image.brokers
    proposals = [
        Proposal(
            partition=0,
            leader_epoch=present.leader_epoch,
            partition_epoch=present.partition_epoch,
            isr=tuple((NodeId(member), brokers[member].epoch) for member in isr),
        )
        for isr in ((1, 2), (1, 3))
    ]
    topic_id = cluster.state.image.topics["t"].id
    ((_, outcomes),) = cluster.commit(alter_partitions(cluster.state, 1, brokers[1].epoch, [(topic_id, proposals)]))
    assert [outcome.code for outcome in outcomes] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert cluster.partition().isr == (1, 2)
    assert cluster.partition().partition_epoch == present.partition_epoch + 1


@pytest.mark.parametrize(
    ("directories", "leader"), [((directory(2), LOST_DIR), 3), ((LOST_DIR, directory(2)), 2)], ids=["lost", "found"]
)
def test_the_last_directory_of_a_replica_counts(directories: tuple[UUID, ...], leader: int) -> None:
    cluster = on(2, 3)
    topic = cluster.state.image.topics["t"].id
    epoch = cluster.state.image.brokers[2].epoch
    cluster.commit(assign(cluster.state, NodeId(2), epoch, {one: [(topic, 0)] for one in directories}))
    partition = cluster.partition()
    assert (partition.leader, partition.directory_of(NodeId(2))) == (leader, directories[-1])
    assert (2 in partition.isr) == (leader == 2)


def test_a_reassignment_does_not_end_with_the_replica_that_is_lost() -> None:
    """All that is added is in sync, as when the last of the ELR was elected: the next change would end it."""
    cluster = on(4, 2, 3)
    topic = cluster.state.image.topics["t"].id
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, adding_replicas=(3,), removing_replicas=(4,))])
    epoch = cluster.state.image.brokers[3].epoch
    cluster.commit(assign(cluster.state, NodeId(3), epoch, {LOST_DIR: [(topic, 0)]}))
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader, partition.adding) == ((4, 2, 3), (4, 2), 4, (3,))
