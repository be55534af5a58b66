"""Three brokers, three replicas, acks=all: latency alone, with idle partitions, and under load; throughput and memory;
an empty follower; and a killed leader."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.latency import produce_and_end_to_end, produce_rounds
from benchmarks.load import load
from benchmarks.members import bytes_of, come_back_without_data
from benchmarks.peers import Running, cpu_seconds, resident_mib
from benchmarks.sizes import Figures, Sizes
from benchmarks.throughput import producer_performance
from benchmarks.turns import NotMeasured, Rounds
from benchmarks.wire import create_topic, delete_topic, leader_id
from tests.oracle.kafka import NoKafka, jars

REPLICAS = 3
OTHER_LOAD = 10.0
"""MB/s."""
LIMIT = 120.0
IN_SYNC_LIMIT = 30.0
STEP = 0.005
Topic = tuple[str, int]
SIX: Topic = ("load-six", 6)
ONE: Topic = ("load-one", 1)


def replicated_latency(running: Running, sizes: Sizes) -> Rounds:
    """End-to-end latency; produce latency under load; produce latency alone, after everything is warm; and the same
    again with idle partitions."""
    _create(running, "replicated", 1)
    for figures in produce_and_end_to_end(running, "replicated", sizes, sizes.other_rounds, acks=-1):
        yield {f"replicated_{name}": value for name, value in figures.items() if name.startswith("end_to_end")}
    _create(running, "busy", 6)
    with load(running.bootstrap, "busy", OTHER_LOAD):
        busy = list(produce_rounds(running, "replicated", sizes, sizes.other_rounds, acks=-1))
    yield {"replicated_busy_p99_ms": median(one["produce_p99_ms"] for one in busy if one)}
    alone = []
    for figures in produce_rounds(running, "replicated", sizes, sizes.latency_rounds, acks=-1):
        alone += [figures["produce_p50_ms"]] if figures else []
        yield {f"replicated_{name}": value for name, value in figures.items()}
    _create(running, "idle", sizes.idle_replicated_partitions)
    beside = [
        one["produce_p50_ms"]
        for one in produce_rounds(running, "replicated", sizes, sizes.other_rounds, acks=-1)
        if one
    ]
    delete_topic(running.bootstrap, "idle")
    yield {"replicated_idle_p50_ms": median(beside), "replicated_idle_growth": median(beside) / median(alone)}


def replicated_load(running: Running, sizes: Sizes) -> Rounds:
    """Throughput and memory need Kafka's producer; the later measurements use its data."""
    for topic, partitions in (SIX, ONE):
        _create(running, topic, partitions)
    try:
        jars()
    except NoKafka:
        _write(running.bootstrap, SIX[0], sizes.replicated_warming_records)
    else:
        producer_performance(running.bootstrap, SIX[0], sizes.replicated_warming_records, acks="all")
        for _ in range(sizes.throughput_rounds):
            yield _produced(running, "replicated_six", SIX[0], sizes)
        for _ in range(sizes.throughput_rounds):
            yield _produced(running, "replicated_one", ONE[0], sizes)
    yield {"replicated_memory_mib": max(resident_mib(pid) for pid in running.brokers)}
    yield {"wiped_follower_mb_s": _copied_by_a_wiped_follower(running, SIX[0])}
    yield {"leader_killed_s": _write_after_a_leaders_death(running, ONE[0])}


def _produced(running: Running, figure: str, topic: str, sizes: Sizes) -> Figures:
    """MB/s, and milliseconds of CPU time of all brokers per MB."""
    before = sum(map(cpu_seconds, running.brokers))
    rate = producer_performance(running.bootstrap, topic, sizes.replicated_records, acks="all")
    spent = sum(map(cpu_seconds, running.brokers)) - before
    return {f"{figure}_mb_s": rate, f"{figure}_cpu_ms_mb": 1000 * spent / (sizes.replicated_records / 1024)}


def _copied_by_a_wiped_follower(running: Running, topic: str) -> float:
    """MB/s from the follower's first byte until it has all; without the start of the broker."""
    until_in_sync(running.bootstrap, topic)
    node_id = leader_id(running.bootstrap, topic)
    size = bytes_of(running.members, node_id, topic)
    come_back_without_data(running.members, node_id, topic)
    _until(lambda: bytes_of(running.members, node_id, topic) > 0, "the follower to copy")
    already, begin = bytes_of(running.members, node_id, topic), time.perf_counter()
    _until(lambda: bytes_of(running.members, node_id, topic) >= size, "the follower to have it all")
    elapsed = time.perf_counter() - begin
    until_in_sync(running.bootstrap, topic)
    return (size - already) / 2**20 / elapsed


def _write_after_a_leaders_death(running: Running, topic: str) -> float:
    """Seconds from kill -9 to the acknowledgement of a record sent right after it, by librdkafka."""
    until_in_sync(running.bootstrap, topic)
    producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    _acknowledge(producer, topic)
    leader = leader_id(running.bootstrap, topic)
    begin = time.perf_counter()
    running.members.end(leader, signal.SIGKILL)
    _acknowledge(producer, topic)
    return time.perf_counter() - begin


def _create(running: Running, topic: str, partitions: int) -> None:
    create_topic(running.bootstrap, topic, partitions, REPLICAS)
    until_in_sync(running.bootstrap, topic)


def until_in_sync(bootstrap: str, topic: str) -> None:
    """Wait until every partition of a topic has all replicas in the ISR. Raises NotMeasured if they do not get
    there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def in_sync() -> bool:
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return all(len(one.isrs) == len(one.replicas) == REPLICAS for one in partitions)

    try:
        _until(in_sync, f"the replicas of {topic}", step=0.1, limit=IN_SYNC_LIMIT)
    except TimeoutError as reason:
        raise NotMeasured(str(reason)) from reason


def _until(condition: Callable[[], bool], what: str, step: float = STEP, limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit:.0f} s for {what}")
        time.sleep(step)


def _acknowledge(producer: Producer, topic: str) -> None:
    failed: list[object] = []
    producer.produce(topic, b"one", on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(LIMIT) or failed:
        raise RuntimeError(f"a write to {topic} was not acknowledged: {failed}")


def _write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, b"x" * 1024)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(LIMIT)
