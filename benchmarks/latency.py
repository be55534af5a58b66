"""acks=1, 100 bytes, one request in flight; and from the send until a waiting consumer has the record."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.peers import Running
from benchmarks.sizes import Figures, Sizes
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

ARRIVAL = 0.0005
"""Seconds in which a fetch reaches the broker and waits there, as a consumer's does."""


def latency(running: Running, sizes: Sizes) -> Figures:
    """The median over some rounds of each round's percentiles. One round before them warms both sides up."""
    create_topic(running.bootstrap, "latency", 1)
    address = leader_of(running.bootstrap, "latency")
    body = produce_body("latency", batch_of(100))
    producer, consumer = Wire(address), Wire(address)
    rounds = []
    offset = 0
    for _ in range(1 + sizes.latency_rounds):
        produce = [_timed(lambda: _round_trip(producer, body)) for _ in range(sizes.latency_requests)]
        offset += len(produce)
        end_to_end = []
        for _ in range(sizes.latency_requests // 4):
            consumer.send(FETCH, FETCH_VERSION, fetch_body("latency", offset))
            time.sleep(ARRIVAL)
            end_to_end.append(_timed(lambda: _through(producer, consumer, body)))
            producer.receive()
            offset += 1
        rounds.append(
            {
                "produce_p50_ms": percentile(produce, 50),
                "produce_p99_ms": percentile(produce, 99),
                "end_to_end_p50_ms": percentile(end_to_end, 50),
                "end_to_end_p99_ms": percentile(end_to_end, 99),
            }
        )
    producer.close()
    consumer.close()
    return {name: median(one[name] for one in rounds[1:]) for name in rounds[0]}


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
