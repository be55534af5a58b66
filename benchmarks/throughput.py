"""1 KB records, six partitions, one broker: Kafka's ProducerPerformance and ConsumerPerformance, librdkafka's consumer,
and the broker's memory after the first gigabyte. Without Java librdkafka writes the records, and is not measured at it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.peers import Running, resident_mib
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from benchmarks.wire import create_topic
from tests.oracle.kafka import NoKafka, jars, java

JVM = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
TOPIC, PARTITIONS, RECORD = "load", 6, 1024


def throughput(running: Running, sizes: Sizes) -> Rounds:
    """The first round is for warming up. Kafka's consumer is a new JVM each time: it reads enough, in several rounds,
    so that its rate is not that of its compilation."""
    create_topic(running.bootstrap, TOPIC, PARTITIONS)
    try:
        jars()
    except NoKafka:
        _fill(running.bootstrap, sizes.warming_records)
        yield {"loaded_memory_mib": _memory(running)}
    else:
        yield from _java_clients(running, sizes)
    for number in range(1 + sizes.throughput_rounds):
        rate = consumption(running.bootstrap, TOPIC, PARTITIONS, sizes.warming_records)
        yield {"librdkafka_consume_mb_s": rate} if number else {}


def _java_clients(running: Running, sizes: Sizes) -> Rounds:
    bootstrap = running.bootstrap
    producer_performance(bootstrap, TOPIC, sizes.warming_records)
    consumer_performance(bootstrap, TOPIC, sizes.warming_records)
    yield {"loaded_memory_mib": _memory(running)}
    for _ in range(sizes.throughput_rounds):
        yield {"produce_mb_s": producer_performance(bootstrap, TOPIC, sizes.measured_records)}
    for _ in range(sizes.consumer_rounds):
        yield {"consume_mb_s": consumer_performance(bootstrap, TOPIC, sizes.consumed_records)}


def _memory(running: Running) -> float:
    return max(resident_mib(pid) for pid in running.brokers)


def producer_performance(bootstrap: str, topic: str, count: int, acks: str = "1", more: Sequence[str] = ()) -> float:
    """MB/s of Kafka's own tool with its default settings. ``more``: further options."""
    limits = ["--num-records", str(count), "--record-size", str(RECORD), "--throughput", "-1"]
    arguments = ["--topic", topic, *limits, *more]
    settings = ["--bootstrap-server", bootstrap, "--command-property", f"acks={acks}"]
    shown = _run(java("org.apache.kafka.tools.ProducerPerformance", *arguments, *settings, options=JVM, heap="512m"))
    return float(re.findall(r"\(([\d.]+) MB/sec\)", shown)[-1])


def consumer_performance(bootstrap: str, topic: str, count: int) -> float:
    """MB/s of Kafka's own tool in a new JVM, without joining its group."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count), "--timeout", "60000"]
    shown = _run(java("org.apache.kafka.tools.ConsumerPerformance", *arguments, options=JVM, heap="512m"))
    header, row = [line.split(", ") for line in shown.splitlines() if ", " in line][-2:]
    found = dict(zip(header, row, strict=True))
    return float(found["data.consumed.in.MB"]) / (float(found["fetch.time.ms"]) / 1000)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[-1]}: {done.stdout}{done.stderr}")
    return done.stdout


def _fill(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5})
    for _ in range(count):
        while True:
            try:
                producer.produce(TOPIC, b"x" * RECORD)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)


def consumption(
    bootstrap: str, topic: str, partitions: int, count: int, settings: Mapping[str, str | int] | None = None
) -> float:
    """MB/s of librdkafka, from the first record on, in Python in lists of 10,000."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": False, **(settings or {})})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    size, seen, begin = 0, 0, time.perf_counter()
    while seen < count:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise TimeoutError(f"only {seen} of {count} records came")
        seen += len(messages)
        size += sum(len(message) for message in messages)
    elapsed = time.perf_counter() - begin
    consumer.close()
    return size / 2**20 / elapsed
