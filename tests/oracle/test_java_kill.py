"""Kafka's VerifiableProducer and VerifiableConsumer: each node of the cluster is killed with -9 and comes back."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from milena.local_cluster import LocalCluster
from tests.oracle.conftest import RECORDS
from tests.oracle.kafka import java, tool
from tests.oracle.tools import VERIFIABLE_CONSUMER, VERIFIABLE_PRODUCER

TOPIC = "verified"
PARTITIONS = 6
PACE = max(RECORDS // 20, 500)
"""Records a second: slow enough that the kills fall in between."""

pytestmark = pytest.mark.timeout(180)


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in lines if line.startswith("{"))


def test_nothing_acknowledged_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    # A broker is not registered anew before its earlier session has run out.
    sessions = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
    overrides = sessions | {"group.initial.rebalance.delay.ms": "0"}
    topics = [f"{TOPIC}:{PARTITIONS}:1"]
    with LocalCluster.start(tmp_path, brokers=3, topics=topics, overrides=overrides) as cluster:
        arguments = ("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--max-messages", str(RECORDS))
        # By itself the tool does not try again.
        config = tmp_path / "producer.properties"
        config.write_text("retries=2147483647\nenable.idempotence=true\n")
        options = ("--acks", "-1", "--throughput", str(PACE), "--repeating-keys", "50", "--command-config", str(config))
        acknowledged = produce(cluster, *arguments, *options)
        assert Counter(acknowledged.values()) == Counter(map(str, range(RECORDS)))
        assert everything(cluster) == acknowledged
        group = ("--group-id", "verifiers", "--reset-policy", "earliest", "--verbose")
        said = tool(VERIFIABLE_CONSUMER, *arguments, *group, timeout=60)
        read = [event for event in events(iter(said.splitlines())) if event["name"] == "record_data"]
        assert {(event["partition"], event["offset"]): event["value"] for event in read} == acknowledged


def produce(cluster: LocalCluster, *arguments: str) -> dict[tuple[int, int], str]:
    """Values by partition and offset. Between any two fifths of the records one node is killed and comes back."""
    victims = iter([*(node.id for node in cluster.brokers), cluster.controller.id])
    acknowledged: dict[tuple[int, int], str] = {}
    with subprocess.Popen(java(VERIFIABLE_PRODUCER, *arguments), stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        for event in events(producer.stdout):
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                acknowledged[event["partition"], event["offset"]] = event["value"]
                if len(acknowledged) % (RECORDS // 5) == 0 and (victim := next(victims, None)) is not None:
                    cluster.kill(victim)
                    cluster.restart(victim)
    return acknowledged


def everything(cluster: LocalCluster) -> dict[tuple[int, int], str]:
    """All records that are in the topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "auto.offset.reset": "earliest"})
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    ends = {one.partition: consumer.get_watermark_offsets(one, timeout=20)[1] for one in partitions}
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found = consumer.consume(sum(ends.values()), timeout=60)
    consumer.close()
    return {(one.partition() or 0, one.offset() or 0): (one.value() or b"").decode() for one in found}
