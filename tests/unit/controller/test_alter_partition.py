"""AlterPartition: every check in Kafka's order (docs/kafka-semantics.md: AlterPartition), and what a taken proposal
changes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from milena.controller.commands.alter_partition import alter_partitions
from milena.controller.commands.brokers import unregister
from milena.lab.world.world import simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.proposals import propose
from tests.unit.controller.simulated import Site, scenario


def led_by_1(*isr: int, brokers: int = 3, features: dict[str, int] | None = None) -> Cluster:
    """Three brokers with one partition on all of them, led by 1, with this ISR (by default 1 alone)."""
    cluster = Cluster(brokers, features=features)
    topic = cluster.assign_topic(1, 2, 3)
    wanted = tuple(NodeId(member) for member in isr or (1,))
    if cluster.partition().isr != wanted:
        cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, isr=wanted)])
    return cluster


def test_a_taken_proposal_changes_the_isr_and_the_partition_epoch_alone() -> None:
    cluster = led_by_1(1)
    before = cluster.partition()
    outcome = propose(cluster, 1, 2)
    after = cluster.partition()
    assert outcome.code is ErrorCode.NONE
    answered = outcome.registration
    assert answered is not None
    assert (answered.isr, answered.leader) == (after.isr, after.leader) == ((1, 2), 1)
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)
    assert (answered.leader_epoch, answered.partition_epoch) == (
        after.leader_epoch,
        after.partition_epoch,
    )


def test_a_proposal_of_what_there_is_writes_nothing() -> None:
    cluster = led_by_1(1, 2)
    before = cluster.state.next_offset
    outcome = propose(cluster, 1, 2)
    assert (outcome.code, outcome.registration) == (ErrorCode.NONE, cluster.partition())
    assert cluster.state.next_offset == before


@pytest.mark.parametrize(("level", "bump"), [(30, 0), (12, 0), (11, 1), (7, 1)])
def test_a_shrinking_isr_bumps_the_leader_epoch_below_3_6_alone(level: int, bump: int) -> None:
    """KAFKA-15021."""
    cluster = led_by_1(1, 2, features={"metadata.version": level})
    before = cluster.partition()
    assert propose(cluster, 1).code is ErrorCode.NONE
    after = cluster.partition()
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + bump, before.partition_epoch + 1)


@pytest.mark.parametrize("sender", [1, 9])
@pytest.mark.parametrize("epoch", [-1, 0, 99_999])
def test_a_sender_of_another_epoch_is_stale_as_a_whole(sender: int, epoch: int) -> None:
    cluster = led_by_1()
    with pytest.raises(KafkaError) as failure:
        alter_partitions(cluster.state, sender, epoch, [])
    assert failure.value.code is ErrorCode.STALE_BROKER_EPOCH


CHECKS: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("unknown topic", {"topic": UUID(int=9)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ("no topic", {"topic": UUID(int=0)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ("unknown partition", {"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("leader epoch above", {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
    ("partition epoch above", {"partition_epoch": 99}, ErrorCode.NOT_CONTROLLER),
    ("leader epoch below", {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
    ("not the leader", {"sender": 2}, ErrorCode.INVALID_REQUEST),
    ("partition epoch below", {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
    ("duplicate", {"isr": ((1, -1), (1, -1))}, ErrorCode.INVALID_REQUEST),
    ("negative", {"isr": ((1, -1), (-1, -1))}, ErrorCode.INVALID_REQUEST),
    ("no replica", {"isr": ((1, -1), (4, -1))}, ErrorCode.INVALID_REQUEST),
    ("empty", {"isr": ()}, ErrorCode.INVALID_REQUEST),
    ("without the leader", {"isr": ((2, -1),)}, ErrorCode.INVALID_REQUEST),
    ("unknown recovery state", {"recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ("recovering with others", {"recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    ("recovering again", {"isr": ((1, -1),), "recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    ("stale member", {"epochs": {2: 0}}, ErrorCode.INELIGIBLE_REPLICA),
    ("member from the future", {"epochs": {2: 99_999}}, ErrorCode.INELIGIBLE_REPLICA),
]


@pytest.mark.parametrize(("fields", "code"), [(f, c) for _, f, c in CHECKS], ids=[name for name, _, _ in CHECKS])
def test_each_check_refuses_and_writes_nothing(fields: dict[str, Any], code: ErrorCode) -> None:
    cluster = led_by_1(1)
    before = cluster.state.next_offset
    outcome = propose(cluster, 1, 2, **fields)
    assert (outcome.code, outcome.registration) == (code, None)
    assert outcome.reason
    assert cluster.state.next_offset == before


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"leader_epoch": 5}, {"partition_epoch": -1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 99}, {"leader_epoch": -1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, {"sender": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 2}, {"partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": -1}, {"epochs": {2: 0}}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"recovery_state": 1}, {"epochs": {2: 0}}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_earlier_check_decides(first: dict[str, Any], second: dict[str, Any], code: ErrorCode) -> None:
    assert propose(led_by_1(1), 1, 2, **first, **second).code is code


@pytest.mark.parametrize(
    ("gone", "reason"),
    [("fenced", "2 (fenced)"), ("stopping", "2 (shutting down)"), ("unregistered", "2 (not registered)")],
)
def test_a_member_that_is_not_active_is_ineligible_and_the_reason_is_logged(gone: str, reason: str) -> None:
    cluster = led_by_1(1)
    cluster.assign_topic(2, name="other")
    match gone:
        case "fenced":
            cluster.beat(2, want_fence=True)
        case "stopping":
            cluster.beat(2, want_shutdown=True)
        case _:
            cluster.commit(unregister(cluster.state, 2))
    outcome = propose(cluster, 1, 2)
    assert (outcome.code, outcome.reason) == (ErrorCode.INELIGIBLE_REPLICA, reason)


def test_a_rebooted_member_is_ineligible_under_its_former_epoch_and_welcome_under_the_new() -> None:
    """KAFKA-14139, KIP-903: the leader's knowledge is from before the reboot."""
    cluster = led_by_1(1)
    former = cluster.state.image.brokers[2].epoch
    cluster.now += 10
    current = cluster.start_broker(2, run=1)
    cluster.beat(1)
    outcome = propose(cluster, 1, 2, epochs={2: former})
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
    assert outcome.reason == f"2 (broker epoch {former}, registered is {current})"
    assert propose(cluster, 1, 2, epochs={2: current}).code is ErrorCode.NONE


