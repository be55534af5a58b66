"""acks=1, 100 bytes, one request in flight; and from the send until a waiting consumer has the record.

The processor time is that of the partition's leader. A round of ``produce_rounds`` is that of nothing but produce.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from benchmarks.peers import Running, cpu_seconds
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
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
    framed,
    leader_id,
    leader_of,
    produce_body,
    produced_error,
)

ARRIVAL = 0.0005
"""Seconds until a consumer's fetch has reached the broker and waits there."""


def latency(running: Running, sizes: Sizes) -> Rounds:
    create_topic(running.bootstrap, "latency", 1)
    return produce_and_end_to_end(running, "latency", sizes, sizes.latency_rounds, acks=1)


def produce_and_end_to_end(running: Running, topic: str, sizes: Sizes, rounds: int, *, acks: int) -> Rounds:
    """On the leader of a topic with one partition, which is empty at first. One round is for warming up."""
    address = leader_of(running.bootstrap, topic)
    leader = running.members.pid(leader_id(running.bootstrap, topic))
    message = produce_message(topic, acks)
    with closing(Wire(address)) as producer, closing(Wire(address)) as consumer:
        offset = 0
        for number in range(1 + rounds):
            figures = _produce(producer, message, leader, sizes.latency_requests)
            offset += sizes.latency_requests
            ends = range(offset, offset := offset + sizes.latency_requests // 4)
            waited = [_end_to_end(producer, consumer, message, topic, end) for end in ends]
            yield {**figures, **percentiles("end_to_end", waited)} if number else {}


def produce_rounds(running: Running, topic: str, sizes: Sizes, rounds: int, *, acks: int) -> Rounds:
    """Produce latency on a topic that may have records; with a warm-up round."""
    leader = running.members.pid(leader_id(running.bootstrap, topic))
    message = produce_message(topic, acks)
    with closing(Wire(leader_of(running.bootstrap, topic))) as producer:
        for number in range(1 + rounds):
            figures = _produce(producer, message, leader, sizes.latency_requests)
            yield figures if number else {}


def produce_message(topic: str, acks: int) -> bytes:
    return framed(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch_of(100), acks))


def _produce(producer: Wire, message: bytes, leader: int, requests: int) -> dict[str, float]:
    before = cpu_seconds(leader)
    seconds = list(_round_trips(producer, message, requests))
    spent = cpu_seconds(leader) - before
    return {**percentiles("produce", seconds), "produce_cpu_us": 1e6 * spent / requests}


def _round_trips(producer: Wire, message: bytes, requests: int) -> Iterator[float]:
    for _ in range(requests):
        begin = time.perf_counter()
        producer.send_framed(message)
        answer = producer.receive()
        yield time.perf_counter() - begin
        check_produced(answer)


def _end_to_end(producer: Wire, consumer: Wire, message: bytes, topic: str, offset: int) -> float:
    consumer.send(FETCH, FETCH_VERSION, fetch_body(topic, offset))
    time.sleep(ARRIVAL)
    begin = time.perf_counter()
    producer.send_framed(message)
    fetched = consumer.receive()
    elapsed = time.perf_counter() - begin
    if not fetched_bytes(fetched):
        raise RuntimeError("the fetch came back without the record")
    check_produced(producer.receive())
    return elapsed


def check_produced(answer: bytes) -> None:
    if error := produced_error(answer):
        raise RuntimeError(f"produce failed with error {error}")


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    return {f"{name}_p50_ms": percentile(seconds, 50), f"{name}_p99_ms": percentile(seconds, 99)}


def percentile(seconds: list[float], rank: int) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[min(len(seconds) * rank // 100, len(seconds) - 1)]
