"""Clients of real processes soon have a new leader after one is killed or shut down, and it soon returns to the ISR."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]

SESSION = {"broker.session.timeout.ms": "90000"}
"""Longer than the time limits here: a test that waits for the end of a session fails, however slow the machine is."""


class Writer:
    """A producer with acks=all that sends one record after the other."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000}
        self._producer = Producer(settings | {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100})
        self._ended = threading.Event()
        self.errors: list[KafkaError] = []
        self.count = 0

    def write(self) -> None:
        while not self._ended.is_set():
            self._producer.produce("t", b"%d" % self.count, partition=0, on_delivery=self._delivered)
            self._producer.flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        self.count += 1

    def stop(self) -> None:
        self._ended.set()


@contextmanager
def writing(bootstrap: str) -> Iterator[Writer]:
    writer = Writer(bootstrap)
    thread = threading.Thread(target=writer.write)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join(70)
    assert writer.errors == []


def leader_and_isr(admin: AdminClient) -> tuple[int, int]:
    """Return the leader of ``t`` and the size of its ISR."""
    partition = admin.list_topics("t", timeout=10).topics["t"].partitions[0]
    return partition.leader, len(partition.isrs)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def test_a_killed_leader_is_replaced_before_its_session_ends(milena_start: Callable[..., LocalCluster]) -> None:
    cluster = milena_start(brokers=3, overrides=SESSION)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create_topic(cluster.bootstrap, "t", replicas=3, config={"min.insync.replicas": "2"})
    with writing(cluster.bootstrap) as writer:
        wait_for(lambda: writer.count > 100)
        for _ in range(2):
            leader, _ = leader_and_isr(admin)
            cluster.kill(leader)
            wait_for(lambda gone=leader: leader_and_isr(admin)[0] not in (gone, -1))  # type: ignore[misc]
            written = writer.count
            wait_for(lambda enough=written + 100: writer.count > enough)  # type: ignore[misc]
            cluster.restart(leader)
            wait_for(lambda: leader_and_isr(admin)[1] == 3)  # without waiting for its previous session to end


def test_a_controlled_shutdown_of_a_leader_elects_a_new_leader_at_once(
    milena_start: Callable[..., LocalCluster],
) -> None:
    cluster = milena_start(brokers=3, overrides=SESSION)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create_topic(cluster.bootstrap, "t", replicas=3, config={"min.insync.replicas": "2"})
    with writing(cluster.bootstrap) as writer:
        for _ in range(3):
            wait_for(lambda enough=writer.count + 100: writer.count > enough)  # type: ignore[misc]
            leader, _ = leader_and_isr(admin)
            cluster.kill(leader, signal.SIGTERM)
            wait_for(lambda gone=leader: leader_and_isr(admin)[0] not in (gone, -1))  # type: ignore[misc]
            wait_for(lambda enough=writer.count + 100: writer.count > enough)  # type: ignore[misc]
            cluster.restart(leader)
            wait_for(lambda: leader_and_isr(admin)[1] == 3)
