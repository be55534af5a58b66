"""Heartbeats fence, unfence and shut down brokers."""

from __future__ import annotations

import pytest

from milena.controller.commands.directories import assign
from milena.controller.commands.heartbeats import expire_one
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster, directory


def test_a_broker_is_unfenced_once_it_has_read_its_registration_and_wants_to() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    behind = cluster.beat(1, metadata_offset=epoch - 1)
    assert (behind.caught_up, behind.fenced) == (False, True)
    waiting = cluster.beat(1, metadata_offset=epoch, want_fence=True)
    assert (waiting.caught_up, waiting.fenced) == (True, True)
    assert not cluster.beat(1, metadata_offset=epoch).fenced
    assert not cluster.state.image.brokers[1].fenced


def test_a_heartbeat_without_news_writes_nothing() -> None:
    cluster = Cluster(1)
    before = cluster.state.next_offset
    cluster.beat(1)
    assert cluster.state.next_offset == before


@pytest.mark.parametrize("epoch", [-1, 0, 10_000])
def test_a_heartbeat_of_another_epoch_is_stale(epoch: int) -> None:
    cluster = Cluster(1)
    for broker in (1, 2):
        with pytest.raises(KafkaError) as failure:
            cluster.beat(broker, epoch=epoch)
        assert failure.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_fencing_gives_leadership_to_another_replica_in_sync() -> None:
    cluster = Cluster(3)
    cluster.assign_topic(1, 2, 3)
    cluster.beat(1, want_fence=True)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (2, (2, 3), 1, 1)


def test_fencing_a_follower_costs_it_the_isr_and_nothing_else() -> None:
    cluster = Cluster(3)
    cluster.assign_topic(1, 2, 3)
    cluster.beat(2, want_fence=True)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (1, (1, 3), 0, 1)


def test_fencing_the_last_replica_in_sync_leaves_no_leader_and_the_isr_as_it_was() -> None:
    cluster = Cluster(2)
    cluster.assign_topic(1, 2, isr=[1])
    before = cluster.partition()
    cluster.beat(1, want_fence=True)
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (-1, (1,))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, before.partition_epoch + 1)


def test_unfencing_elects_it_again_with_the_next_leader_epoch() -> None:
    cluster = Cluster(2)
    cluster.assign_topic(1, 2, isr=[1])
    cluster.beat(1, want_fence=True)
    cluster.beat(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)


def test_unclean_elections_take_any_replica_that_is_there() -> None:
    cluster = Cluster(2, unclean_leader_election_enable="true")
    cluster.assign_topic(1, 2, isr=[1])
    cluster.beat(1, want_fence=True)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.recovery_state) == (2, (2,), 1)


def test_a_session_that_runs_out_fences_one_broker_at_a_time() -> None:
    cluster = Cluster(3)
    cluster.assign_topic(2)
    cluster.now += 9.1
    cluster.beat(3)
    fenced = [cluster.commit(expire_one(cluster.state, cluster.now)) for _ in range(3)]
    assert fenced == [1, 2, None]
    assert [broker.fenced for broker in cluster.state.image.brokers.values()] == [True, True, False]
    assert cluster.partition().leader == -1


def test_a_session_of_a_former_incarnation_fences_no_broker() -> None:
    cluster = Cluster(1)
    cluster.now += 9.1
    cluster.start_broker(1, run=1)
    cluster.now += 1
    assert cluster.commit(expire_one(cluster.state, cluster.now)) is None


def test_a_controller_that_takes_over_gives_unfenced_brokers_one_session() -> None:
    cluster = Cluster(1)
    cluster.register(2)
    cluster.state.sessions.activate(cluster.state.image.brokers.values(), cluster.now)
    cluster.now += 9.1
    assert cluster.commit(expire_one(cluster.state, cluster.now)) == 1
    assert cluster.commit(expire_one(cluster.state, cluster.now)) is None


def test_a_broker_that_leads_nothing_may_shut_down_at_once() -> None:
    cluster = Cluster(1)
    reply = cluster.beat(1, want_shutdown=True)
    assert (reply.should_shut_down, reply.fenced) == (True, True)
    assert cluster.state.image.brokers[1].fenced


