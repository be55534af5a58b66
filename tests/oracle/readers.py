"""Clients that read a partition to its end. Each returns all records, and the position at which it finds the end."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import kafka as kafka_python
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.oracle.kafka import java

PROGRAM: Final = Path(__file__).with_name("CompactedReader.java")

Record = tuple[int, str, str | None]
"""Offset, key, value."""


def program(*arguments: str) -> list[list[str]]:
    """Run CompactedReader.java and return its lines, split into fields."""
    done = subprocess.run(java(str(PROGRAM), *arguments), capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def by_java(bootstrap: str, topic: str) -> tuple[list[Record], int]:
    """The Java consumer also starts at many other offsets, from which it must get the next existing record."""
    lines = program("consume", bootstrap, topic)
    found = [
        (int(offset), key, None if value == "null" else value)
        for name, offset, key, value in (line for line in lines if line[0] == "record")
    ]
    for _, start, landed in (line for line in lines if line[0] == "from"):
        later = next((str(offset) for offset, _, _ in found if offset >= int(start)), "none")
        assert landed == later, f"from {start} on"
    ((_, end, lag),) = (line for line in lines if line[0] == "end")
    assert lag == "0"
    return found, int(end)


def by_kcat(bootstrap: str, topic: str) -> tuple[list[Record], int]:
    command = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-J"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    end = re.search(rf"Reached end of topic {topic} \[0\] at offset (\d+)", done.stderr)
    assert end is not None, done.stderr
    return [(one["offset"], one["key"], one["payload"]) for one in found], int(end[1])


def by_librdkafka(bootstrap: str, topic: str) -> tuple[list[Record], int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Record] = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        offset = message.offset()
        assert offset is not None
        found.append(record(offset, message.key(), message.value()))
    assert message is not None, "the end was not reached"
    error, end = message.error(), message.offset()
    assert error is not None and error.code() == KafkaError._PARTITION_EOF, error
    assert end is not None
    consumer.close()
    return found, end


def by_kafka_python(bootstrap: str, topic: str) -> tuple[list[Record], int]:
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partition = kafka_python.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[Record] = []
    while (end := consumer.position(partition)) < consumer.end_offsets([partition])[partition]:
        for messages in consumer.poll(timeout_ms=500).values():
            found += [record(one.offset, one.key, one.value) for one in messages]
    consumer.close()
    return found, end


def by_aiokafka(bootstrap: str, topic: str) -> tuple[list[Record], int]:
    return asyncio.run(_by_aiokafka(bootstrap, topic))


async def _by_aiokafka(bootstrap: str, topic: str) -> tuple[list[Record], int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partition = AioPartition(topic, 0)
    consumer.assign([partition])
    await consumer.start()
    found: list[Record] = []
    async with asyncio.timeout(20):
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while (position := await consumer.position(partition)) < end:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                found += [record(one.offset, one.key, one.value) for one in messages]
    await consumer.stop()
    return found, position


def record(offset: int, key: bytes | str | None, value: bytes | str | None) -> Record:
    """Return the record with key and value as text."""
    name, content = (one.decode() if isinstance(one, bytes) else one for one in (key, value))
    assert name is not None
    return offset, name, content


READERS: Final[Mapping[str, Callable[[str, str], tuple[list[Record], int]]]] = {
    "java": by_java,
    "kcat": by_kcat,
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}
