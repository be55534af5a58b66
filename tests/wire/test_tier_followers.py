"""Brokers without data become followers of a tiered topic: they copy only what its leader has locally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places, place_topic
from tests.wire.clients import Record, all_clients
from tests.wire.command import milena
from tests.wire.tiers import settings
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS: list[Record] = [(b"key", b"%-1000d" % number) for number in range(300)]
LOCAL = 20
"""Number of records that stay on the leader's disk."""
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.bytes": "1"}
REPLICATED = {
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "min.insync.replicas": "1",
}
BOUNDS = ("log_start_offset", "local_log_start_offset", "log_end_offset", "epochs")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    overrides = settings(tmp_path / "tier") | REPLICATED
    with LocalCluster.start(tmp_path / "cluster", brokers=3, overrides=overrides, lab=True) as running:
        yield running


def described(cluster: LocalCluster, broker: int, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.lab_commands(broker).call("describe_partition", topic=topic, partition=0)
    return found


def local_values(cluster: LocalCluster, broker: int, topic: str) -> list[int]:
    return [int(value) for _, value, _ in cluster.lab_commands(broker).call("read_log", topic=topic, partition=0)]


def write(cluster: LocalCluster, topic: str, records: Sequence[Record]) -> None:
    """Write records, ten in each batch."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 10})
    for key, value in records:
        producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * len(records)


def test_a_wiped_broker_and_a_new_broker_copy_local_records_and_serve_all(cluster: LocalCluster, topic: str) -> None:
    """(About 8 s: three brokers, one of them started twice.)"""
    place_topic(cluster.bootstrap, topic, [[1, 2]], TIERED)
    write(cluster, topic, RECORDS[:-LOCAL])
    wait_until(lambda: described(cluster, 1, topic)["local_log_start_offset"] > 200, "the tier to have most")
    milena("topic", "alter", topic, "--config", "local.retention.bytes=-2", "--bootstrap-server", cluster.bootstrap)
    write(cluster, topic, RECORDS[-LOCAL:])

    cluster.stop_node(2)
    cluster.wipe(2)
    cluster.start_node(2)
    places = Places(cluster.bootstrap, topic)
    wait_until(lambda: places.all_have(2), "the wiped broker to be in sync")
    leaders, followers = described(cluster, 1, topic), described(cluster, 2, topic)
    assert {name: leaders[name] for name in BOUNDS} == {name: followers[name] for name in BOUNDS}
    assert local_values(cluster, 1, topic) == local_values(cluster, 2, topic)
    assert len(local_values(cluster, 2, topic)) < 100

    milena("reassign", "start", f"{topic}:0=2,3", "--bootstrap-server", cluster.bootstrap)
    wait_until(lambda: places.now()[0].isr == {2, 3}, "the new broker to be in sync")
    cluster.stop_node(2)
    wait_until(lambda: places.now()[0].leader == 3, "the new broker to lead")
    assert described(cluster, 3, topic)["local_log_start_offset"] >= leaders["local_log_start_offset"]
    reader = next(client for client in all_clients() if client.name == "confluent-kafka")
    found = reader.consume(cluster.bootstrap, topic, len(RECORDS), group=topic)
    assert found == [(0, offset, record) for offset, record in enumerate(RECORDS)]
