"""Compacted topics in the tier are hosted only by brokers that say in their registration that they can."""

from __future__ import annotations

from typing import Any

import pytest

from milena.controller.commands.configs import Change, Op, alter_incrementally
from milena.controller.commands.reassignment import Target, alter_reassignments
from milena.controller.commands.topics import NewPartitions, NewTopic, create_partitions, create_topics
from milena.node.metadata.image import TOPIC_RESOURCE
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import RANGES, REMOTE_COMPACTION
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster

ABLE = {**RANGES, REMOTE_COMPACTION: (0, 1)}
BOTH: dict[str, str | None] = {"remote.storage.enable": "true", "cleanup.policy": "compact"}


def cluster(able: int = 2, others: int = 1) -> Cluster:
    """Brokers 1 to ``able`` can host such topics, the ``others`` after them cannot."""
    made = Cluster(remote_log_storage_system_enable=True, remote_log_compaction_enable=True)
    for broker in range(1, able + others + 1):
        made.start_broker(broker, features=ABLE if broker <= able else RANGES)
    return made


def create(made: Cluster, **fields: Any) -> KafkaError | None:
    topic = NewTopic(**({"name": "t", "configs": BOTH} | fields))
    ((_, created),) = made.commit(create_topics(made.state, [topic], made.random))
    return created if isinstance(created, KafkaError) else None


def alter(made: Cluster, **values: str) -> KafkaError | None:
    changes = {name.replace("_", "."): Change(Op.SET, value) for name, value in values.items()}
    resource = TOPIC_RESOURCE, "t"
    return made.commit(alter_incrementally(made.state, {resource: changes}))[resource]


def reassign(made: Cluster, *replicas: int) -> KafkaError | None:
    target = Target(0, tuple(NodeId(one) for one in replicas))
    ((_, ((_, outcome),)),) = made.commit(alter_reassignments(made.state, [("t", [target])]))
    return outcome


def reassign_cancelled(made: Cluster) -> KafkaError | None:
    ((_, ((_, outcome),)),) = made.commit(alter_reassignments(made.state, [("t", [Target(0, None)])]))
    return outcome


def is_refused(error: object, code: ErrorCode) -> bool:
    return isinstance(error, KafkaError) and error.code is code and "remote.log.compaction.enable=true" in error.text


def test_new_partitions_are_placed_on_brokers_that_can_host_them() -> None:
    made = cluster()
    assert create(made, partitions=20, replication_factor=2) is None
    ((_, grown),) = made.commit(create_partitions(made.state, [NewPartitions("t", 40)], made.random))
    assert grown is None
    assert {frozenset(made.partition("t", number).replicas) for number in range(40)} == {frozenset({1, 2})}
    assert create(made, name="plain", partitions=1, replication_factor=3, configs={}) is None
    too_many = create(made, name="u", partitions=1, replication_factor=3)
    assert is_refused(too_many, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert "2 broker(s) can host one, broker(s) 3 cannot" in str(too_many)


def test_an_assignment_to_a_broker_that_cannot_is_refused() -> None:
    made = cluster()
    named = create(made, assignments=[(0, [NodeId(1), NodeId(3)])])
    assert is_refused(named, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert create(made, assignments=[(0, [NodeId(1)])]) is None
    ((_, grown),) = made.commit(
        create_partitions(made.state, [NewPartitions("t", 2, assignments=[[NodeId(3)]])], made.random)
    )
    assert is_refused(grown, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert is_refused(reassign(made, 1, 3), ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert reassign(made, 2, 1) is None


@pytest.mark.parametrize("last", [{"remote_storage_enable": "true"}, {"cleanup_policy": "compact,delete"}])
def test_a_topic_becomes_one_only_where_all_its_brokers_can(last: dict[str, str]) -> None:
    made = cluster()
    before: dict[str, str | None] = {name: value for name, value in BOTH.items() if name.replace(".", "_") not in last}
    assert create(made, assignments=[(0, [NodeId(1), NodeId(3)])], configs=before) is None
    assert is_refused(alter(made, **last), ErrorCode.INVALID_CONFIG)
    assert reassign(made, 2, 1) is None
    assert is_refused(alter(made, **last), ErrorCode.INVALID_CONFIG)  # broker 3 has it until broker 2 is in sync
    assert reassign_cancelled(made) is None
    assert reassign(made, 1) is None
    assert alter(made, **last) is None
    assert alter(made, retention_ms="5", local_retention_ms="5") is None


def test_a_broker_that_hosts_one_cannot_come_back_without_it() -> None:
    made = cluster()
    assert create(made, assignments=[(0, [NodeId(1)])]) is None
    made.now += 10
    for features in (RANGES, {**RANGES, REMOTE_COMPACTION: (0, 0)}):
        with pytest.raises(KafkaError, match=r"Broker 1 hosts t-0, a compacted topic with remote storage") as failure:
            made.register(1, run=1, features=features)
        assert failure.value.code is ErrorCode.UNSUPPORTED_VERSION
    made.register(1, run=1, features=ABLE)
    made.register(2, run=1)  # it hosts none
    made.register(3, run=1)


def test_what_is_never_tiered_may_be_anywhere() -> None:
    made = cluster(able=0)
    assert create(made, name="__consumer_offsets") is None
    made.now += 10
    made.register(1, run=1)


def test_where_it_is_off_both_together_are_refused() -> None:
    made = Cluster(1, remote_log_storage_system_enable=True)
    refused = create(made)
    assert refused is not None and refused.code is ErrorCode.INVALID_CONFIG
    assert "only supports topics with cleanup.policy=delete" in str(refused)
