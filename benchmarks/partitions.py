"""Many partitions on one broker, the worst case: time to create them until each has a leader, their memory, and the
time of a restart until each has a leader again."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers import Peer, resident_mib
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from benchmarks.wire import acknowledge_one, create_topic, until_led

AT_ONCE = 5_000
"""Partitions per request; Kafka rejects 10,000 records in one command."""


def thousand(peer: Peer, sizes: Sizes) -> Rounds:
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder, peer.cluster(1, Path(folder)) as running:
        create_topic(running.bootstrap, "first", 1)
        acknowledge_one(running.bootstrap, "first")
        before = resident_mib(running.brokers[0])
        begin = time.perf_counter()
        create_topic(running.bootstrap, "wide", sizes.partitions)
        until_led(running.bootstrap, "wide", sizes.partitions)
        seconds = time.perf_counter() - begin
        acknowledge_one(running.bootstrap, "wide")
        added = resident_mib(running.brokers[0]) - before
    yield {"create_1000_partitions_s": seconds, "partitions_memory_mib": added}


def many(peer: Peer, sizes: Sizes) -> Rounds:
    topics = {
        f"wide-{first}": min(AT_ONCE, sizes.many_partitions - first)
        for first in range(0, sizes.many_partitions, AT_ONCE)
    }
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder:
        with peer.cluster(1, Path(folder)) as running:
            begin = time.perf_counter()
            for topic, count in topics.items():
                create_topic(running.bootstrap, topic, count)
                until_led(running.bootstrap, topic, count)
            created = time.perf_counter() - begin
        with peer.cluster(1, Path(folder)) as running:
            begin = time.perf_counter()
            for topic, count in topics.items():
                until_led(running.bootstrap, topic, count)
                acknowledge_one(running.bootstrap, topic)
            restarted = running.ready_after + time.perf_counter() - begin
            memory = resident_mib(running.brokers[0])
    yield {"create_many_s": created, "restart_many_s": restarted, "many_memory_mib": memory}
