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


class Latency:
    """A producer and a waiting consumer on the leader of a topic's only partition, which is empty at first."""

    def __init__(self, bootstrap: str, topic: str, *, acks: int) -> None:
        address = leader_of(bootstrap, topic)
        self._topic = topic
        self._body = produce_body(topic, batch_of(100), acks)
        self._producer, self._consumer = Wire(address), Wire(address)
        self._offset = 0

    def measure(self, sizes: Sizes) -> dict[str, float]:
        """The median over some rounds of each round's percentiles. One round before them warms both sides up."""
        rounds = [self._round(sizes.latency_requests) for _ in range(1 + sizes.latency_rounds)]
        self._producer.close()
        self._consumer.close()
        return _medians(rounds[1:])

    def _round(self, requests: int) -> dict[str, float]:
        produce = [_timed(lambda: _round_trip(self._producer, self._body)) for _ in range(requests)]
        self._offset += len(produce)
        end_to_end = []
        for _ in range(requests // 4):
            self._consumer.send(FETCH, FETCH_VERSION, fetch_body(self._topic, self._offset))
            time.sleep(ARRIVAL)
            end_to_end.append(_timed(lambda: _through(self._producer, self._consumer, self._body)))
            self._producer.receive()
            self._offset += 1
        return {**_percentiles("produce", produce), **_percentiles("end_to_end", end_to_end)}


def latency(running: Running, sizes: Sizes) -> Figures:
    create_topic(running.bootstrap, "latency", 1)
    return Latency(running.bootstrap, "latency", acks=1).measure(sizes)


def produce_latency(bootstrap: str, topic: str, sizes: Sizes, *, acks: int) -> dict[str, float]:
    """Produce alone, to a topic that may have records; warmed and counted as above."""
    producer = Wire(leader_of(bootstrap, topic))
    body = produce_body(topic, batch_of(100), acks)
    rounds = [
        _percentiles("produce", [_timed(lambda: _round_trip(producer, body)) for _ in range(sizes.latency_requests)])
        for _ in range(1 + sizes.latency_rounds)
    ]
    producer.close()
    return _medians(rounds[1:])


def _percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    return {f"{name}_p50_ms": percentile(seconds, 50), f"{name}_p99_ms": percentile(seconds, 99)}


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


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
