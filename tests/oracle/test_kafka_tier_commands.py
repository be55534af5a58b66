"""`milena tier` on a tier that Kafka has written: it finds no damage, and restores a Milena cluster from it."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster
from tests.oracle.kafka_node import running_kafka
from tests.oracle.tier_settings import tier_settings
from tests.wire.admin import create_topic
from tests.wire.command import milena
from tests.wire.waiting import wait_until

TOPIC = "kept"
ROUNDS = 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

TRANSACTIONS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


def write(bootstrap: str) -> list[bytes]:
    """Write records in all codecs in transactions, and abort each third. Return the values of the committed ones."""
    kept = []
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": codec,
                "compression.type": codec,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        for number in range(ROUNDS):
            producer.begin_transaction()
            values = [f"{codec} {number} {one} ".encode().ljust(600, b"x") for one in range(3)]
            for value in values:
                producer.produce(TOPIC, value, partition=0)
            if number % 3:
                producer.commit_transaction(30)
                kept += values
            else:
                producer.flush(30)
                producer.abort_transaction(30)
    return kept


def test_segments_that_kafka_has_copied_are_verified_and_served_by_a_restored_cluster(
    kafka_answers: None, tmp_path: Path
) -> None:
    """(Takes about 25 s: a Kafka broker starts and copies segments.)"""
    tier, data = tmp_path / "tier", tmp_path / "kafka" / "data"
    with running_kafka(tmp_path / "kafka", **tier_settings(tier) | TRANSACTIONS) as node:
        bootstrap = "{}:{}".format(*node.broker)
        config = {"internal.segment.bytes": "6000", "local.retention.bytes": "1", "file.delete.delay.ms": "0"}
        create_topic(bootstrap, TOPIC, partitions=1, config={"remote.storage.enable": "true", **config})
        written = write(bootstrap)
        folder = data / f"{TOPIC}-0"
        wait_until(lambda: len(list(folder.glob("*.log"))) == 1, "closed segments are in the tier", 60)
    for options in (["--dir", str(data)], []):
        found = json.loads(milena("tier", "verify", "--tier", str(tier), *options, "--json").out)
        assert found["findings"] == [] and found["segments"] > 5
    listed = json.loads(milena("tier", "ls", "--tier", str(tier), "--dir", str(data), "--json").out)
    assert {(one["state"], one["lineage"]) for one in listed["segments"]} == {("COPY_SEGMENT_FINISHED", "yes")}
    assert any(".txnindex" in one["objects"] for one in listed["segments"])
    for number, options in enumerate((["--metadata", str(data)], [])):
        again = tmp_path / f"again-{number}"
        milena("tier", "restore", "--tier", str(tier), "--dir", str(again), "--brokers", "1", *options)
        with LocalCluster.start(again, brokers=1) as running:
            found = committed(running.bootstrap, listed["segments"][-1]["end_offset"])
            assert found == written[: len(found)] and len(found) > len(written) // 2


def committed(bootstrap: str, last: int) -> list[bytes]:
    """Return the values of committed records up to offset ``last``."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    while True:
        record = consumer.poll(20)
        assert record is not None, f"nothing more after {len(values)} records"
        if record.error():
            break
        assert (record.offset() or 0) <= last
        values.append(record.value() or b"")
    consumer.close()
    return values
