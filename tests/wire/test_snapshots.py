"""Snapshots of a cluster of processes: restored in place, and forked into clusters that never change them."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigResource

from milena.command_line.errors import UserError
from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import alter_broker, alter_topic, create_topic
from tests.wire.command import milena, refused
from tests.wire.lab import write
from tests.wire.tiers import TIERED, logs, settings
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

SMALL = {"internal.segment.bytes": "10000"}
FAST = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "100",
}


def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def fill(cluster: LocalCluster, topic: str, count: int, *, first: int = 0, keys: int = 1000) -> None:
    """Write records of a kilobyte to partition 0, one by one, with acks=all."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, b"%-1000d" % number, key=b"%d" % (number % keys), partition=0)
        assert producer.flush(20) == 0


def read(cluster: LocalCluster, topic: str, count: int) -> list[int]:
    """Read ``count`` records of partition 0 from its start."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [int(message.value() or b"-1") for message in consumer.consume(count, 30)]
    consumer.close()
    return found


def commit(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(cluster: LocalCluster, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


def cleaner_threads(cluster: LocalCluster) -> str:
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    client = admin(cluster)  # held in a variable: its requests end when it is collected
    return str(client.describe_configs([broker])[broker].result(20)["log.cleaner.threads"].value)


def delete_topic(cluster: LocalCluster, topic: str) -> None:
    client = admin(cluster)
    client.delete_topics([topic])[topic].result(20)


def partitions(cluster: LocalCluster) -> Any:
    return cluster.lab_commands(cluster.controller.id).call("partitions")


def digests(folder: Path) -> dict[str, str]:
    """The content of all files of a snapshot."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Path]]:
    """A cluster of three brokers, and a snapshot of it with a topic, a group, and a configuration of a broker."""
    folder = tmp_path_factory.mktemp("snapshots")
    with LocalCluster.start(folder / "cluster", brokers=3, overrides=FAST, lab=True) as cluster:
        create_topic(cluster.bootstrap, "orders", partitions=4, replicas=3, config=SMALL)
        fill(cluster, "orders", 35, keys=5)
        commit(cluster, "readers", "orders", 17)
        assert alter_broker(cluster.bootstrap, 1, AlterConfigOpType.SET, "log.cleaner.threads", "2") is None
        cluster.snapshot(folder / "snapshot")
        yield cluster, folder / "snapshot"


def test_a_restore_brings_back_offsets_epochs_groups_and_configurations(prepared: tuple[LocalCluster, Path]) -> None:
    cluster, snapshot = prepared
    cluster.restore(snapshot)
    before = partitions(cluster)
    nodes = {node.id: (node.pid, dict(node.listeners)) for node in cluster.nodes.values()}
    fill(cluster, "orders", 10, first=100)
    commit(cluster, "readers", "orders", 40)
    alter_broker(cluster.bootstrap, 1, AlterConfigOpType.SET, "log.cleaner.threads", "3")
    create_topic(cluster.bootstrap, "more", partitions=2, replicas=3)
    cluster.kill(3)
    cluster.lab_commands(2).call("hold", api="PRODUCE")
    written = digests(snapshot)

    cluster.restore(snapshot)

    assert partitions(cluster) == before, "leaders, epochs and ISRs are those of the snapshot"
    assert {node.id: dict(node.listeners) for node in cluster.nodes.values()} == {
        number: listeners for number, (_, listeners) in nodes.items()
    }
    assert [cluster.nodes[number].pid for number in (1, 2, 100)] == [nodes[number][0] for number in (1, 2, 100)]
    assert read(cluster, "orders", 35) == list(range(35))
    assert committed(cluster, "readers", "orders") == 17
    assert cleaner_threads(cluster) == "2"
    assert "more" not in admin(cluster).list_topics(timeout=20).topics
    assert cluster.lab_commands(2).call("rules") == []
    write(cluster, "orders", "after")
    assert digests(snapshot) == written


def test_a_fork_is_a_cluster_of_its_own(prepared: tuple[LocalCluster, Path], tmp_path: Path) -> None:
    cluster, snapshot = prepared
    cluster.restore(snapshot)
    with LocalCluster.fork(snapshot, tmp_path / "fork", lab=True) as fork:
        assert partitions(fork) == partitions(cluster)
        assert set(fork.bootstrap.split(",")).isdisjoint(cluster.bootstrap.split(","))
        clusters = [admin(one).list_topics(timeout=20) for one in (cluster, fork)]
        assert clusters[0].cluster_id == clusters[1].cluster_id
        ports = {str(broker.port) for broker in clusters[1].brokers.values()}
        assert ports == {address.rpartition(":")[2] for address in fork.bootstrap.split(",")}
        assert committed(fork, "readers", "orders") == 17
        assert cleaner_threads(fork) == "2"
        fill(fork, "orders", 5, first=35)
        delete_topic(cluster, "orders")
        assert read(fork, "orders", 40) == list(range(40))


