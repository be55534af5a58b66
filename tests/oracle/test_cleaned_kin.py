"""Cleaned logs are copied between brokers of Milena and Kafka, with gaps, tombstones, and the empty batches that mark
the start offsets of leader epochs in Milena."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.oracle.conftest import RECORDS
from tests.oracle.joining import KAFKA, joined_kafka
from tests.oracle.tools import ELECT, REASSIGN, Tools
from tests.wire.admin import Places, place_topic
from tests.wire.compacted import is_clean, read
from tests.wire.waiting import wait_until

TOPIC: Final = "kin"
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.01",
}
SETTINGS: Final = {
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "300",
}

pytestmark = [
    pytest.mark.skipif(RECORDS <= 2000, reason="only without SHORT=1"),
]


class Partition:
    """The only partition of the topic, and the last value of each key."""

    def __init__(self, cluster: LocalCluster, tools: Tools, plan: Path) -> None:
        self.cluster = cluster
        self._tools = tools
        self._plan = plan
        self._places = Places(cluster.bootstrap, TOPIC)
        self.last: dict[bytes, bytes | None] = {}

    def update(self, name: str) -> None:
        settings = {"bootstrap.servers": self.cluster.bootstrap, "log_level": 0, "batch.num.messages": 10}
        producer = Producer(settings | {"linger.ms": 20})
        for number in range(400):
            key = b"key %d" % (number % 40)
            self.last[key] = None if number % 13 == 5 else f"{name} {number}".encode()
            producer.produce(TOPIC, self.last[key], key, 0)
        assert producer.flush(30) == 0

    def led_by(self, leader: int, *isr: int) -> None:
        wait_until(lambda: self._places.now() == [(leader, frozenset(isr))], f"{leader} to lead {isr}")

    def move(self, *replicas: int) -> None:
        """Reassign the partition to these replicas; the first of them becomes the leader."""
        partition = {"topic": TOPIC, "partition": 0}
        self._plan.write_text(json.dumps({"version": 1, "partitions": [partition | {"replicas": replicas}]}))
        server, file = ("--bootstrap-server", self.cluster.bootstrap), str(self._plan)
        self._tools(REASSIGN, *server, "--execute", "--reassignment-json-file", file)
        wait_until(lambda: self._places.now()[0].isr == set(replicas), f"{replicas} to be in sync")
        self._plan.write_text(json.dumps({"partitions": [partition]}))
        self._tools.run(ELECT, *server, "--election-type", "preferred", "--path-to-json-file", file)
        self.led_by(replicas[0], *replicas)

    def clean_in(self, *folders: Path | str) -> None:
        wait_until(lambda: all(is_clean(str(folder), f"{TOPIC}-0") for folder in folders), "the log to be clean", 60)

    def read(self) -> Mapping[bytes, bytes | None]:
        count, found = read(self.cluster.bootstrap, TOPIC)
        assert count < 100
        return found


def epochs(log_dir: Path | str) -> list[tuple[int, int]]:
    """Return leader epochs and start offsets from leader-epoch-checkpoint."""
    lines = Path(log_dir, f"{TOPIC}-0", "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]


def test_a_cleaned_log_is_copied_from_milena_to_kafka_and_back(tools: Tools, tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path / "milena", brokers=2, overrides=SETTINGS) as cluster:
        place_topic(cluster.bootstrap, TOPIC, [[1, 2]], COMPACTED)
        partition = Partition(cluster, tools, tmp_path / "plan.json")
        ours = [node.log_dirs[0] for node in cluster.brokers]
        partition.update("epoch 0")
        for leader, other in ((1, 2), (2, 1), (1, 2)):
            cluster.kill(leader)
            partition.led_by(other, other)
            partition.update(f"{leader} was killed")
            cluster.restart(leader)
            partition.led_by(other, 1, 2)
        partition.update("the last")
        partition.clean_in(*ours)
        assert partition.read() == partition.last
        with joined_kafka(cluster, tmp_path / "kafka", SETTINGS) as kin:
            partition.move(KAFKA, 1)
            assert epochs(kin.data)[:-1] == epochs(ours[0])[-4:] == [(0, 0), (1, 400), (2, 800), (3, 1200)]
            assert partition.read() == partition.last
            partition.update("Kafka leads")
            partition.clean_in(kin.data, ours[0])
            assert partition.read() == partition.last
            partition.move(2, KAFKA)
            assert partition.read() == partition.last
        partition.led_by(2, 2)
        assert partition.read() == partition.last
