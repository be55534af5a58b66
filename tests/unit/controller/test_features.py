"""Feature levels move within what all nodes support; producer ids and directories are given out."""

from __future__ import annotations

import pytest

from milena.controller.commands.directories import assign
from milena.controller.commands.features import FeatureUpdate, Upgrade, update_features
from milena.controller.commands.producer_ids import allocate
from milena.node.metadata.image import BROKER_RESOURCE
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import RANGES, metadata_version_names, metadata_version_of
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster, directory

UP, DOWN, UNSAFE = Upgrade.UPGRADE, Upgrade.SAFE_DOWNGRADE, Upgrade.UNSAFE_DOWNGRADE


@pytest.mark.parametrize(
    ("start", "update", "taken"),
    [
        ({}, FeatureUpdate("group.version", 1), True),
        ({}, FeatureUpdate("group.version", 2), False),
        ({}, FeatureUpdate("no.such.feature", 1), False),
        ({}, FeatureUpdate("no.such.feature", 0, DOWN), False),
        ({}, FeatureUpdate("group.version", -1), False),
        ({}, FeatureUpdate("group.version", 1, Upgrade.UNKNOWN), False),
        ({"group.version": 1}, FeatureUpdate("group.version", 0), False),
        ({"group.version": 1}, FeatureUpdate("group.version", 0, DOWN), True),
        ({}, FeatureUpdate("group.version", 1, DOWN), False),
        ({}, FeatureUpdate("kraft.version", 1), False),
        ({}, FeatureUpdate("kraft.version", 0), True),
        ({}, FeatureUpdate("transaction.version", 2), True),
        ({}, FeatureUpdate("transaction.version", 3), False),
        ({"transaction.version": 2}, FeatureUpdate("transaction.version", 0, DOWN), True),
        ({"transaction.version": 2}, FeatureUpdate("transaction.version", 1, UNSAFE), True),
        ({"metadata.version": 25}, FeatureUpdate("metadata.version", 30), True),
        ({"metadata.version": 27}, FeatureUpdate("metadata.version", 25), False),
        ({"metadata.version": 27}, FeatureUpdate("metadata.version", 25, DOWN), True),
        ({"metadata.version": 27}, FeatureUpdate("metadata.version", 22, DOWN), False),
        ({"metadata.version": 27}, FeatureUpdate("metadata.version", 22, UNSAFE), False),
        ({"metadata.version": 22}, FeatureUpdate("eligible.leader.replicas.version", 1), False),
        ({"metadata.version": 23}, FeatureUpdate("eligible.leader.replicas.version", 1), True),
    ],
)
def test_what_is_taken_and_what_is_refused(start: dict[str, int], update: FeatureUpdate, taken: bool) -> None:
    cluster = Cluster(1, features=start)
    if taken:
        cluster.commit(update_features(cluster.state, [update]))
        assert cluster.state.image.features.get(update.feature, 0) == update.level
        return
    with pytest.raises(KafkaError) as failure:
        update_features(cluster.state, [update])
    assert failure.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_the_release_of_the_controller_limits_its_levels() -> None:
    cluster = Cluster(1, features={"metadata.version": 27}, kafka_version="4.3")
    cluster.commit(update_features(cluster.state, [FeatureUpdate("metadata.version", 30)]))
    with pytest.raises(KafkaError, match=r"this controller supports 7 to 30"):
        update_features(cluster.state, [FeatureUpdate("metadata.version", 31)])


def test_a_broker_that_cannot_follow_holds_a_feature_back() -> None:
    cluster = Cluster(1)
    cluster.register(2, features={**RANGES, "group.version": (0, 0)})
    with pytest.raises(KafkaError, match=r"Broker 2 does not support it"):
        update_features(cluster.state, [FeatureUpdate("group.version", 1)])


def test_all_updates_are_taken_or_none_and_validation_writes_nothing() -> None:
    cluster = Cluster(1)
    both = [FeatureUpdate("group.version", 1), FeatureUpdate("transaction.version", 9)]
    with pytest.raises(KafkaError):
        update_features(cluster.state, both)
    assert not update_features(cluster.state, both[:1], validate_only=True).records


def test_turning_elr_on_fixes_one_min_isr_for_the_cluster() -> None:
    cluster = Cluster(1, min_insync_replicas=2)
    cluster.commit(update_features(cluster.state, [FeatureUpdate("eligible.leader.replicas.version", 1)]))
    assert cluster.state.image.config(BROKER_RESOURCE, "") == {"min.insync.replicas": "2"}


def test_releases_name_levels_of_metadata_version() -> None:
    names = metadata_version_names()
    expected = {"3.3": 7, "3.4": 8, "3.5": 11, "3.6": 14, "3.7": 19, "3.8": 20, "3.9": 21, "4.0": 25, "4.1": 27}
    assert {name: names[name] for name in expected} == expected
    assert (names["4.3"], names["4.4"], names["4.4-IV1"], names["3.3-IV3"], names["4.0-IV1"]) == (30, 33, 32, 7, 23)
    assert metadata_version_of("4.3.1") == 30
    with pytest.raises(ValueError, match=r"'2\.8'; known are 3\.3, "):
        metadata_version_of("2.8")


def test_every_block_of_producer_ids_is_given_once() -> None:
    cluster = Cluster(1)
    epoch = cluster.state.image.brokers[1].epoch
    blocks = [cluster.commit(allocate(cluster.state, 1, epoch)) for _ in range(2)]
    assert blocks == [range(1000), range(1000, 2000)]
    with pytest.raises(KafkaError) as failure:
        allocate(cluster.state, 1, epoch + 1)
    assert failure.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_says_in_which_directory_a_replica_lies_and_an_offline_one_loses_it() -> None:
    cluster = Cluster(1)
    cluster.start_broker(2, dirs=2)
    first, second = cluster.assign_topic(2), cluster.assign_topic(2, name="u")
    other = cluster.assign_topic(1, name="v")
    broker = cluster.state.image.brokers[2]
    unknown = directory(9)
    outcomes = cluster.commit(
        assign(
            cluster.state,
            NodeId(2),
            broker.epoch,
            {directory(2, 1): [(first, 0), (first, 7), (other, 0), (unknown, 0)], unknown: [(second, 0)]},
        )
    )
    assert outcomes == {
        directory(2, 1): {
            (first, 0): ErrorCode.NONE,
            (first, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (other, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (unknown, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        },
        unknown: {(second, 0): ErrorCode.NONE},
    }
    assert (cluster.partition().directories, cluster.partition().leader) == ((directory(2, 1),), 2)
    assert (cluster.partition("u").directories, cluster.partition("u").leader) == ((unknown,), -1)