def test_an_epoch_that_the_leader_does_not_know_is_not_checked() -> None:
    assert propose(led_by_1(1), 1, 2, epochs={2: -1}).code is ErrorCode.NONE


def test_a_leader_that_has_recovered_says_so() -> None:
    cluster = led_by_1(1)
    topic = cluster.state.image.topics["t"].id
    cluster.write([PartitionChangeRecord(partition_id=0, topic_id=topic, leader_recovery_state=1)])
    assert propose(cluster, 1, 2, recovery_state=1).code is ErrorCode.INVALID_REQUEST
    for state in (1, 0):
        outcome = propose(cluster, 1, recovery_state=state)
        assert outcome.registration is not None
        assert (outcome.code, outcome.registration.recovery_state) == (ErrorCode.NONE, state)
        assert cluster.partition().recovery_state == state


def test_the_last_joiner_completes_a_reassignment_and_a_removed_leader_hears_of_its_successor() -> None:
    cluster = led_by_1(1, 2, brokers=4)
    topic = cluster.state.image.topics["t"].id
    reassigning = PartitionChangeRecord(
        partition_id=0, topic_id=topic, replicas=(2, 4, 1, 3), removing_replicas=(1, 3), adding_replicas=(4,)
    )
    cluster.write([reassigning])
    outcome = propose(cluster, 1, 2, 4)
    assert (outcome.code, outcome.registration) == (ErrorCode.NEW_LEADER_ELECTED, None)
    after = cluster.partition()
    assert (after.replicas, after.isr, after.leader, after.removing, after.adding) == ((2, 4), (2, 4), 2, (), ())


def test_a_leader_that_stays_is_answered_with_the_replicas_after_the_reassignment() -> None:
    cluster = led_by_1(1, 2, brokers=4)
    topic = cluster.state.image.topics["t"].id
    reassigning = PartitionChangeRecord(
        partition_id=0, topic_id=topic, replicas=(1, 4, 2, 3), removing_replicas=(2, 3), adding_replicas=(4,)
    )
    cluster.write([reassigning])
    outcome = propose(cluster, 1, 2, 4)
    after = cluster.partition()
    assert outcome.registration is not None
    assert outcome.registration.replicas == after.replicas == (1, 4)
    assert (outcome.registration.isr, outcome.registration.leader) == (after.isr, after.leader) == ((1, 4), 1)


@pytest.mark.parametrize("version", [2, 3])
def test_leaders_alter_their_partitions_over_the_wire(version: int) -> None:
    async def steps(site: Site) -> None:
        epochs = {broker: await site.register(broker) for broker in (1, 2)}
        await site.create("t", num_partitions=-1, replication_factor=-1, assignments=_on(1, 2))
        topic = site.controller.state.image.topics["t"]

        async def alter(epoch_of_2: int) -> Any:
            present = topic.partitions[0]
            isr: dict[str, Any] = {"new_isr": [1, 2]}
            if version == 3:
                members = [{"broker_id": 1, "broker_epoch": epochs[1]}, {"broker_id": 2, "broker_epoch": epoch_of_2}]
                isr = {"new_isr_with_epochs": members}
            partition = {
                "partition_index": 0,
                "leader_epoch": present.leader_epoch,
                "partition_epoch": present.partition_epoch,
            }
            answer = await site.ask(
                ApiKey.ALTER_PARTITION,
                version,
                broker_id=1,
                broker_epoch=epochs[1],
                topics=[{"topic_id": topic.id, "partitions": [partition | isr]}],
            )
            return answer.error_code or answer.topics[0].partitions[0]

        if version == 3:
            assert (await alter(epochs[2] - 1)).error_code == ErrorCode.INELIGIBLE_REPLICA
        taken = await alter(epochs[2])
        assert (taken.error_code, taken.isr, taken.leader_id) == (0, (1, 2), 1)
        assert taken.partition_epoch == topic.partitions[0].partition_epoch

    simulate(scenario(steps), seed=51)


def test_a_request_without_topics_is_answered_for_any_sender() -> None:
    async def steps(site: Site) -> None:
        answer = await site.ask(ApiKey.ALTER_PARTITION, broker_id=9, broker_epoch=-1, topics=[])
        assert (answer.error_code, answer.topics) == (0, ())

    simulate(scenario(steps), seed=52)


def _on(*replicas: int) -> list[dict[str, Any]]:
    return [{"partition_index": 0, "broker_ids": list(replicas)}]
