"""Transactions in a cluster of a Kafka broker and a Milena broker: each coordinates some, and leads partitions of all.
So each sends markers and AddPartitionsToTxn to the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from milena.protocol.records.hashing import partition_for_group
from milena.up.ports import free
from tests.oracle.differential.conftest import FEATURES
from tests.oracle.kafka_cluster import HOST, KafkaCluster, running_kafka_cluster, write_properties
from tests.oracle.milena_node import running_milena
from tests.wire.admin import Places, place_topic
from tests.wire.waiting import wait_until

KAFKA, OURS = 1, 2
TOPIC: Final = "out"
STATES: Final = "__transaction_state"
BOTH: Final = ([KAFKA, OURS], [OURS, KAFKA])
OVERRIDES: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
IDS: Final = [
    next(f"id-{number}" for number in range(start, 99) if partition_for_group(f"id-{number}", 2) == partition)
    for partition, start in ((0, 0), (1, 0), (0, 40), (1, 40))
]
"""Transactional ids of both partitions of __transaction_state."""

pytestmark = pytest.mark.costly


@dataclass
class Mixed:
    kafka: KafkaCluster
    bootstrap: str
    places: list[Places] = field(default_factory=list)

    def wait_for_both(self) -> None:
        """Wait until both brokers are in sync everywhere."""
        wait_until(
            lambda: all(place.isr == {KAFKA, OURS} for places in self.places for place in places.now()), "both in sync"
        )


@contextmanager
def mixed(folder: Path, version: int, ours: ExitStack) -> Iterator[tuple[Mixed, Path]]:
    """Both brokers, with partitions of the topic and of __transaction_state that each of them leads. Yields the
    configuration of Milena's, too."""
    features = FEATURES | {"transaction.version": version}
    with running_kafka_cluster(folder / "kafka", features=features, overrides=OVERRIDES, brokers=1) as kafka:
        port = free(HOST, 1)[0]
        file = folder / "milena" / "milena.properties"
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}", "node.id": str(OURS)}
        write_properties(file, {**own, "log.dirs": str(folder / "milena" / "data"), **kafka.quorum, **OVERRIDES})
        ours.enter_context(running_milena(file))
        bootstrap = f"{kafka.bootstrap},{HOST}:{port}"
        place_topic(bootstrap, STATES, BOTH, {"cleanup.policy": "compact"})
        place_topic(bootstrap, TOPIC, BOTH * 2)
        found = Mixed(kafka, bootstrap, [Places(bootstrap, name) for name in (STATES, TOPIC)])
        found.wait_for_both()
        yield found, file


class Transactions(threading.Thread):
    """Transactions of one id over all partitions, of which every third is aborted."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        super().__init__(daemon=True)
        self.committed: list[bytes] = []
        self.unknown: list[bytes] = []
        """Records of transactions whose commit has failed or timed out."""
        self._id = transactional_id
        self._settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        self._ended = threading.Event()
        self._count = 0

    def run(self) -> None:
        while not self._ended.is_set():
            producer = Producer(self._settings)
            try:
                producer.init_transactions(60)
                while not self._ended.is_set():
                    self._transaction(producer)
            except KafkaException:
                continue  # the next producer of the id ends the transaction

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        values = [b"%s-%d-%d" % (self._id.encode(), self._count, partition) for partition in range(4)]
        self._count += 1
        for partition, value in enumerate(values):
            producer.produce(TOPIC, value, partition=partition)
        if self._count % 3 == 0:
            producer.flush(30)
            producer.abort_transaction(30)
            return
        self.unknown += values
        producer.commit_transaction(30)
        self.unknown = [value for value in self.unknown if value not in values]
        self.committed += values

    def wait_for(self, more: int) -> None:
        """Wait for this many further committed records."""
        wanted = len(self.committed) + more
        wait_until(lambda: len(self.committed) >= wanted, f"{more} more records of {self._id}", 90)

    def end(self) -> None:
        self._ended.set()
        self.join(90)
        assert not self.is_alive()


def read_committed(bootstrap: str) -> set[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(4)])
    found: set[bytes] = set()
    ended: set[int | None] = set()
    while len(ended) < 4:
        message = consumer.poll(10.0)
        assert message is not None, "no record and no end of a partition"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
            continue
        value = message.value()
        assert value is not None and value not in found, value
        found.add(value)
    consumer.close()
    return found


def check(cluster: Mixed, loads: list[Transactions]) -> None:
    """All committed records can be read, once; of uncertain transactions all records or none."""
    committed = {value for load in loads for value in load.committed}
    unknown = {value for load in loads for value in load.unknown}
    wait_until(lambda: committed <= read_committed(cluster.bootstrap) <= committed | unknown, "the records", 60)
    extra = read_committed(cluster.bootstrap) - committed
    assert len(extra) % 4 == 0, extra


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_span_both_brokers(kafka_answers: None, tmp_path: Path, version: int) -> None:
    with ExitStack() as ours, mixed(tmp_path, version, ours) as (cluster, _):
        loads = [Transactions(cluster.bootstrap, transactional_id) for transactional_id in IDS]
        for load in loads:
            load.start()
        for load in loads:
            load.wait_for(40)
        for load in loads:
            load.end()
        check(cluster, loads)
        assert not any(load.unknown for load in loads)


def test_each_broker_takes_over_the_transactions_of_the_other(kafka_answers: None, tmp_path: Path) -> None:
    with ExitStack() as ours, mixed(tmp_path, 2, ours) as (cluster, file):
        loads = [Transactions(cluster.bootstrap, transactional_id) for transactional_id in IDS]
        for load in loads:
            load.start()
        for load in loads:
            load.wait_for(20)
        cluster.kafka.kill(KAFKA)
        for load in loads:
            load.wait_for(40)
        cluster.kafka.start(KAFKA)
        cluster.wait_for_both()
        for load in loads:
            load.wait_for(20)
        ours.close()
        for load in loads:
            load.wait_for(40)
        with running_milena(file):
            cluster.wait_for_both()
            for load in loads:
                load.wait_for(20)
            for load in loads:
                load.end()
            check(cluster, loads)
