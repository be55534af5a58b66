"""Transactions of confluent-kafka while brokers are killed with -9: each is read whole or not at all, as its producer
was answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from milena.protocol.records.hashing import partition_for_group
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places, create_topic
from tests.wire.conftest import REPLICATED
from tests.wire.waiting import wait_until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(180)]

STATE = "__transaction_state"
LIMIT = 60.0
"""Seconds after which a client gives up."""
PARTITIONS = 6
TRANSACTIONS = 60
KILLS = {10: "coordinator", 30: "leader", 50: "coordinator"}
"""Before which transactions a broker is killed: that of the transactional id, or the leader of its first partition."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("kills"), brokers=3, overrides=REPLICATED) as running:
        yield running


class Writer:
    """Writes each transaction's name to two partitions. Every third one is aborted."""

    def __init__(self, cluster: LocalCluster, transactional_id: str, topic: str) -> None:
        self._topic = topic
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 0,
            }
        )
        self.producer.init_transactions(LIMIT)
        self.committed: set[str] = set()

    def partitions(self, number: int) -> tuple[int, int]:
        return number % PARTITIONS, (number + 1 + number % 3) % PARTITIONS

    def write(self, number: int) -> None:
        name, commit = f"transaction {number}", number % 3 != 0
        while True:
            self.producer.begin_transaction()
            try:
                for partition in self.partitions(number):
                    self.producer.produce(self._topic, name, partition=partition)
                self._end(commit)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._end(commit=False)  # the producer may try the transaction again
                continue
            if commit:
                self.committed.add(name)
            return

    def _end(self, commit: bool) -> None:
        if not commit:
            self.producer.flush(LIMIT)
        end = self.producer.commit_transaction if commit else self.producer.abort_transaction
        while True:
            try:
                end(LIMIT)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def read(cluster: LocalCluster, topic: str) -> Counter[str]:
    """How often each value is in the topic, for a consumer that reads committed records."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: Counter[str] = Counter()
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(LIMIT)
        assert message is not None, "the last stable offset does not reach the end"
        if message.error():
            ends += 1
        else:
            value = message.value()
            assert value is not None
            found[value.decode()] += 1
    consumer.close()
    return found


def test_each_transaction_is_whole_or_absent_after_kills(own: LocalCluster) -> None:
    topic = "outcomes"
    create_topic(own.bootstrap, topic, partitions=PARTITIONS)
    writer = Writer(own, topic, topic)
    for number in range(TRANSACTIONS):
        if number in KILLS:
            victim = leader(own, topic, KILLS[number], number)
            own.kill(victim)
            writer.write(number)
            own.restart(victim)
            wait_until(partial(in_sync, own, topic, victim), f"broker {victim} in the ISR")
        else:
            writer.write(number)
    assert len(writer.committed) == sum(number % 3 != 0 for number in range(TRANSACTIONS))
    assert read(own, topic) == dict.fromkeys(writer.committed, 2)


def in_sync(cluster: LocalCluster, topic: str, broker: int) -> bool:
    return all(Places(cluster.bootstrap, name).all_have(broker) for name in (topic, STATE))


def leader(cluster: LocalCluster, topic: str, role: str, number: int) -> int:
    """The broker that has ``role`` for the transaction ``number``."""
    if role == "leader":
        return Places(cluster.bootstrap, topic).now()[number % PARTITIONS].leader
    places = Places(cluster.bootstrap, STATE).now()
    return places[partition_for_group(topic, len(places))].leader
