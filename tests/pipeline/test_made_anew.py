"""A topic that is deleted and made anew has other records at the same offsets: none of them is taken for the old one's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from milena.pipeline.errors import DataLoss
from milena.pipeline.source import MilenaReader
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import reader_of, tasks
from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("anew"), brokers=1) as found:
        yield found


def filled(running: LocalCluster, topic: str, value: bytes) -> None:
    create_topic(running.bootstrap, topic, partitions=1)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for _ in range(100):
        producer.produce(topic, value, partition=0)
    producer.flush(30)


def deleted(running: LocalCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.delete_topics([topic], operation_timeout=10)[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


def values(reader: MilenaReader, planned: list) -> list[bytes]:
    return [row["value"] for task in planned for made in reader.read(task) for row in made.to_pylist()]


def test_a_topic_that_is_made_anew_between_planning_and_reading_is_a_loss(running: LocalCluster) -> None:
    filled(running, "orders", b"old")
    options = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": "orders"}
    strict, lenient = reader_of(**options), reader_of(**options, failOnDataLoss="false")
    planned, other = tasks(strict), tasks(lenient)
    assert values(strict, planned) == [b"old"] * 100
    deleted(running, "orders")
    filled(running, "orders", b"new")
    with pytest.raises(DataLoss, match="topic orders was deleted and made anew: it had the id .*, and has .* now"):
        values(strict, planned)
    assert values(lenient, other) == []
