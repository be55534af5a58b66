"""Chaos on Kafka processes: each fault that the place can cause at a node takes effect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from milena.command_line.errors import UserError
from milena.lab.chaos.faults import Kind
from tests.chaos import namespaces
from tests.chaos.kafka import BROKERS, CONTROLLER, OF_LINKS, KafkaPlace
from tests.wire.admin import place_topic
from tests.wire.waiting import wait_until

T = TypeVar("T")
pytestmark = pytest.mark.timeout(600)
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "3",
}
needs_networks = pytest.mark.skipif(namespaces.missing() is not None, reason=f"no cuts: {namespaces.missing()}")


@dataclass
class Run:
    """The place, and the event loop in which it runs."""

    place: KafkaPlace
    runner: asyncio.Runner

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.place.bootstrap)

    def alive(self, *, seen_by: int) -> list[int]:
        """Return the brokers in the metadata of one of them."""
        return self(self.place.brokers_of(seen_by))

    def isr(self, topic: str) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return sorted(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].isrs)

    def in_sync(self, topic: str) -> None:
        wait_until(lambda: self.isr(topic) == list(BROKERS), f"{topic} to be in sync", 60)

    def write(self, topic: str) -> None:
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(60) == 0
        assert not failures, failures


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with asyncio.Runner() as runner:
        place = runner.run(KafkaPlace.open(tmp_path_factory.mktemp("kafka"), SETTINGS))
        yield Run(place, runner)
        runner.run(place.close())


def test_nodes_restart_after_a_kill_a_shutdown_and_a_wipe(run: Run) -> None:
    place_topic(run.bootstrap, "ended", [[1, 2, 3]])
    run(run.place.kill(1))
    run.write("ended")
    run(run.place.kill(1))  # the node is down already
    wait_until(lambda: run.alive(seen_by=2) == [2, 3], "broker 1 to be fenced")
    run(run.place.start(1))
    run.in_sync("ended")
    run(run.place.shut_down(2))
    run(run.place.start(2))
    run.in_sync("ended")
    with pytest.raises(UserError, match="node 3 is running: stop it before wiping its disk"):
        run(run.place.wipe(3))
    run(run.place.kill(3))
    run(run.place.wipe(3))
    run(run.place.start(3))
    run.in_sync("ended")
    run(run.place.kill(CONTROLLER))
    run(run.place.start(CONTROLLER))
    run.write("ended")


def test_a_paused_broker_is_fenced_until_it_is_resumed(run: Run) -> None:
    run(run.place.pause(2))
    wait_until(lambda: run.alive(seen_by=1) == [1, 3], "broker 2 to be fenced")
    run(run.place.resume(2))
    wait_until(lambda: run.alive(seen_by=1) == list(BROKERS), "broker 2 to be back")


@needs_networks
def test_an_isolated_broker_is_fenced_but_clients_still_reach_it(run: Run) -> None:
    assert run.place.kinds >= OF_LINKS
    for other in (1, 2, CONTROLLER):
        run(run.place.cut(3, other))
        run(run.place.cut(other, 3))
    wait_until(lambda: run.alive(seen_by=1) == [1, 2], "broker 3 to be fenced")
    assert run.alive(seen_by=3) == list(BROKERS)  # from the last metadata that broker 3 has got
    run(run.place.heal_links())
    wait_until(lambda: run.alive(seen_by=1) == list(BROKERS), "broker 3 to be back")


@needs_networks
def test_a_cut_blocks_one_direction_and_remains_after_the_receiver_restarts(run: Run) -> None:
    place_topic(run.bootstrap, "one-way", [[2, 1, 3]])
    run.write("one-way")
    run(run.place.cut(2, 1))
    run.write("one-way")  # once broker 1 has left the ISR
    wait_until(lambda: run.isr("one-way") == [2, 3], "broker 1 to leave the ISR", 60)
    run(run.place.kill(1))
    run(run.place.start(1))
    run.write("one-way")
    wait_until(lambda: run.alive(seen_by=3) == list(BROKERS), "the controller to have broker 1")
    assert run.isr("one-way") == [2, 3]
    run(run.place.heal_links())
    run.in_sync("one-way")


def test_a_topic_can_be_tiered(run: Run) -> None:
    place_topic(run.bootstrap, "tiered", [[1, 2, 3]], {"remote.storage.enable": "true"})
    run.write("tiered")


def test_faults_that_kafka_does_not_support_are_refused(run: Run) -> None:
    assert not run.place.kinds & {Kind.POWER_LOSS, Kind.FULL_DISK, Kind.SLOW_DISK, Kind.CLOCK, Kind.TIER_AWAY}
    for work in (
        run.place.power_off(1),
        run.place.fill_disk(1),
        run.place.slow_disk(1, 1),
        run.place.jump_clock(1, 1),
        run.place.break_tier(away=True),
    ):
        with pytest.raises(UserError, match="a node of Kafka cannot"):
            run(work)
    run(run.place.break_tier())


def test_logs_are_kept_to_explain_a_failure(run: Run, tmp_path: Path) -> None:
    run(run.place.keep(tmp_path / "kept"))
    names = {file.name for file in (tmp_path / "kept").iterdir()}
    assert names == {"controller.log", "broker-1.log", "broker-2.log", "broker-3.log"}
    assert "Kafka Server started" in (tmp_path / "kept" / "broker-1.log").read_text()
