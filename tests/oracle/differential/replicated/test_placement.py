"""ElectLeaders, Alter- and ListPartitionReassignments, UnregisterBroker, AlterReplicaLogDirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.replicated.trio import Trio

TIMEOUT = 5000
Wanted = tuple[str, int, Sequence[int] | None]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elect_leaders(trio: Trio, topic: str, version: int) -> None:
    trio.create(topic, [1, 2, 3], [2, 3, 1])

    def elect(*wanted: tuple[str, list[int]], kind: int = 0) -> None:
        topics = [{"topic": name, "partitions": partitions} for name, partitions in wanted]
        asked: dict[str, Any] = {"topic_partitions": topics, "timeout_ms": TIMEOUT}
        trio.same(1, ApiKey.ELECT_LEADERS, version, **asked, **({"election_type": kind} if version else {}))

    for kind in (0, 1) if version else (0,):
        elect((topic, [0]), kind=kind)
        elect((topic, [0, 1, 7, -1]), kind=kind)
        elect((topic, [0, 0]), kind=kind)
        elect(("nowhere", [0]), kind=kind)
        elect(("a b", [0]), ("", [0]), kind=kind)
        elect((topic, []), kind=kind)
        elect(kind=kind)
    if version:
        elect((topic, [0]), kind=5)


@pytest.mark.parametrize("version", [0, 1])
def test_impossible_reassignments_are_refused(trio: Trio, topic: str, version: int) -> None:
    trio.create(topic, [1, 2, 3], [2, 3, 1])

    def alter(*wanted: Wanted, **fields: Any) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": at, "replicas": to}]} for name, at, to in wanted]
        trio.same(1, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=topics, timeout_ms=TIMEOUT, **fields)

    for replicas in ([], [1, 1], [9], [1, 9], [-1], [1, -2], None):
        alter((topic, 0, replicas))
    alter((topic, 7, [1]))
    alter((topic, -1, [1]))
    alter(("nowhere", 0, [1]))
    alter(("", 0, None))
    alter((topic, 0, None), (topic, 1, [9]))
    alter((topic, 0, [1, 2, 3]))
    alter()
    if version:
        alter((topic, 0, [1, 2]), allow_replication_factor_change=False)
        alter((topic, 0, [2, 1, 3]), allow_replication_factor_change=False)
        trio.until(topic, 0, replica_nodes=[2, 1, 3])


@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_are_listed_and_completed(trio: Trio, topic: str, version: int) -> None:
    trio.create(topic, [1, 2])

    def listed(partitions: list[int] | None) -> None:
        topics = None if partitions is None else [{"name": topic, "partition_indexes": partitions}]
        trio.same(1, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout_ms=TIMEOUT)

    for replicas in ([1, 3], [3, 1], [2, 3], [2], [1, 2, 3], [3, 2, 1]):
        parts = [{"partition_index": 0, "replicas": replicas}]
        asked: dict[str, Any] = {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": TIMEOUT}
        trio.same(1, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, **asked)
        trio.until(topic, 0, replica_nodes=replicas, isr_nodes=sorted(replicas))
        listed([0])
        listed(None)
    listed([0, 5, -1])
    trio.same(
        1,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        timeout_ms=TIMEOUT,
        topics=[{"name": "nowhere", "partition_indexes": [0]}],
    )
    trio.same(1, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=TIMEOUT, topics=[])


def test_unregistering_an_unknown_broker_is_refused(trio: Trio) -> None:
    for broker in (77, -1):
        trio.same(1, ApiKey.UNREGISTER_BROKER, 0, broker_id=broker)


@pytest.mark.parametrize("version", [1, 2])
def test_alter_replica_log_dirs(trio: Trio, topic: str, version: int) -> None:
    trio.create(topic, [1, 2])
    for directory in ("/nowhere", "relative", ""):
        for partitions in ([0], [0, 7], []):
            dirs = [{"path": directory, "topics": [{"name": topic, "partitions": partitions}]}]
            for broker in (1, 3):
                trio.same(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)
    trio.same(
        1,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        version,
        dirs=[{"path": "/x", "topics": [{"name": "nowhere", "partitions": [0]}]}],
    )
    trio.same(1, ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=[])
