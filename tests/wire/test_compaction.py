"""Compacted topics on real processes: what clients read after cleaner workers and the broker were killed with -9."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import alter_topic, create_topic
from tests.wire.compacted import broker_pid, is_clean, read, workers, write_each_key
from tests.wire.waiting import wait_gone, wait_until

pytestmark = pytest.mark.timeout(180)

KEYS, UPDATES = 1000, 50
OFFSETS = "__consumer_offsets"
SMALL = {"internal.segment.bytes": "100000", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.io.max.bytes.per.second": "3000000",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path / "cluster", brokers=1, overrides=SETTINGS) as running:
        yield running


def log_dir(cluster: LocalCluster) -> str:
    (broker,) = cluster.brokers
    return broker.log_dirs[0]


def test_each_key_keeps_its_last_value_although_workers_and_the_broker_are_killed(own: LocalCluster) -> None:
    create_topic(own.bootstrap, "t", 1, config={"cleanup.policy": "compact", **SMALL})
    producer = Producer({"bootstrap.servers": own.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    last: dict[bytes, bytes] = {}
    for update in range(UPDATES):
        last |= write_each_key(producer, KEYS, update)
        if update % 10 == 9:
            wait_until(lambda: bool(workers(broker_pid(own))), "a worker to clean")
            for pid in workers(broker_pid(own)):
                with suppress(ProcessLookupError):  # the idle worker has ended
                    os.kill(pid, signal.SIGKILL)
        if update == UPDATES // 2:
            wait_until(lambda: bool(workers(broker_pid(own))), "a worker to clean")
            left = workers(broker_pid(own))
            own.kill(own.brokers[0].id)
            wait_gone(left, 10)
            own.restart(own.brokers[0].id)
    assert own.log(own.brokers[0].id).count("the worker process has ended") >= 1
    wait_until(lambda: is_clean(log_dir(own), "t-0"), "all closed segments to be clean")
    count, found = read(own.bootstrap, "t")
    assert found == last
    assert count < KEYS * UPDATES / 5
    wait_until(lambda: not workers(broker_pid(own)), "idle workers to end")
    assert "log cannot be cleaned" not in own.log(own.brokers[0].id)
    own.stop_node(own.brokers[0].id)
    own.start_node(own.brokers[0].id)
    assert read(own.bootstrap, "t") == (count, last)


def test_a_broker_shuts_down_although_a_cleaner_worker_hangs(own: LocalCluster) -> None:
    """The broker kills the worker, and waits for the end of its process."""
    create_topic(own.bootstrap, "t", 1, config={"cleanup.policy": "compact", **SMALL})
    producer = Producer({"bootstrap.servers": own.bootstrap, "linger.ms": 20})
    for number in range(UPDATES * KEYS):
        producer.produce("t", os.urandom(50), key=b"key-%d" % (number % KEYS), partition=0)
        if number % KEYS == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
    wait_until(lambda: bool(workers(broker_pid(own))), "a worker to clean")
    left = workers(broker_pid(own))
    os.kill(left[0], signal.SIGSTOP)
    own.stop_node(own.brokers[0].id)
    wait_gone(left, 10)
    assert "Traceback" not in own.log(own.brokers[0].id)
    own.start_node(own.brokers[0].id)
    assert len(read(own.bootstrap, "t")[1]) == KEYS


def test_the_offsets_of_a_group_outlive_compaction_and_a_kill(own: LocalCluster) -> None:
    create_topic(own.bootstrap, "t", 1)
    settings = {"bootstrap.servers": own.bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer(settings)

    def commit(offset: int) -> None:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)

    commit(0)
    alter_topic(own.bootstrap, OFFSETS, {**SMALL, "internal.segment.bytes": "5000"})
    for offset in range(500):
        commit(offset)
    consumer.close()
    wait_until(lambda: is_clean(log_dir(own), f"{OFFSETS}-0"), "the groups' offsets to be compacted")
    (broker,) = own.brokers
    size = sum(path.stat().st_size for path in (Path(broker.log_dirs[0]) / f"{OFFSETS}-0").glob("*.log"))
    assert size < 500 * 50
    own.kill(broker.id)
    own.restart(broker.id)
    again = Consumer(settings)
    (found,) = again.committed([TopicPartition("t", 0)], timeout=20)
    assert found.offset == 499
    again.close()
