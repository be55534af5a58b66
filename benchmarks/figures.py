"""What is measured: each function does the same work against either system and returns named figures."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.peers import Peer, Running, cpu_seconds, resident_mib
from benchmarks.wire import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    Wire,
    batch_of,
    create_topic,
    fetch_body,
    fetched_bytes,
    leader_of,
    produce_body,
    produced_error,
)
from tests.oracle.kafka import NoKafka, jars, java

Figures = dict[str, float]
JVM = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)


class Sizes:
    """How much work: the full measure, or ``short`` for CI."""

    def __init__(self, *, short: bool) -> None:
        self.starts = 1 if short else 3
        self.latency_requests = 2_000 if short else 20_000
        self.throughput_records = 100_000 if short else 1_000_000
        self.idle_seconds = 5 if short else 20
        self.partitions = 1_000
        self.many_partitions = 0 if short else 10_000


def start_up(peer: Peer, sizes: Sizes) -> Figures:
    """Three brokers from exec to ready, the first acknowledged write, and one node's open port. The best of some."""
    ready, first_write = [], []
    for _ in range(sizes.starts):
        begin = time.perf_counter()
        with peer.cluster(3) as running:
            ready.append(running.ready_after)
            create_topic(running.bootstrap, "first", 1)
            acknowledge_one(running.bootstrap, "first")
            first_write.append(time.perf_counter() - begin)
    listening = min(peer.listening_after() for _ in range(sizes.starts))
    return {"ready_s": min(ready), "first_write_s": min(first_write), "single_node_listens_s": listening}


def acknowledge_one(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, b"first")
    if producer.flush(60):
        raise TimeoutError("the first write was not acknowledged")


def idle(running: Running, sizes: Sizes) -> Figures:
    """Memory and processor time of brokers that nobody uses."""
    time.sleep(sizes.idle_seconds / 4)  # what start-up left to do is not idleness
    before = [cpu_seconds(pid) for pid in running.brokers]
    begin = time.perf_counter()
    time.sleep(sizes.idle_seconds)
    spent = max(cpu_seconds(pid) - earlier for pid, earlier in zip(running.brokers, before, strict=True))
    return {
        "idle_memory_mib": max(resident_mib(pid) for pid in running.brokers),
        "idle_cpu_percent": 100 * spent / (time.perf_counter() - begin),
    }


def latency(running: Running, sizes: Sizes) -> Figures:
    """acks=1, 100 bytes, one request in flight; and from the send until a waiting consumer has the record."""
    create_topic(running.bootstrap, "latency", 1)
    address = leader_of(running.bootstrap, "latency")
    body = produce_body("latency", batch_of(100))
    producer, consumer = Wire(address), Wire(address)
    produce, end_to_end = [], []
    for count in (sizes.latency_requests // 4, sizes.latency_requests):  # the first round warms both sides up
        produce = [_timed(lambda: _round_trip(producer, body)) for _ in range(count)]
    offset = sizes.latency_requests // 4 + sizes.latency_requests
    for _ in range(sizes.latency_requests // 4):
        consumer.send(FETCH, FETCH_VERSION, fetch_body("latency", offset))
        time.sleep(0.0005)  # let the fetch arrive and wait, as a consumer's does
        end_to_end.append(_timed(lambda: _through(producer, consumer, body)))
        producer.receive()
        offset += 1
    producer.close()
    consumer.close()
    return {
        "produce_p50_ms": percentile(produce, 50),
        "produce_p99_ms": percentile(produce, 99),
        "end_to_end_p50_ms": percentile(end_to_end, 50),
        "end_to_end_p99_ms": percentile(end_to_end, 99),
    }


def _timed(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _round_trip(producer: Wire, body: bytes) -> None:
    producer.send(PRODUCE, PRODUCE_VERSION, body)
    if error := produced_error(producer.receive()):
        raise RuntimeError(f"produce failed with error {error}")


def _through(producer: Wire, consumer: Wire, body: bytes) -> None:
    producer.send(PRODUCE, PRODUCE_VERSION, body)
    if not fetched_bytes(consumer.receive()):
        raise RuntimeError("the fetch came back without the record")


def percentile(seconds: list[float], rank: int) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[min(len(seconds) * rank // 100, len(seconds) - 1)]


def throughput(running: Running, sizes: Sizes) -> Figures:
    """Kafka's ProducerPerformance and ConsumerPerformance, 1 KB in six partitions, the second of two runs each;
    librdkafka's consumer; and the brokers' memory after all that (2 GB written at full size)."""
    create_topic(running.bootstrap, "load", 6)
    count = sizes.throughput_records
    figures: Figures = {}
    try:
        jars()
    except NoKafka:
        _fill(running.bootstrap, count)
    else:
        figures["produce_mb_s"] = [_producer_performance(running.bootstrap, count) for _ in range(2)][-1]
        figures["consume_mb_s"] = [_consumer_performance(running.bootstrap, count) for _ in range(2)][-1]
    figures["librdkafka_consume_mb_s"] = [_consume(running.bootstrap, count) for _ in range(2)][-1]
    figures["loaded_memory_mib"] = max(resident_mib(pid) for pid in running.brokers)
    return figures


def _producer_performance(bootstrap: str, count: int) -> float:
    arguments = ["--topic", "load", "--num-records", str(count), "--record-size", "1024", "--throughput", "-1"]
    settings = ["--producer-props", f"bootstrap.servers={bootstrap}", "acks=1"]
    shown = _run(java("org.apache.kafka.tools.ProducerPerformance", *arguments, *settings, options=JVM, heap="512m"))
    return float(re.findall(r"\(([\d.]+) MB/sec\)", shown)[-1])


def _consumer_performance(bootstrap: str, count: int) -> float:
    arguments = ["--bootstrap-server", bootstrap, "--topic", "load", "--num-records", str(count), "--timeout", "60000"]
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
                producer.produce("load", b"x" * 1024)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)


def _consume(bootstrap: str, count: int) -> float:
    """MB/s of librdkafka, from the first record on, through Python in lists of 10,000."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": False})
    consumer.assign([TopicPartition("load", partition, 0) for partition in range(6)])
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


def partitions(running: Running, sizes: Sizes) -> Figures:
    """Creating 1,000 partitions until each has a leader, and what they add to a broker's memory."""
    before = max(resident_mib(pid) for pid in running.brokers)
    begin = time.perf_counter()
    create_topic(running.bootstrap, "wide", sizes.partitions)
    figures = {"create_1000_partitions_s": time.perf_counter() - begin}
    figures["partitions_memory_mib"] = max(resident_mib(pid) for pid in running.brokers) - before
    if sizes.many_partitions:
        begin = time.perf_counter()
        create_topic(running.bootstrap, "wider", sizes.many_partitions)
        acknowledge_one(running.bootstrap, "wider")
        figures["create_10000_partitions_s"] = time.perf_counter() - begin
    return figures
