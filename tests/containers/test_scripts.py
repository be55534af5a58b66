"""Kafka's scripts in the image, at the paths that health checks, entry points and tutorials name."""

from __future__ import annotations

import pytest

from tests.containers.engine import docker, started

HERE = ("--bootstrap-server", "localhost:9092")
pytestmark = pytest.mark.timeout(300)


def test_the_scripts_are_at_kafkas_paths_and_in_the_path() -> None:
    with started() as node:
        node.wait_healthy()
        assert "Fetch(1): 4 to 18" in node.run("/opt/kafka/bin/kafka-broker-api-versions.sh", *HERE)
        made = ("--create", "--if-not-exists", "--topic", "orders", "--partitions", "3", "--replication-factor", "1")
        assert node.run("./opt/kafka/bin/kafka-topics.sh", *HERE, *made) == "Created topic orders."
        assert node.run("kafka-topics", *HERE, "--list") == "orders"
        assert "PartitionCount: 3\t" in node.run("kafka-topics.sh", *HERE, "--describe", "--topic", "orders")
        script = (
            "echo key:value | /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server localhost:9092 "
            "--topic orders --property parse.key=true --property key.separator=:"
        )
        node.run("bash", "-c", script)
        reading = ("--topic", "orders", "--from-beginning", "--max-messages", "1", "--property", "print.key=true")
        assert node.run("/opt/kafka/bin/kafka-console-consumer.sh", *HERE, *reading) == "key\tvalue"
        assert len(node.run("/opt/kafka/bin/kafka-storage.sh", "random-uuid")) == 22


def test_an_entry_point_formats_and_starts_a_node() -> None:
    """As scripts do that come from the time before apache/kafka had a command of its own."""
    entry = (
        "sed 's#^log.dirs=.*#log.dirs=/tmp/data#' /opt/kafka/config/server.properties > /tmp/server.properties && "
        "/opt/kafka/bin/kafka-storage.sh format -t $(/opt/kafka/bin/kafka-storage.sh random-uuid) "
        "-c /tmp/server.properties --ignore-formatted && "
        "exec /opt/kafka/bin/kafka-server-start.sh /tmp/server.properties --override num.partitions=4"
    )
    with started("--env", "KAFKA_NODE_ID=7", command=["sh", "-c", entry]) as node:
        node.wait_healthy()
        node.run("kafka-topics.sh", *HERE, "--create", "--topic", "wide")
        assert "PartitionCount: 4\t" in node.run("kafka-topics.sh", *HERE, "--describe", "--topic", "wide")
        docker("stop", "--time", "60", node.id)
        assert node.ended() == 0
        assert "Formatting metadata directory /tmp/data with metadata.version" in node.log
