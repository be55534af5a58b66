"""Back to a known state between two tests: a reset, which Kafka does by deleting topics and groups, and the restoration
of a prepared state, which Kafka does by copying directories and starting again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException, NewTopic

from benchmarks.peers import Milena, Peer
from benchmarks.sizes import Figures, Sizes
from benchmarks.turns import Rounds
from milena.testing.local_cluster import LocalCluster

BROKERS = 3
GROUPS = 4
SHAPES = {"reset_ms": (10, 20, 1), "reset_replicated_ms": (10, 20, 3), "reset_thousand_ms": (10, 100, 1)}
"""Topics, partitions of each, and replicas, by figure."""


def resets(peer: Peer, sizes: Sizes) -> Rounds:
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder:
        with _resettable(peer, Path(folder) / "cluster") as (bootstrap, reset):
            _fill(bootstrap, 1, 1, 1)  # the first groups create __consumer_offsets
            reset()
            for _ in range(sizes.reset_rounds):
                figures: dict[str, float] = {}
                for name, shape in SHAPES.items():
                    _fill(bootstrap, *shape)
                    figures[name] = 1000 * _seconds(reset)
                yield figures
        yield _restores(peer, Path(folder), sizes)


@contextmanager
def _resettable(peer: Peer, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the bootstrap servers of a cluster, and the function that resets it."""
    if isinstance(peer, Milena):
        with LocalCluster.start(folder, brokers=BROKERS, lab=True, environment=peer.environment) as cluster:
            yield cluster.bootstrap, cluster.reset
        return
    folder.mkdir()
    with peer.cluster(BROKERS, folder) as running:
        yield running.bootstrap, lambda: _delete_all(running.bootstrap)


def _delete_all(bootstrap: str) -> None:
    """Delete all groups and topics; return when no broker's metadata has a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    groups = [found.group_id for found in admin.list_consumer_groups().result(60).valid]
    if groups:
        for deleted in admin.delete_consumer_groups(groups, request_timeout=60).values():
            deleted.result(60)
    topics = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for deleted in admin.delete_topics(topics, operation_timeout=60).values():
        deleted.result(90)
    for address in bootstrap.split(","):
        one = AdminClient({"bootstrap.servers": address, "log_level": 0})
        while any(not name.startswith("__") for name in one.list_topics(timeout=30).topics):
            time.sleep(0.001)


def _fill(bootstrap: str, topics: int, partitions: int, replicas: int) -> None:
    """Create topics, and groups with a committed offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [f"topic-{number}" for number in range(topics)]
    made = admin.create_topics([NewTopic(name, partitions, replicas) for name in names], operation_timeout=60)
    for created in made.values():
        created.result(90)
    for number in range(GROUPS):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}", "log_level": 0})
        _commit(consumer, names[0])
        consumer.close()
    time.sleep(1)  # followers begin to fetch


def _commit(consumer: Consumer, topic: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException:  # the coordinator is being created
            if time.monotonic() > deadline:
                raise
        else:
            return


def _restores(peer: Peer, folder: Path, sizes: Sizes) -> Figures:
    """A prepared state of the first shape."""
    shape = SHAPES["reset_ms"]
    cluster_folder, snapshot = folder / "restored", folder / "snapshot"
    if isinstance(peer, Milena):
        with LocalCluster.start(cluster_folder, brokers=BROKERS, lab=True, environment=peer.environment) as cluster:
            _fill(cluster.bootstrap, *shape)
            taken = _seconds(lambda: cluster.snapshot(snapshot))
            restored = [_seconds(lambda: cluster.restore(snapshot)) for _ in range(sizes.reset_rounds)]
        return {"snapshot_ms": 1000 * taken, "restore_ms": 1000 * median(restored)}
    cluster_folder.mkdir()
    with peer.cluster(BROKERS, cluster_folder) as running:
        _fill(running.bootstrap, *shape)
    shutil.copytree(cluster_folder, snapshot)
    shutil.rmtree(cluster_folder)
    begin = time.perf_counter()
    shutil.copytree(snapshot, cluster_folder)
    copied = time.perf_counter() - begin
    with peer.cluster(BROKERS, cluster_folder) as running:
        return {"restore_ms": 1000 * (copied + running.ready_after)}


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
