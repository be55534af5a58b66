"""Leader epochs in Fetch, ListOffsets and OffsetForLeaderEpoch to leaders and followers, and refused writes."""

from __future__ import annotations

from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.batches import batch
from tests.oracle.differential.replicated.trio import Trio
from tests.oracle.differential.sides import Name

MIB: Final = 1 << 20
EPOCHS: Final = (-2, -1, 0, 1, 2, 3, 9)


@pytest.fixture
def moved(trio: Trio, topic: str) -> str:
    """A topic led by broker 1, then 2, then 1, with two batches in each leader epoch. Broker 3 has no replica."""
    trio.create(topic, [1, 2])
    for epoch, leader in enumerate((1, 2, 1)):
        if epoch:
            replicas = [leader, 3 - leader]
            parts = [{"partition_index": 0, "replicas": replicas}]
            asked: dict[str, Any] = {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": 5000}
            trio.same(1, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, **asked)
            trio.until(topic, 0, replica_nodes=replicas)
            topics = [{"topic": topic, "partitions": [0]}]
            trio.same(1, ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=topics, timeout_ms=5000)
        for broker in (1, 2, 3):
            trio.until(topic, 0, at=broker, leader_id=leader, isr_nodes=[1, 2])
        trio.at(leader).until_led(topic, 0)
        trio.at(leader).produce(topic, batch(), batch())
    trio.until_committed(topic, 0, 12, at=2)
    return topic


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_offset_for_leader_epoch(trio: Trio, moved: str, broker: int) -> None:
    for version in (2, 3, 4):
        for current in EPOCHS:
            for epoch in EPOCHS:
                asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
                topics = [{"topic": moved, "partitions": [asked]}]
                for replica in (-1, -2) if version > 2 else (-1,):
                    trio.same(broker, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=replica, topics=topics)


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_list_offsets(trio: Trio, moved: str, broker: int) -> None:
    for version in (4, 7, 11):
        for current in EPOCHS:
            for timestamp in (-1, -2, -3, -4, -5, 0):
                for replica in (-1, -2):
                    asked = {"partition_index": 0, "current_leader_epoch": current, "timestamp": timestamp}
                    topics = [{"name": moved, "partitions": [asked]}]
                    trio.same(broker, ApiKey.LIST_OFFSETS, version, replica_id=replica, topics=topics)


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_fetch(trio: Trio, moved: str, broker: int) -> None:
    for version in (9, 11, 12, 13, 16, 18):
        for current in EPOCHS:
            for offset in (0, 4, 12, 13):
                for last in EPOCHS if version >= 12 and current < 4 else (-1,):
                    fetch(trio, broker, version, moved, current, offset, last)


def fetch(trio: Trio, broker: int, version: int, topic: str, current: int, offset: int, last: int) -> None:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": MIB, "log_start_offset": -1}
    part |= {"current_leader_epoch": current, "last_fetched_epoch": last}
    topics = [{"topic": topic, "topic_id": Name(f"id of {topic}"), "partitions": [part]}]
    asked: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": MIB, "session_epoch": -1}
    trio.same(broker, ApiKey.FETCH, version, topics=topics, **asked)


def test_writes_without_enough_replicas(trio: Trio, topic: str) -> None:
    trio.create(topic, [1, 2], min_insync_replicas=3)
    trio.create(f"{topic}-follower", [2, 1])
    for acks in (-1, 1):
        for name in (topic, f"{topic}-follower"):
            data = [{"name": name, "partition_data": [{"index": 0, "records": batch()}]}]
            trio.same(1, ApiKey.PRODUCE, 9, acks=acks, timeout_ms=1000, topic_data=data)
