"""Each client writes, reads in a group, and reads everything again after a restart of the cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.clients import CODECS, Record, WireClient, all_clients
from tests.wire.conftest import REPLICATED


def numbered(count: int) -> list[Record]:
    return [(f"key-{number % 13}".encode(), f"value {number:06d}".encode()) for number in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_written_records_are_read_back(cluster: LocalCluster, client: WireClient, topic: str, codec: str) -> None:
    create_topic(cluster.bootstrap, topic)
    records = numbered(300)
    assert sorted(client.produce(cluster.bootstrap, topic, records, codec=codec)) == list(range(300))
    found = client.consume(cluster.bootstrap, topic, 300, group=topic)
    assert sorted(record for _, _, record in found) == sorted(records)


def test_records_of_a_key_stay_in_one_partition_in_order(cluster: LocalCluster, client: WireClient, topic: str) -> None:
    create_topic(cluster.bootstrap, topic)
    records = numbered(200)
    client.produce(cluster.bootstrap, topic, records)
    found = client.consume(cluster.bootstrap, topic, 200, group=topic)
    for key in {key for key, _ in records}:
        places = [(partition, offset, value) for partition, offset, (its_key, value) in found if its_key == key]
        assert len({partition for partition, _, _ in places}) == 1
        by_offset = [value for _, _, value in sorted(places)]
        assert by_offset == [value for its_key, value in records if its_key == key]


def test_a_group_continues_from_its_committed_offsets(cluster: LocalCluster, client: WireClient, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    client.produce(cluster.bootstrap, topic, numbered(100))
    first = client.consume(cluster.bootstrap, topic, 40, group=topic)
    assert [offset for _, offset, _ in first] == list(range(40))
    second = client.consume(cluster.bootstrap, topic, 60, group=topic)
    assert [offset for _, offset, _ in second] == list(range(40, 100))


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A restarted cluster with a topic of each client. It was stopped when a group had read 50 of the topic's
    records."""
    folder = tmp_path_factory.mktemp("restarted")
    with LocalCluster.start(folder, brokers=3, overrides=REPLICATED) as before:
        for client in all_clients():
            create_topic(before.bootstrap, client.name, partitions=2)
            client.produce(before.bootstrap, client.name, numbered(200))
            assert len(client.consume(before.bootstrap, client.name, 50, group=client.name)) == 50
    with LocalCluster.start(folder, brokers=3, overrides=REPLICATED) as after:
        yield after


def test_records_and_committed_offsets_survive_a_restart(restarted: LocalCluster, client: WireClient) -> None:
    rest = client.consume(restarted.bootstrap, client.name, 150, group=client.name)
    again = client.consume(restarted.bootstrap, client.name, 200, group=f"{client.name}-new")
    assert sorted(record for _, _, record in again) == sorted(numbered(200))
    assert {(p, o) for p, o, _ in rest} < {(p, o) for p, o, _ in again}


def test_kcat_lists_brokers_and_creates_topics_automatically(cluster: LocalCluster, topic: str) -> None:
    listing = kcat("-b", cluster.bootstrap, "-L")
    assert " 3 brokers:" in listing
    for node in cluster.brokers:
        assert f"broker {node.id} at {node.listeners['PLAINTEXT']}" in listing
    kcat("-b", cluster.bootstrap, "-P", "-t", topic, stdin="one\ntwo\n")
    assert kcat("-b", cluster.bootstrap, "-C", "-t", topic, "-e", "-q").splitlines() == ["one", "two"]


def test_headers_timestamps_and_nulls_survive(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    producer.produce(topic, value=None, key=None, headers=headers, timestamp=1_700_000_000_123)
    producer.produce(topic, value=b"", key=b"", timestamp=1_700_000_000_124)
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first, second = consumer.consume(2, timeout=10)
    consumer.close()
    assert (first.key(), first.value(), first.headers(), first.timestamp()[1]) == (
        None,
        None,
        headers,
        1_700_000_000_123,
    )
    assert (second.key(), second.value(), second.timestamp()[1]) == (b"", b"", 1_700_000_000_124)


def kcat(*arguments: str, stdin: str = "") -> str:
    """Run kcat and return its standard output. Skips the test if it is not installed."""
    try:
        done = subprocess.run(
            ["kcat", *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        pytest.skip("kcat is not installed")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_topics_of_the_command_line_exist_when_the_cluster_is_ready(milena_start: Callable[..., LocalCluster]) -> None:
    name = f"orders-{os.urandom(2).hex()}"
    started = milena_start(topics=[f"{name}:4:1"])
    assert f'topic "{name}" with 4 partitions' in kcat("-b", started.bootstrap, "-L", "-t", name)
