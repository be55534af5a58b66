"""The source reads transactions of real producers from the tier, and from the tier and the brokers: committed records
only, up to the first open transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import rows
from tests.wire.admin import create_topic
from tests.wire.tiers import logs, settings
from tests.wire.waiting import wait_until

TIERED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
}
PRODUCERS = 3
ENDED = 60
"""The number of transactions that end."""


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[LocalCluster]:
    """A topic ``t`` with transactions of several producers in turn, some aborted. That of ``p0`` is open."""
    with LocalCluster.start(tmp_path / "cluster", brokers=1, overrides=settings(tmp_path / "tier")) as running:
        create_topic(running.bootstrap, "t", partitions=1, config=TIERED)
        producers = [transactional(running, number) for number in range(PRODUCERS)]
        chosen = random.Random(1)
        for turn in range(ENDED):
            for number, producer in enumerate(producers):
                for _ in range(chosen.randrange(1, 8)):
                    producer.produce("t", b"%d-%d".ljust(200) % (turn, number), partition=0)
                producer.flush(30)
            ending = chosen.choice(producers)
            if chosen.random() < 0.4:
                ending.abort_transaction(30)
            else:
                ending.commit_transaction(30)
            ending.begin_transaction()
        for producer in producers[1:]:
            producer.commit_transaction(30)
        yield running


def transactional(running: LocalCluster, number: int) -> Producer:
    """Return a producer in a transaction."""
    given: dict[str, str | int] = {"bootstrap.servers": running.bootstrap, "linger.ms": 0}
    producer = Producer({**given, "transactional.id": f"p{number}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def consumed(running: LocalCluster) -> list[tuple[int, bytes]]:
    """Return the offsets and values that librdkafka reads with read_committed."""
    given: dict[str, str | bool] = {
        "bootstrap.servers": running.bootstrap,
        "group.id": "x",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**given, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[tuple[int, bytes]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        offset, value = message.offset(), message.value()
        assert offset is not None and value is not None
        found.append((offset, value))


def read(running: LocalCluster, **options: object) -> list[tuple[int, bytes]]:
    given = {"subscribe": "t", "isolation.level": "read_committed", **options}
    return [(row["offset"], row["value"]) for row in rows(**given)]


def test_the_source_reads_the_transactions_of_real_producers_as_consumers_do(
    tiered: LocalCluster, tmp_path: Path
) -> None:
    data, brokers = Path(tiered.brokers[0].log_dirs[0]), {"kafka.bootstrap.servers": tiered.bootstrap}
    both = {**brokers, "tier": str(tmp_path / "tier")}
    everything = read(tiered, **brokers, **{"isolation.level": "read_uncommitted"})
    stopped = consumed(tiered)
    assert stopped and stopped[-1][0] < everything[-1][0]
    assert read(tiered, **both) == read(tiered, **brokers) == stopped

    transactional(tiered, 0).abort_transaction(30)  # it aborts the open transaction of the former one, too
    wait_until(lambda: len(logs(data, "t-0")) == 1, "closed segments are in the tier")
    whole = consumed(tiered)
    assert whole[: len(stopped)] == stopped and len(stopped) < len(whole) < len(everything)
    assert read(tiered, **both) == read(tiered, **brokers) == whole
    of_tier = read(tiered, tier=tmp_path / "tier")
    assert len(of_tier) > len(stopped) // 2 and whole[: len(of_tier)] == of_tier
    aborted = len(read(tiered, tier=tmp_path / "tier", **{"isolation.level": "read_uncommitted"})) - len(of_tier)
    assert aborted > ENDED