def test_a_halted_node_closes_its_files_and_serves_again_when_it_reopens_them(
    prepared: tuple[LocalCluster, Path],
) -> None:
    cluster, snapshot = prepared
    cluster.restore(snapshot)
    broker, pid = cluster.lab_commands(1), cluster.nodes[1].pid
    broker.call("halt")
    assert not [name for name in open_files(pid) if name.startswith(f"{cluster.nodes[1].log_dirs[0]}/")]
    with pytest.raises(UserError, match="no command 'observe'"):
        broker.call("observe")
    assert broker.call("ready") == {"ready": False}
    write(cluster, "orders", "while broker 1 is halted")
    broker.call("reopen")
    assert broker.call("ready") == {"ready": True}
    assert cluster.nodes[1].pid == pid
    wait_until(lambda: all(len(one["isr"]) == 3 for one in partitions(cluster).values()), "broker 1 to be in sync")


def open_files(pid: int | None) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    return found


@pytest.mark.slow
def test_whatever_a_fork_does_the_snapshot_stays_the_same(prepared: tuple[LocalCluster, Path], tmp_path: Path) -> None:
    """Append, compact, delete records, truncate, expire, delete, recover after a power loss and after kill -9."""
    _, snapshot = prepared
    before = digests(snapshot)
    with LocalCluster.fork(snapshot, tmp_path / "fork", lab=True) as fork:
        fill(fork, "orders", 25, first=35, keys=5)
        fork.power_off(1)
        fill(fork, "orders", 5, first=60, keys=5)
        fork.start_node(1)
        for number in (2, 3):
            fork.kill(number)
            damage(Path(fork.nodes[number].log_dirs[0]) / "orders-0")
            fork.start_node(number)
        wait_until(
            lambda: all(len(one["isr"]) == 3 for one in partitions(fork).values()), "all replicas to be in sync again"
        )
        assert digests(snapshot) == before
        alter_topic(fork.bootstrap, "orders", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        data = Path(fork.nodes[1].log_dirs[0]) / "orders-0"
        size = sum(path.stat().st_size for path in data.glob("*.log"))
        wait_until(lambda: sum(path.stat().st_size for path in data.glob("*.log")) < size - 20_000, "compaction")
        assert digests(snapshot) == before
        alter_topic(fork.bootstrap, "orders", {"cleanup.policy": "delete", "retention.ms": "1", "segment.ms": "100"})
        wait_until(
            lambda: all(
                fork.lab_commands(broker.id).call("describe_partition", topic="orders", partition=0)["log_start_offset"]
                >= 60
                for broker in fork.brokers
            ),
            "retention",
        )
        delete_topic(fork, "orders")
        wait_until(lambda: not data.exists() and not list(data.parent.glob("orders-0.*")), "the folder to be removed")
    assert digests(snapshot) == before


def damage(folder: Path) -> None:
    """Damage a closed segment of a log, by a new file in its place, as a disk would: its recovery truncates it."""
    first = sorted(folder.glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.unlink()
    first.write_bytes(data)
    for checkpoint in folder.parent.glob("recovery-point-offset-checkpoint"):
        checkpoint.unlink()


@pytest.mark.slow
def test_a_snapshot_under_load_has_every_record_that_was_acknowledged_before(
    prepared: tuple[LocalCluster, Path], tmp_path: Path
) -> None:
    cluster, snapshot = prepared
    cluster.restore(snapshot)
    create_topic(cluster.bootstrap, "load", partitions=1, replicas=3)
    acknowledged: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})

    def send(number: int) -> None:
        def delivered(error: object, _: object) -> None:
            if error is None:
                acknowledged.append(number)

        producer.produce("load", b"%d" % number, on_delivery=delivered)
        producer.poll(0)

    for number in range(2000):
        send(number)
    before = len(acknowledged)
    cluster.snapshot(tmp_path / "under-load")
    for number in range(2000, 2100):
        send(number)
    assert producer.flush(30) == 0
    assert len(acknowledged) == 2100, "the cluster continues after the snapshot"
    with LocalCluster.fork(tmp_path / "under-load", tmp_path / "fork", lab=True) as fork:
        wait_until(lambda: len({_end(fork, broker.id) for broker in fork.brokers}) == 1, "equal replicas")
        end = _end(fork, 1)
        assert before <= end <= 2100
        assert read(fork, "load", end) == list(range(end))


def _end(cluster: LocalCluster, broker: int) -> int:
    described = cluster.lab_commands(broker).call("describe_partition", topic="load", partition=0)
    return int(described["high_watermark"])


