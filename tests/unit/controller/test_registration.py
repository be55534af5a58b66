"""Brokers register, once per incarnation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from milena.controller.commands.brokers import unregister, with_addresses
from milena.node.metadata.image import ListenerImage
from milena.node.metadata.image_records import broker_record
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import RANGES
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import UNASSIGNED_DIR, NodeId
from tests.unit.controller.cluster import Cluster, directory, incarnation


def refusal(cluster: Cluster, broker: int, **fields: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as failure:
        cluster.register(broker, **fields)
    return failure.value.code


def test_the_broker_epoch_is_the_offset_of_the_registration_and_the_broker_starts_fenced() -> None:
    cluster = Cluster()
    expected = int(cluster.state.next_offset)
    assert cluster.register(1) == expected
    registered = cluster.state.image.brokers[1]
    assert (registered.epoch, registered.fenced, registered.log_dirs) == (expected, True, (directory(1),))
    assert registered.features["metadata.version"] == (7, 33)


def test_a_second_incarnation_must_wait_for_the_session_of_the_first() -> None:
    cluster = Cluster(1)
    assert refusal(cluster, 1, run=1) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now += 9.1
    assert cluster.register(1, run=1) == cluster.state.next_offset - 1
    assert cluster.state.image.brokers[1].incarnation == incarnation(1, 1)


def test_the_same_incarnation_amends_its_registration_and_keeps_epoch_and_state() -> None:
    cluster = Cluster(1)
    before = cluster.state.image.brokers[1]
    assert cluster.register(1, dirs=2) == before.epoch
    after = cluster.state.image.brokers[1]
    assert (after.fenced, after.log_dirs) == (False, (directory(1), directory(1, 1)))
    assert not cluster.beat(1, metadata_offset=cluster.state.registered_at[1] - 1).caught_up


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"migrating": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (UNASSIGNED_DIR,)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(2), directory(2))}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"broker_id": -5}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (ListenerImage("", "h", 1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (ListenerImage("P", "h", 0),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (ListenerImage("P", "h", 1, 4),)}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": (ListenerImage("P", "h", 1, -1),)}, ErrorCode.INVALID_REGISTRATION),
        *(
            ({"endpoints": (ListenerImage("P", "h", 1), ListenerImage("Q", host, 1))}, ErrorCode.INVALID_REGISTRATION)
            for host in ("", "a..b", "h" * 64, "x" * 30_000, "a\0b", "a b", "a\nb", "[::1]")
        ),
        ({"features": {}}, ErrorCode.INVALID_REGISTRATION),
        ({"features": {"metadata.version": (7, 29)}}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": {"metadata.version": (7, 33), "group.version": (1, 1)}}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": {**RANGES, "kraft.version": (1, 1)}}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_does_not_fit_the_cluster_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    assert refusal(Cluster(1), 2, **fields) is code


def test_what_kafka_takes_is_taken() -> None:
    cluster = Cluster()
    cluster.register(1000)
    cluster.register(1, endpoints=())
    for number, host in enumerate(("kafka_1", "::1", "fe80::1%eth0", "b\u00fccher", "h" * 63, "a.b."), 2):
        cluster.register(number, endpoints=(ListenerImage("ANY NAME", host, 65_535, 3),))
    assert sorted(cluster.state.image.brokers) == [1, 2, 3, 4, 5, 6, 7, 1000]


def test_a_finalized_feature_that_a_broker_does_not_name_is_one_it_lacks() -> None:
    cluster = Cluster(features={"group.version": 1})
    named = {"metadata.version": (7, 33), "group.version": (0, 1)}
    assert refusal(cluster, 1, features={"metadata.version": (7, 33)}) is ErrorCode.UNSUPPORTED_VERSION
    assert cluster.register(1, features=named)


def test_before_3_7_directories_are_not_asked_for() -> None:
    cluster = Cluster(features={"metadata.version": 16})
    cluster.register(1, log_dirs=())
    assert cluster.state.image.brokers[1].log_dirs == ()


def test_with_elr_an_unclean_restart_costs_the_isr_and_a_clean_one_the_leadership_only() -> None:
    for clean in (False, True):
        cluster = Cluster(2, features={"eligible.leader.replicas.version": 1})
        cluster.assign_topic(1, 2, isr=[1])
        epoch = cluster.state.image.brokers[1].epoch
        cluster.now += 10
        cluster.register(1, run=1, previous_epoch=epoch if clean else None)
        partition = cluster.partition()
        assert (partition.leader, partition.isr) == (-1, ())
        assert partition.elr == ((1,) if clean else ())
        assert cluster.state.image.brokers[1].epoch == cluster.state.next_offset - 1


@pytest.mark.parametrize("in_isr", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_with_elr_a_clean_restart_without_a_directory_ends_the_eligibility_of_what_lay_there(
    in_isr: bool, gone: bool
) -> None:
    """The broker makes an empty log elsewhere, which must not be elected."""
    cluster = Cluster(2, features={"eligible.leader.replicas.version": 1})
    topic_id = cluster.assign_topic(1, 2, isr=[1])
    assert cluster.partition().directory_of(NodeId(1)) == directory(1)
    epoch = cluster.state.image.brokers[1].epoch
    if not in_isr:
        eligible = PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, isr=(), leader=NodeId(-1), eligible_leader_replicas=(NodeId(1),)
        )
        cluster.write([eligible])
    cluster.now += 10
    cluster.register(1, run=1, previous_epoch=epoch, log_dirs=(directory(1, 1 if gone else 0),))
    assert (cluster.partition().isr, cluster.partition().elr) == ((), () if gone else (1,))


@pytest.mark.parametrize("known", [True, False])
def test_with_elr_a_replica_without_a_known_directory_stays_eligible_after_a_clean_restart(known: bool) -> None:
    """Its directory is not assigned yet, or the partition is of a version without directories."""
    cluster = Cluster(2, features={"eligible.leader.replicas.version": 1})
    topic_id = cluster.assign_topic(1, 2, isr=[1])
    directories = (UNASSIGNED_DIR, UNASSIGNED_DIR) if known else ()
    partition = replace(cluster.partition(), directories=directories)
    cluster.state.image.topics_by_id[topic_id].partitions[0] = partition
    epoch = cluster.state.image.brokers[1].epoch
    cluster.now += 10
    cluster.register(1, run=1, previous_epoch=epoch)
    assert (cluster.partition().isr, cluster.partition().elr) == ((), (1,))


@pytest.mark.parametrize("elr", [0, 1])
@pytest.mark.parametrize("level", [19, 33])
def test_kafka_18106_an_unclean_restart_changes_leader_and_epoch_of_what_it_led(elr: int, level: int) -> None:
    """It was not fenced before: the registration itself must end the leaderships of the former incarnation."""
    features = {"metadata.version": level, "eligible.leader.replicas.version": elr if level == 33 else 0}
    cluster = Cluster(2, features=features)
    cluster.assign_topic(1, 2, name="shared")
    cluster.assign_topic(1, 2, name="alone", isr=[1])
    before = {name: cluster.partition(name) for name in ("shared", "alone")}
    cluster.state.sessions.end(1, cluster.state.image.brokers[1].epoch)
    cluster.register(1, run=1, previous_epoch=-1)
    shared, alone = cluster.partition("shared"), cluster.partition("alone")
    assert (shared.leader, shared.isr, alone.leader) == (2, (2,), -1)
    for name, partition in (("shared", shared), ("alone", alone)):
        assert partition.leader_epoch == before[name].leader_epoch + 1
        assert partition.partition_epoch == before[name].partition_epoch + 1
    assert cluster.state.image.brokers[1].epoch == cluster.state.next_offset - 1, "the changes come first"
    cluster.beat(1)
    led = cluster.partition("alone")
    assert (led.leader, led.isr, led.leader_epoch) == (1, (1,), alone.leader_epoch + 1)


def test_an_unregistered_broker_leaves_its_isrs() -> None:
    cluster = Cluster(1)
    cluster.assign_topic(1)
    cluster.commit(unregister(cluster.state, 1))
    assert 1 not in cluster.state.image.brokers
    assert (cluster.partition().leader, cluster.partition().isr) == (-1, (1,))
    with pytest.raises(KafkaError) as failure:
        unregister(cluster.state, 1)
    assert failure.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_placement_default_of_a_broker_with_one_directory_is_that_one() -> None:
    cluster = Cluster(1)
    cluster.start_broker(2, dirs=2)
    cluster.assign_topic(1, 2)
    assert cluster.partition().directories == (directory(1), UUID(int=1))


def test_brokers_of_a_snapshot_get_their_present_addresses_and_keep_everything_else() -> None:
    cluster = Cluster(3)
    cluster.create_topic("t", partitions=3, replicas=3)
    cluster.write([replace(broker_record(cluster.state.image.brokers[2]), is_migrating_zk_broker=True)])
    before = dict(cluster.state.image.brokers)
    partitions = dict(cluster.state.image.topics["t"].partitions)
    cluster.write(with_addresses(cluster.state, {1: ("localhost", 9093), 2: ("127.0.0.1", 19000)}))
    image = cluster.state.image
    assert [(one.host, one.port) for one in image.brokers[2].endpoints] == [("127.0.0.1", 19000)]
    assert replace(image.brokers[2], endpoints=before[2].endpoints) == before[2]
    assert (image.brokers[1], image.brokers[3]) == (before[1], before[3])
    assert image.topics["t"].partitions == partitions
    assert with_addresses(cluster.state, {2: ("127.0.0.1", 19000)}) == []
