"""Kafka's VerifiableProducer and VerifiableConsumer: each node of the cluster is killed with -9 and comes back."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.conftest import RECORDS, REPLICATED
from tests.oracle.kafka import java
from tests.oracle.tools import VERIFIABLE_CONSUMER, VERIFIABLE_PRODUCER
from tests.wire.admin import Places
from tests.wire.waiting import wait_until

TOPIC = "verified"
PARTITIONS = 6
PACE = max(RECORDS // 20, 500)
"""Records per second, few enough that the kills happen while the producer runs."""

Values = dict[tuple[int, int], str]
"""Values by partition and offset."""


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n"))


def test_no_acknowledged_record_is_lost_or_duplicated(tmp_path: Path) -> None:
    overrides = REPLICATED | {"group.initial.rebalance.delay.ms": "0"}
    topics = [f"{TOPIC}:{PARTITIONS}:3"]
    with LocalCluster.start(tmp_path, brokers=3, topics=topics, overrides=overrides) as cluster:
        arguments = ("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC)
        # The tool's own producer settings have no retries.
        config = tmp_path / "producer.properties"
        config.write_text("retries=2147483647\nenable.idempotence=true\n")
        options = ("--acks", "-1", "--throughput", str(PACE), "--repeating-keys", "50", "--command-config", str(config))
        # The group's coordinator is killed, too, because all brokers are killed in turn.
        with reading(tmp_path / "consumer.out", *arguments) as read:
            acknowledged = produce(cluster, *arguments, "--max-messages", str(RECORDS), *options)
            assert Counter(acknowledged.values()) == Counter(map(str, range(RECORDS)))
            assert everything(cluster) == acknowledged
            wait_until(lambda: len(read()) >= RECORDS, "the group to have read all", 60)
            assert read() == acknowledged


@contextmanager
def reading(said: Path, *arguments: str) -> Iterator[Any]:
    """A consumer in a separate group; yields a function that returns the values that it has read so far."""
    group = ("--group-id", "verifiers", "--reset-policy", "earliest", "--verbose")

    def read() -> Values:
        with said.open() as lines:
            found = [event for event in events(lines) if event["name"] == "record_data"]
        return {(event["partition"], event["offset"]): event["value"] for event in found}

    with said.open("w") as out:
        consumer = subprocess.Popen(java(VERIFIABLE_CONSUMER, *arguments, *group), stdout=out)
        try:
            yield read
        finally:
            consumer.kill()
            consumer.wait()


def produce(cluster: LocalCluster, *arguments: str) -> Values:
    """Produce and return the acknowledged values. After each fifth of the records one node is killed and restarted."""
    victims = iter([*(node.id for node in cluster.brokers), cluster.controller.id])
    acknowledged: Values = {}
    with subprocess.Popen(java(VERIFIABLE_PRODUCER, *arguments), stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        for event in events(producer.stdout):
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                acknowledged[event["partition"], event["offset"]] = event["value"]
                if len(acknowledged) % (RECORDS // 5) == 0 and (victim := next(victims, None)) is not None:
                    kill_and_bring_back(cluster, victim)
    return acknowledged


def kill_and_bring_back(cluster: LocalCluster, victim: int) -> None:
    """Kill a node and restart it: a broker when it has left the ISR. Return when it is in the ISR again."""
    cluster.kill(victim)
    places = Places(cluster.bootstrap, TOPIC)
    is_broker = victim != cluster.controller.id
    if is_broker:
        wait_until(lambda: places.none_has(victim), f"the other brokers to work without {victim}")
    cluster.restart(victim)
    if is_broker:
        wait_until(lambda: places.all_have(victim), f"broker {victim} to be in sync")


def everything(cluster: LocalCluster) -> Values:
    """Return all records in the topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "auto.offset.reset": "earliest"})
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    ends = {one.partition: consumer.get_watermark_offsets(one, timeout=20)[1] for one in partitions}
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found = consumer.consume(sum(ends.values()), timeout=60)
    consumer.close()
    return {(one.partition() or 0, one.offset() or 0): (one.value() or b"").decode() for one in found}
