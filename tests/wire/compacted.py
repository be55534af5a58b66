"""Compacted partitions of running brokers: up to where they are cleaned, and the records that remain."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from milena.testing.local_cluster import LocalCluster


def cleaned_to(log_dir: str, partition: str) -> int:
    """Return the first dirty offset in cleaner-offset-checkpoint, or -1. ``partition``: ``topic-number``."""
    path = Path(log_dir) / "cleaner-offset-checkpoint"
    topic, _, number = partition.rpartition("-")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} {number} ")), -1)


def closed_to(log_dir: str, partition: str) -> int:
    """Return the base offset of the active segment."""
    return max(int(path.stem) for path in (Path(log_dir) / partition).glob("*.log"))


def is_clean(log_dir: str, partition: str) -> bool:
    """Whether the log has closed segments, and all of them are cleaned."""
    return cleaned_to(log_dir, partition) == closed_to(log_dir, partition) > 0


def cleaned_in_tier(cluster: LocalCluster, partition: str) -> int:
    """Return the first dirty offset in the tier, from the leaders' logs; 0 if nothing was cleaned."""
    topic, _, number = partition.rpartition("-")
    lines = (line for broker in cluster.brokers for line in cluster.log(broker.id).splitlines())
    events = [json.loads(line) for line in lines if '"log cleaned in the tier"' in line]
    mine = [one for one in events if (one["topic"], one["partition"]) == (topic, int(number))]
    return max((one["cleaned_to"] for one in mine), default=0)


def broker_pid(cluster: LocalCluster) -> int:
    (broker,) = cluster.brokers
    assert broker.pid is not None
    return broker.pid


def write_each_key(producer: Producer, keys: int, update: int) -> dict[bytes, bytes]:
    """Write a new value of each of ``keys`` keys to partition 0 of ``t``; return the values by key."""
    values = {b"key-%d" % number: b"%d:" % update + os.urandom(50) for number in range(keys)}
    for key, value in values.items():
        producer.produce("t", value, key=key, partition=0)
    assert producer.flush(60) == 0
    return values


def workers(pid: int) -> list[int]:
    """Return the child processes of a broker that have executed their own program: a signal that stops a child
    before that also stops its parent."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if _command(child) not in (b"", _command(pid))]


def _command(pid: int) -> bytes:
    """Return the command line of a process, b"" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def read(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, Mapping[bytes, bytes | None]]:
    """Return the number of records up to the log end, and the last value of each key."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: dict[bytes, bytes | None] = {}
    count = 0
    while True:
        record = consumer.poll(20)
        assert record is not None, f"the end of {topic}-{partition} was not reached"
        if (error := record.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        key = record.key()
        assert isinstance(key, bytes)
        found[key] = record.value()
        count += 1
    consumer.close()
    return count, found
