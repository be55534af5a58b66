"""A broker process with a tier in a folder: it copies segments there, and deletes them with their topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from milena.protocol.records.batch import iter_batches
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places, alter_topic, create_topic
from tests.wire.command import milena, refused
from tests.wire.properties import combined, write
from tests.wire.tiers import TIERED, logs, settings
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS = 100


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    return tmp_path / "tier"


@pytest.fixture
def tiered(tmp_path: Path, tier: Path) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path / "cluster", brokers=1, overrides=settings(tier)) as running:
        yield running


def is_empty(folder: Path) -> bool:
    """Whether a partition's local log is empty: the active segment is rolled and copied too, after its time."""
    found = sorted(folder.glob("*.log"))
    return len(found) == 1 and found[0].stat().st_size == 0


def batches(path: Path) -> list[tuple[int, int]]:
    """Return (base offset, number of records) of each batch of a log file."""
    return [
        (batch.base_offset, batch.next_offset - batch.base_offset)
        for batch in iter_batches(memoryview(path.read_bytes()))
    ]


def test_closed_segments_are_copied_unchanged_and_deleted_with_their_topic(
    tiered: LocalCluster, tier: Path, topic: str
) -> None:
    create_topic(tiered.bootstrap, topic, partitions=1, config=TIERED)
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(topic, value=b"%-1000d" % number, partition=0)
        producer.flush(10)
    data = Path(tiered.brokers[0].log_dirs[0])
    remote = tier / "kafka-tiered-storage"
    wait_until(lambda: is_empty(data / f"{topic}-0"), "everything is in the tier")
    copied = [entry for path in logs(remote, f"{topic}-0-*") for entry in batches(path)]
    assert copied == [(number, 1) for number in range(RECORDS)]
    assert {path.suffix for path in remote.glob("*/*")} == {
        ".log",
        ".index",
        ".timeindex",
        ".snapshot",
        ".leader_epoch_checkpoint",
    }
    metadata_events = sum(len(batches(path)) for path in logs(data, "__remote_log_metadata-*"))
    assert metadata_events == 2 * len(logs(remote, "*"))
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: not list(remote.glob("*/*.log")), "the topic's segments have left the tier")


def test_a_broker_without_the_tier_that_its_topics_need_does_not_start(tiered: LocalCluster, topic: str) -> None:
    create_topic(tiered.bootstrap, topic, partitions=1, config=TIERED)
    tiered.stop_node(1)
    properties = f"{tiered.directory}/broker-1/server.properties"
    sentence = refused("node", properties, "--override", "remote.log.storage.system.enable=false")
    assert sentence == (
        "You have to delete all topics with the property remote.storage.enable=true "
        "before disabling tiered storage cluster-wide"
    )


COMPACTED = {**TIERED, "cleanup.policy": "compact", "retention.ms": "-1"}


def test_a_compacted_topic_is_tiered_only_if_tier_compaction_is_enabled(tmp_path: Path, tier: Path, topic: str) -> None:
    overrides = settings(tier) | {"remote.log.compaction.enable": "true"}
    with LocalCluster.start(tmp_path / "cluster", brokers=1, overrides=overrides) as cluster:
        create_topic(cluster.bootstrap, topic, partitions=1, config=COMPACTED)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(topic, value=b"%-1000d" % number, key=b"%d" % number, partition=0)
            producer.flush(10)
        folder = Path(cluster.brokers[0].log_dirs[0]) / f"{topic}-0"
        wait_until(lambda: is_empty(folder), "everything is in the tier")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [message.key() for message in consumer.consume(RECORDS, 30)]
        consumer.close()
        assert found == [b"%d" % number for number in range(RECORDS)]
        cluster.stop_node(1)
        properties = f"{cluster.directory}/broker-1/server.properties"
        said = milena("node", properties, "--override", "remote.log.compaction.enable=false", code=1)
        assert "UNSUPPORTED_VERSION (compacted topics in the tier need remote.log.compaction.enable=true" in said.err


def test_compacted_topics_with_remote_storage_are_otherwise_refused_with_kafkas_message(
    tiered: LocalCluster, topic: str
) -> None:
    with pytest.raises(KafkaException, match=r"Remote log storage only supports topics with cleanup.policy=delete"):
        create_topic(tiered.bootstrap, topic, partitions=1, config=COMPACTED)
    create_topic(tiered.bootstrap, topic, partitions=1, config=TIERED)
    with pytest.raises(KafkaException, match=r"Remote log storage only supports topics with cleanup.policy=delete"):
        alter_topic(tiered.bootstrap, topic, {"cleanup.policy": "compact"})


def test_a_broker_without_a_remote_storage_manager_class_does_not_start(tmp_path: Path) -> None:
    values = combined(tmp_path, remote_log_storage_system_enable="true")
    assert "remote.log.storage.manager.class.name is missing" in refused("node", write(tmp_path, values))


def test_the_next_leader_continues_the_tier_of_a_killed_leader(tmp_path: Path, tier: Path, topic: str) -> None:
    """The killed broker returns to the ISR through the tier. (Up to 10 s: three brokers start, one of them twice.)"""
    replicated = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    }
    with LocalCluster.start(tmp_path / "cluster", brokers=3, overrides=settings(tier) | replicated) as cluster:
        create_topic(cluster.bootstrap, topic, partitions=1, config=TIERED)
        remote = tier / "kafka-tiered-storage"
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "batch.num.messages": 1}
        )
        send(producer, topic, range(RECORDS))
        wait_until(lambda: len(logs(remote, f"{topic}-0-*")) > 2, "the leader copies")
        leader = Places(cluster.bootstrap, topic).now()[0].leader
        cluster.kill(leader)
        send(producer, topic, range(RECORDS, 2 * RECORDS))
        cluster.restart(leader)
        data = [Path(broker.log_dirs[0]) for broker in cluster.brokers]
        wait_until(lambda: all(is_empty(folder / f"{topic}-0") for folder in data), "everything is in the tier")
        copied = {entry for path in logs(remote, f"{topic}-0-*") for entry in offsets(path)}
        assert copied == set(range(2 * RECORDS))


def send(producer: Producer, topic: str, numbers: range) -> None:
    errors: list[object] = []
    for number in numbers:
        producer.produce(
            topic, value=b"%-1000d" % number, partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(30) == 0
    assert errors == [None] * len(numbers)


def offsets(path: Path) -> set[int]:
    """Return all offsets of a log file."""
    return {offset + number for offset, count in batches(path) for number in range(count)}
