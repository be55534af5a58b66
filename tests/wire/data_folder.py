"""A small data folder in tests/fixtures, written by an earlier release: every later release must read it.

python -m tests.wire.data_folder tests/fixtures/data-NAME     makes one with the current code
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.clients import CODECS

TOPIC, TRIMMED, COMPACTED, GROUP = "every-codec", "trimmed", "compacted", "readers"
TRIMMED_AT, COMMITTED, PER_CODEC = 7, 5, 6
OVERRIDES = {
    "offsets.topic.num.partitions": "2",
    # records may be years old when a later release opens the folder
    "offsets.retention.minutes": "2147483647",
    "log.retention.ms": "-1",
}
OF_A_RUN = (".lock", ".alive", ".status", "nodes.json", "nodes.json.lock", "logs", "server.properties", "up.stderr")


def fill(bootstrap: str) -> None:
    """Write the topics, records and offsets for which ``check`` looks."""
    create_topic(bootstrap, TOPIC, partitions=1, config={"segment.bytes": "1048576", "retention.ms": "-1"})
    create_topic(bootstrap, TRIMMED, partitions=2)
    create_topic(bootstrap, COMPACTED, partitions=1, config={"cleanup.policy": "compact"})
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for number in range(PER_CODEC):
            producer.produce(TOPIC, f"{codec} {number}", f"key {number}", headers=[("codec", codec.encode())])
        assert producer.flush(10) == 0
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(TRIMMED, f"value {number}", partition=1)
    producer.produce(COMPACTED, None, "tombstone")
    assert producer.flush(10) == 0
    before = TopicPartition(TRIMMED, 1, TRIMMED_AT)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([before])[before].result(10)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def check(bootstrap: str) -> None:
    """Assert that everything that ``fill`` wrote can be read."""
    settings = {"group.id": GROUP, "auto.offset.reset": "error", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    assert consumer.committed([TopicPartition(TOPIC, 0)], timeout=20)[0].offset == COMMITTED
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    total = PER_CODEC * len(CODECS)
    found = consumer.consume(total, timeout=20)
    written = [f"{codec} {number}".encode() for codec in CODECS for number in range(PER_CODEC)]
    assert [message.value() for message in found] == written
    assert found[0].headers() == [("codec", b"none")] and found[-1].key() == b"key 5"
    assert consumer.get_watermark_offsets(TopicPartition(TRIMMED, 1), timeout=20) == (TRIMMED_AT, 10)
    consumer.assign([TopicPartition(COMPACTED, 0, 0)])
    (tombstone,) = consumer.consume(1, timeout=20)
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    consumer.close()


def main(target: Path) -> None:
    """Make the folder: fill a cluster, stop it, and leave out the files that belong to one run."""
    with LocalCluster.start(target, overrides=OVERRIDES) as cluster:
        fill(cluster.bootstrap)
        check(cluster.bootstrap)
    for name in OF_A_RUN:
        for path in [*target.glob(name), *target.glob(f"*/{name}"), *target.glob(f"*/data/{name}")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