def test_a_broker_that_leads_waits_until_the_others_know_that_it_does_not_any_more() -> None:
    cluster = Cluster(2)
    cluster.assign_topic(1)
    cluster.beat(2)
    first = cluster.beat(1, want_shutdown=True)
    assert (first.should_shut_down, first.fenced) == (False, False)
    assert cluster.state.image.brokers[1].in_controlled_shutdown
    assert cluster.partition().leader == -1
    assert not cluster.beat(1, want_shutdown=True).should_shut_down
    cluster.beat(2)
    assert cluster.beat(1, want_shutdown=True).should_shut_down
    assert cluster.state.image.brokers[1].fenced


def test_a_granted_shutdown_ends_the_session_so_that_the_next_incarnation_registers_at_once() -> None:
    cluster = Cluster(1)
    assert cluster.beat(1, want_shutdown=True).should_shut_down
    cluster.start_broker(1, run=1)


def test_a_directory_that_goes_offline_takes_its_replicas_along_once() -> None:
    cluster = Cluster(1)
    cluster.start_broker(2, dirs=2)
    cluster.assign_topic(1)
    cluster.assign_topic(2, name="u")
    assert not cluster.beat(1, offline_dirs=(directory(1),)).fenced
    assert (cluster.partition().leader, cluster.partition().isr) == (-1, (1,))
    cluster.beat(2, offline_dirs=(directory(2),))
    assert cluster.state.image.brokers[2].log_dirs == (directory(2, 1),)
    assert cluster.partition("u").leader == 2
    before = cluster.state.next_offset
    cluster.beat(2, offline_dirs=(directory(2),))
    assert cluster.state.next_offset == before


def test_cordoned_directories_are_noted_when_they_change() -> None:
    cluster = Cluster(1)
    cluster.beat(1, cordoned_dirs=(directory(1),))
    assert cluster.state.image.brokers[1].cordoned == (directory(1),)
    before = cluster.state.next_offset
    cluster.beat(1, cordoned_dirs=(directory(1),))
    cluster.beat(1)
    assert cluster.state.next_offset == before
    with pytest.raises(KafkaError) as failure:
        cluster.create_topic()
    assert failure.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_directories_are_not_cordoned_any_more_if_a_heartbeat_does_not_list_them() -> None:
    cluster = Cluster(1)
    cluster.beat(1, cordoned_dirs=(directory(1),))
    cluster.beat(1, cordoned_dirs=())
    assert cluster.state.image.brokers[1].cordoned == ()


def test_a_replica_leads_again_if_another_directory_fails_before_its_broker_is_unfenced() -> None:
    cluster = Cluster()
    cluster.start_broker(1, dirs=2)
    key = (cluster.assign_topic(1), 0)
    cluster.commit(assign(cluster.state, NodeId(1), cluster.state.image.brokers[1].epoch, {directory(1, 1): [key]}))
    cluster.beat(1, want_fence=True)
    assert cluster.partition().leader == -1
    cluster.beat(1, offline_dirs=(directory(1),))
    assert cluster.partition().leader == 1


@pytest.mark.parametrize("elr", [0, 1])
def test_a_replica_whose_directory_fails_before_its_broker_is_unfenced_does_not_lead(elr: int) -> None:
    cluster = Cluster(features={"eligible.leader.replicas.version": elr})
    cluster.start_broker(1, dirs=2)
    topic = cluster.assign_topic(1)
    key = (topic, 0)
    cluster.commit(assign(cluster.state, NodeId(1), cluster.state.image.brokers[1].epoch, {directory(1): [key]}))
    cluster.beat(1, want_fence=True)
    assert not cluster.beat(1, offline_dirs=(directory(1),)).fenced
    partition = cluster.partition()
    assert (partition.leader, partition.isr or partition.elr) == (-1, (1,))
    assert cluster.state.image.brokers[1].log_dirs == (directory(1, 1),)


def test_a_broker_whose_only_directory_fails_before_it_is_unfenced_leads_nothing() -> None:
    cluster = Cluster(1)
    cluster.assign_topic(1)
    cluster.beat(1, want_fence=True)
    cluster.beat(1, offline_dirs=(directory(1),))
    assert cluster.partition().leader == -1
