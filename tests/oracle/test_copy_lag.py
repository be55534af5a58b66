"""``remote.copy.lag.*`` (KIP-1241): Kafka's broker and Milena's copy the same segments of the same log, and no more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.oracle.differential.conftest import FEATURES
from tests.oracle.kafka_node import running_kafka
from tests.oracle.tier_settings import tier_settings
from tests.wire.admin import alter_topic, place_topic
from tests.wire.waiting import wait_until

SEGMENT = 20_000
RECORDS = 40
"""Number of records of 1,000 bytes that fill two segments and begin a third."""
HOUR_MS = 3_600_000
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": str(SEGMENT)}
DEFAULTS = {"log.remote.copy.lag.ms": "-1", "log.remote.copy.lag.bytes": str(3 * SEGMENT)}
"""The brokers' defaults. With unlimited retention -1 means that the age is not considered."""


class Node:
    """A node with one replica of each topic and its own tier."""

    def __init__(self, title: str, node_id: int, bootstrap: str, data: Path, tier: Path) -> None:
        self.title = title
        self._id = node_id
        self._bootstrap = bootstrap
        self._data, self._tier = data, tier
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 1, "log_level": 0}
        self._producer = Producer(settings)

    def create(self, topic: str, config: Mapping[str, str]) -> None:
        place_topic(self._bootstrap, topic, [[self._id]], {**TIERED, "retention.ms": "-1", **config})

    def alter(self, topic: str, config: Mapping[str, str]) -> None:
        alter_topic(self._bootstrap, topic, config)

    def write(self, topic: str, *, age_ms: int = 0) -> None:
        now = int(time.time() * 1000)
        for number in range(RECORDS):
            self._producer.produce(topic, b"%-1000d" % number, partition=0, timestamp=now - age_ms)
        assert self._producer.flush(30) == 0

    def sizes(self, topic: str) -> list[int]:
        """Return the sizes of the local segments, oldest first."""
        return [path.stat().st_size for path in sorted((self._data / f"{topic}-0").glob("*.log"))]

    def copied(self, topic: str) -> int:
        return len(list(self._tier.glob(f"kafka-tiered-storage/{topic}-0-*/*.log")))


@pytest.fixture(scope="module")
def nodes(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    folder = tmp_path_factory.mktemp("lag")
    ours, theirs = (tier_settings(folder / name) | DEFAULTS for name in ("ours", "theirs"))
    overrides = {key.replace(".", "_"): value for key, value in theirs.items()}
    with (
        LocalCluster.start(folder / "milena", overrides=ours) as cluster,
        running_kafka(folder / "kafka", features=FEATURES, static_voter=True, **overrides) as node,
    ):
        broker = cluster.brokers[0]
        host, port = node.broker
        yield [
            Node("Kafka", node.node_id, f"{host}:{port}", node.log_dir, folder / "theirs"),
            Node("Milena", broker.id, cluster.bootstrap, Path(broker.log_dirs[0]), folder / "ours"),
        ]


def until_copied(nodes: list[Node], topic: str, expected: int) -> None:
    """Wait until each node has copied as many segments; none may ever have copied more."""

    def copied() -> bool:
        found = [node.copied(topic) for node in nodes]
        assert max(found) <= expected, f"{found} segments of {topic} are copied, not {expected}"
        return min(found) == expected

    wait_until(copied, f"{expected} segments of {topic} to be copied", 30)


def due_by_size(node: Node, topic: str, lag: int) -> int:
    """Return how many segments have at least ``lag`` bytes after them."""
    sizes = node.sizes(topic)
    return sum(1 for number in range(len(sizes) - 1) if sum(sizes[number + 1 :]) >= lag)


@pytest.mark.parametrize(
    ("topic", "config", "lag"),
    [
        ("own", {"remote.copy.lag.bytes": str(SEGMENT + 5000)}, SEGMENT + 5000),
        ("default", {}, 3 * SEGMENT),
    ],
)
def test_segments_are_copied_when_enough_bytes_follow(
    nodes: list[Node], topic: str, config: dict[str, str], lag: int
) -> None:
    for node in nodes:
        node.create(topic, config)
    for _ in range(2):
        for node in nodes:
            node.write(topic)
    kafka, milena = nodes
    assert kafka.sizes(topic) == milena.sizes(topic)
    until_copied(nodes, topic, due_by_size(kafka, topic, lag))
    for node in nodes:
        node.write(topic)
    until_copied(nodes, topic, due_by_size(kafka, topic, lag))
    for node in nodes:
        node.alter(topic, {"remote.copy.lag.bytes": "0"})
    until_copied(nodes, topic, len(kafka.sizes(topic)) - 1)


def test_without_a_lag_of_its_own_local_retention_is_the_lag(nodes: list[Node]) -> None:
    limits = {"remote.copy.lag.bytes": "-1", "local.retention.bytes": "50000", "retention.bytes": "900000"}
    for node in nodes:
        node.create("local", limits)
        node.write("local")
        node.write("local")
    until_copied(nodes, "local", 1)  # three whole segments and a part follow the first one
    for node in nodes:
        node.write("local")
    until_copied(nodes, "local", 4)


def test_segments_are_copied_when_they_are_old_enough_and_in_order(nodes: list[Node]) -> None:
    topic = "aged"
    for node in nodes:
        node.create(topic, {"remote.copy.lag.ms": str(HOUR_MS), "remote.copy.lag.bytes": "-1"})
        node.write(topic, age_ms=2 * HOUR_MS)
    closed = len(nodes[0].sizes(topic)) - 1
    until_copied(nodes, topic, closed)
    for node in nodes:
        node.write(topic)
        node.write(topic, age_ms=2 * HOUR_MS)
    assert nodes[0].sizes(topic) == nodes[1].sizes(topic)
    # The segment that was active has recent records now, too, and keeps back the later ones.
    until_copied(nodes, topic, closed)
    for node in nodes:
        node.alter(topic, {"remote.copy.lag.ms": "0"})
    until_copied(nodes, topic, len(nodes[0].sizes(topic)) - 1)
