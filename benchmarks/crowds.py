"""CPU time of a broker with many clients: 200 producers with one request in flight (acks=1, 100 bytes), and 10
consumers that wait for the record of one producer."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from benchmarks.latency import ARRIVAL, check_produced, percentiles, produce_message
from benchmarks.peers import Running, cpu_seconds
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from benchmarks.wire import FETCH, FETCH_VERSION, Wire, create_topic, fetch_body, fetched_bytes, framed, leader_of

PRODUCERS = 200
CONSUMERS = 10


def many_producers(running: Running, sizes: Sizes) -> Rounds:
    """All clients send, then all responses are received, in rounds."""
    create_topic(running.bootstrap, "crowd", 1)
    address = leader_of(running.bootstrap, "crowd")
    message = produce_message("crowd", acks=1)
    with ExitStack() as open_ones:
        wires = [open_ones.enter_context(closing(Wire(address))) for _ in range(PRODUCERS)]
        waves = max(1, sizes.crowd_requests // PRODUCERS)
        for number in range(1 + sizes.latency_rounds):
            before = cpu_seconds(running.brokers[0])
            for _ in range(waves):
                for wire in wires:
                    wire.send_framed(message)
                for wire in wires:
                    check_produced(wire.receive())
            spent = cpu_seconds(running.brokers[0]) - before
            yield {"crowd_produce_cpu_us": 1e6 * spent / waves / PRODUCERS} if number else {}


def fan_out(running: Running, sizes: Sizes) -> Rounds:
    """From the fetches to the response of the last consumer; the time starts with the send of the record."""
    create_topic(running.bootstrap, "fan-out", 1)
    address = leader_of(running.bootstrap, "fan-out")
    message = produce_message("fan-out", acks=1)
    offset = 0
    with ExitStack() as open_ones:
        producer, *consumers = (open_ones.enter_context(closing(Wire(address))) for _ in range(1 + CONSUMERS))
        for number in range(1 + sizes.latency_rounds):
            before = cpu_seconds(running.brokers[0])
            seconds = []
            for _ in range(sizes.fan_out_records):
                fetch = framed(FETCH, FETCH_VERSION, fetch_body("fan-out", offset))
                for consumer in consumers:
                    consumer.send_framed(fetch)
                time.sleep(ARRIVAL)
                begin = time.perf_counter()
                producer.send_framed(message)
                answers = [consumer.receive() for consumer in consumers]
                seconds.append(time.perf_counter() - begin)
                check_produced(producer.receive())
                if not all(map(fetched_bytes, answers)):
                    raise RuntimeError("a fetch came back without the record")
                offset += 1
            spent = cpu_seconds(running.brokers[0]) - before
            figures = {**percentiles("fan_out", seconds), "fan_out_cpu_us": 1e6 * spent / sizes.fan_out_records}
            yield figures if number else {}