@pytest.mark.slow
def test_the_tier_is_in_the_snapshot_and_a_fork_expires_only_its_own(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    with LocalCluster.start(tmp_path / "cluster", overrides=settings(tier), lab=True) as cluster:
        create_topic(cluster.bootstrap, "orders", partitions=1, config=TIERED)
        fill(cluster, "orders", 50)
        wait_until(lambda: len(logs(tier / "kafka-tiered-storage", "orders-0-*")) >= 4, "segments in the tier")
        cluster.snapshot(tmp_path / "snapshot")
        before = digests(tmp_path / "snapshot")
        kept = logs(tier / "kafka-tiered-storage", "*")
        with LocalCluster.fork(tmp_path / "snapshot", tmp_path / "fork", lab=True) as fork:
            assert read(fork, "orders", 50) == list(range(50))
            own = Path(fork.directory) / "remote" / "kafka-tiered-storage"
            alter_topic(fork.bootstrap, "orders", {"retention.ms": "1", "local.retention.ms": "1"})
            wait_until(lambda: not logs(own, "*"), "the fork's segments to expire")
        assert digests(tmp_path / "snapshot") == before
        assert set(kept) <= set(logs(tier / "kafka-tiered-storage", "*"))
        delete_topic(cluster, "orders")
        wait_until(lambda: not logs(tier / "kafka-tiered-storage", "*"), "the segments to be deleted")
        cluster.restore(tmp_path / "snapshot")
        assert read(cluster, "orders", 50) == list(range(50))
        assert digests(tmp_path / "snapshot") == before


def test_the_commands_without_lab_mode(tmp_path: Path) -> None:
    at, taken = ("--dir", str(tmp_path / "cluster")), str(tmp_path / "snapshot")
    with LocalCluster.start(tmp_path / "cluster", brokers=3, topics=["orders:1:3"]) as cluster:
        write(cluster, "orders", "one")
        milena("snapshot", taken, *at)
        write(cluster, "orders", "two")
        milena("restore", taken, *at)
        write(cluster, "orders", "three")
        assert read_text(cluster, 2) == ["one", "three"]
        assert (
            refused("snapshot", taken, *at) == f"{taken} exists and is not empty: name another folder for the snapshot"
        )
        inside = str(tmp_path / "cluster" / "snapshot")
        assert "is in the cluster's own directory" in refused("snapshot", inside, *at)
        assert refused("restore", str(tmp_path), *at) == f"{tmp_path} holds no snapshot (no snapshot.json)"
        cluster.stop()
        assert refused("restore", taken, *at) == f"no cluster runs in {tmp_path / 'cluster'}"
    with LocalCluster.start(tmp_path / "small") as small:
        with pytest.raises(UserError, match="is a snapshot of controller-100, broker-1, broker-2, broker-3, and this"):
            small.restore(taken)
        assert "holds a cluster already" in refused("up", "--from", taken, "--dir", small.directory)
    ready = milena("up", "--from", taken, "--dir", str(tmp_path / "other"), "--port", "0", "--detach").out
    try:
        address = ready.strip().removeprefix("ready bootstrap=")
        assert milena("topic", "list", "-b", address).out.split()[0] == "orders"
    finally:
        milena("down", "--dir", str(tmp_path / "other"))


def read_text(cluster: LocalCluster, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = [(message.value() or b"").decode() for message in consumer.consume(count, 30)]
    consumer.close()
    return found


def test_a_node_that_fails_to_halt_does_not_keep_the_others_from_serving(prepared: tuple[LocalCluster, Path]) -> None:
    cluster, snapshot = prepared
    cluster.restore(snapshot)
    cluster.lab_commands(2).call("halt")  # it accepts no second one
    pid = cluster.nodes[3].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    cluster.restore(snapshot)
    assert all(cluster.lab_commands(node).call("ready")["ready"] for node in cluster.nodes)
    assert read(cluster, "orders", 35) == list(range(35))


def test_a_broker_that_was_down_in_a_snapshot_serves_without_waiting_for_the_end_of_its_session(tmp_path: Path) -> None:
    for_ever = {"broker.session.timeout.ms": "600000", "broker.connection.loss.fencing.enable": "false"}
    topics = ["orders:1:2"]
    with LocalCluster.start(tmp_path / "one", brokers=2, topics=topics, overrides=for_ever, lab=True) as cluster:
        cluster.kill(2)
        cluster.snapshot(tmp_path / "snapshot")
        cluster.restore(tmp_path / "snapshot")
        wait_until(lambda: len(partitions(cluster)["orders-0"]["isr"]) == 2, "both replicas to be in sync")


def test_restores_and_resets_at_the_same_time_wait_for_each_other(prepared: tuple[LocalCluster, Path]) -> None:
    cluster, snapshot = prepared
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(cluster.restore, snapshot), threads.submit(cluster.reset)]
        running += [threads.submit(cluster.restore, snapshot), threads.submit(cluster.reset)]
        for one in running:
            one.result()
    cluster.restore(snapshot)
    assert read(cluster, "orders", 35) == list(range(35))
