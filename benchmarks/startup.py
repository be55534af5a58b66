"""Time from exec to serving, and the cost of an idle cluster."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers import Kafka, Peer, Running, cpu_seconds, proportional_mib, resident_mib
from benchmarks.sizes import Figures, Sizes
from benchmarks.turns import Rounds
from benchmarks.wire import acknowledge_one, create_topic


def start_up(peer: Peer, sizes: Sizes) -> Rounds:
    """Three brokers from exec to ready, the first acknowledged write, and one node's open port: the best of some
    rounds. Also the cost of the last of these clusters while it is idle."""
    ready, first_write, listening = [], [], []
    starts = sizes.kafka_starts if peer.name == Kafka.name else sizes.starts
    for number in range(starts):
        with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder, peer.cluster(3, Path(folder)) as running:
            begin = time.perf_counter()
            create_topic(running.bootstrap, "first", 1)
            acknowledge_one(running.bootstrap, "first")
            ready.append(running.ready_after)
            first_write.append(running.ready_after + time.perf_counter() - begin)
            idleness = idle(running, sizes) if number == starts - 1 else {}
        listening.append(peer.listening_after())
        yield idleness
    yield {"ready_s": min(ready), "first_write_s": min(first_write), "single_node_listens_s": min(listening)}


def idle(running: Running, sizes: Sizes) -> Figures:
    """Memory and CPU time of the busiest broker."""
    time.sleep(sizes.idle_seconds / 4)  # let work after the start finish first
    before = [cpu_seconds(pid) for pid in running.brokers]
    begin = time.perf_counter()
    time.sleep(sizes.idle_seconds)
    spent = max(cpu_seconds(pid) - earlier for pid, earlier in zip(running.brokers, before, strict=True))
    return {
        "idle_memory_mib": max(resident_mib(pid) for pid in running.brokers),
        "idle_proportional_mib": max(proportional_mib(pid) for pid in running.brokers),
        "idle_cpu_percent": 100 * spent / (time.perf_counter() - begin),
    }
