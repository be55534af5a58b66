"""Transactions whose records are in the tier: read by a consumer of committed records, and restored without the
brokers' disks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.command import milena
from tests.wire.tiers import logs, settings
from tests.wire.waiting import wait_until

TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "10000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
SIZE = 1000

pytestmark = pytest.mark.slow


def write(producer: Producer, *values: bytes) -> None:
    """Write each value in a batch of its own."""
    for value in values:
        producer.produce("t", value.ljust(SIZE), partition=0)
        assert producer.flush(30) == 0


def new_producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    return producer


def read_committed(bootstrap: str) -> list[bytes]:
    common = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(common | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(20.0)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        value = message.value()
        assert value is not None
        found.append(value.rstrip())


def test_transactions_are_read_from_the_tier_and_after_a_restore(tmp_path: Path) -> None:
    """A transaction whose marker was not copied is aborted by the restore, which names its producer."""
    folder = tmp_path / "cluster"
    with LocalCluster.start(folder, brokers=1, overrides=settings(tmp_path / "tier")) as running:
        bootstrap = running.bootstrap
        create_topic(bootstrap, "t", partitions=1, config=TIERED)
        first, second = new_producer(bootstrap, "first"), new_producer(bootstrap, "second")
        expected: list[bytes] = []
        for number in range(6):
            first.begin_transaction()
            second.begin_transaction()
            for part in range(4):
                write(first, b"first-%d-%d" % (number, part))
                write(second, b"second-%d-%d" % (number, part))
            first.commit_transaction(30)
            second.abort_transaction(30)
            expected += [b"first-%d-%d" % (number, part) for part in range(4)]
        data = Path(running.brokers[0].log_dirs[0])
        wait_until(lambda: len(logs(data, "t-0")) == 1, "closed segments are in the tier")
        assert len(logs(tmp_path / "tier" / "kafka-tiered-storage", "t-0-*")) >= 4
        assert read_committed(bootstrap) == expected
        first.begin_transaction()
        write(first, *[b"cut-%d" % part for part in range(12)])  # its marker is not in the last segment that is copied
        first.commit_transaction(30)
        del first, second
        wait_until(lambda: len(read_committed(bootstrap)) == len(expected) + 12, "the transaction has ended")
        wait_until(lambda: len(logs(data, "t-0")) == 1, "closed segments are in the tier")
    shutil.rmtree(folder)
    few = "rlmm.config.remote.log.metadata.topic.num.partitions=3"
    where = ["--tier", str(tmp_path / "tier"), "--dir", str(folder)]
    said = milena("tier", "restore", *where, "--brokers", "1", "--override", few)
    assert "t-0: transactions are aborted whose ends are not in the tier, of the producers" in said.out + said.err
    with LocalCluster.start(folder, brokers=None, overrides=settings(tmp_path / "tier")) as running:
        bootstrap = running.bootstrap
        assert read_committed(bootstrap) == expected
        third = new_producer(bootstrap, "first")
        third.begin_transaction()
        write(third, b"after")
        third.commit_transaction(30)
        wait_until(lambda: read_committed(bootstrap) == [*expected, b"after"], "the transaction has ended")
