"""Chaos in containers: each fault that the place can cause at a node takes effect."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from milena.command_line.errors import UserError
from tests.chaos.containers import BROKERS, CONTROLLER, LOG_DIRS, ContainersPlace
from tests.wire.admin import place_topic
from tests.wire.command import milena
from tests.wire.waiting import wait_until

T = TypeVar("T")
pytestmark = pytest.mark.timeout(600)
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "min.insync.replicas": "1",
    "remote.log.manager.task.interval.ms": "1000",
}
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "10000"}
HOUR = 3600.0


@dataclass
class Run:
    """The place, and the event loop in which it runs."""

    place: ContainersPlace
    runner: asyncio.Runner

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.place.bootstrap)

    def exit_code(self, node: int) -> int:
        return int(self.place.container(node).state()["ExitCode"])

    def fenced(self) -> list[int]:
        brokers = self.place.ask(CONTROLLER, "brokers")
        return sorted(int(number) for number, broker in brokers.items() if broker["fenced"])

    def write(self, topic: str, value: str) -> None:
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 0})
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(60) == 0
        assert not failures, failures

    def log_of(self, node: int, topic: str) -> list[str]:
        return [value for _, value, _ in self.place.ask(node, "read_log", topic=topic, partition=0)]

    def in_sync(self, topic: str) -> None:
        def isr() -> list[int]:
            described = json.loads(milena("topic", "describe", topic, "--json", "-b", self.bootstrap).out)
            return sorted(described[0]["partitions"][0]["isr"])

        wait_until(lambda: isr() == list(BROKERS), f"{topic} to be in sync", 60)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with asyncio.Runner() as runner:
        try:
            place = runner.run(ContainersPlace.open(tmp_path_factory.mktemp("place"), SETTINGS))
        except UserError as error:
            if str(error).startswith("no containers here"):
                pytest.skip(str(error))
            raise
        yield Run(place, runner)
        runner.run(place.close())


def test_a_killed_node_and_one_that_was_shut_down_come_back(run: Run) -> None:
    place_topic(run.bootstrap, "killed", [[1, 2, 3]])
    run(run.place.kill(1))
    assert run.exit_code(1) == 137
    run.write("killed", "while 1 is down")
    run(run.place.kill(1))  # it is down already
    run(run.place.start(1))
    run(run.place.start(1))
    wait_until(lambda: run.log_of(1, "killed") == ["while 1 is down"], "broker 1 to have all")
    run(run.place.shut_down(1))
    assert run.exit_code(1) == 0
    run(run.place.start(1))
    run.in_sync("killed")
    run(run.place.kill(CONTROLLER))
    run(run.place.start(CONTROLLER))
    wait_until(lambda: run.fenced() == [], "all brokers to be back", 60)


def test_a_paused_broker_is_fenced_until_it_is_resumed(run: Run) -> None:
    run(run.place.pause(2))
    wait_until(lambda: run.fenced() == [2], "broker 2 to be fenced")
    run(run.place.resume(2))
    run(run.place.resume(2))
    wait_until(lambda: run.fenced() == [], "broker 2 to be back")


def test_a_question_to_a_node_that_is_paused_meanwhile_has_no_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(run.place.pause(2))
    with monkeypatch.context() as patch:
        patch.setattr(run.place, "_runs", lambda _: True)
        assert run(run.place.troubles(2)) == {}
    run(run.place.resume(2))
    assert run(run.place.troubles(2))


def test_an_isolated_broker_is_fenced_but_clients_still_reach_it(run: Run) -> None:
    others = [node for node in (*BROKERS, CONTROLLER) if node != 3]
    for other in others:
        run(run.place.cut(3, other))
        run(run.place.cut(other, 3))
    wait_until(lambda: run.fenced() == [3], "broker 3 to be fenced")
    host, port = run.place.bootstrap[2]
    assert milena("broker", "list", "-b", f"{host}:{port}").out
    run(run.place.heal_links())
    wait_until(lambda: run.fenced() == [], "broker 3 to be back")


def test_a_cut_blocks_one_direction_and_remains_after_the_receiver_restarts(run: Run) -> None:
    place_topic(run.bootstrap, "one-way", [[2, 1, 3]])
    run.write("one-way", "before")
    run(run.place.cut(2, 1))
    run.write("one-way", "after")  # once broker 1 has left the ISR
    assert run.log_of(1, "one-way") == ["before"]
    assert run.log_of(3, "one-way") == ["before", "after"]
    run(run.place.kill(1))
    run(run.place.start(1))
    run.write("one-way", "after the start")
    assert run.fenced() == []
    assert run.log_of(1, "one-way") == ["before"]
    run(run.place.heal_links())
    run.in_sync("one-way")
    assert run.log_of(1, "one-way") == ["before", "after", "after the start"]


def test_a_wiped_broker_copies_all_records_from_the_other_replicas(run: Run) -> None:
    place_topic(run.bootstrap, "wiped", [[1, 2, 3]])
    run.write("wiped", "x")
    with pytest.raises(UserError, match="broker-3 is running: stop it before wiping its disk"):
        run(run.place.wipe(3))
    before = run.place.container(3).run("cat", f"{LOG_DIRS[0]}/meta.properties")
    run(run.place.kill(3))
    run(run.place.wipe(3))
    run(run.place.start(3))
    run.in_sync("wiped")
    assert run.log_of(3, "wiped") == ["x"]
    assert run.place.container(3).run("cat", f"{LOG_DIRS[0]}/meta.properties") != before


def test_a_node_restarts_after_a_power_loss(run: Run) -> None:
    place_topic(run.bootstrap, "powerless", [[2, 1, 3]])
    run.write("powerless", "x")
    run(run.place.power_off(2))
    assert run.exit_code(2) == 70
    run(run.place.start(2))
    run.in_sync("powerless")


def test_only_the_full_log_directory_fails_until_the_broker_restarts(run: Run) -> None:
    place_topic(run.bootstrap, "filling", [[1, 2, 3]] * 4)
    run.write("filling", "x")
    run(run.place.fill_disk(1))

    def error_is_logged() -> bool:
        run.write("filling", "more")
        return "No space left on device" in run.place.container(1).log

    wait_until(error_is_logged, "broker 1 to meet its full disk", 60)
    assert run.place.ask(1, "ready") == {"ready": True}
    run(run.place.kill(1))
    run(run.place.start(1))
    run.in_sync("filling")


def test_syncs_are_slow_and_the_clock_is_wrong_until_the_faults_end(run: Run) -> None:
    place_topic(run.bootstrap, "slow", [[3]], {"message.timestamp.type": "LogAppendTime"})
    run(run.place.slow_disk(3, 3.0))
    run(run.place.jump_clock(3, -10 * HOUR))
    run.write("slow", "x")
    began = time.monotonic()
    run.place.ask(3, "flush", topic="slow", partition=0)
    assert time.monotonic() - began >= 3
    run(run.place.slow_disk(3, 0))
    run(run.place.jump_clock(3, 0))
    run.write("slow", "y")
    consumer = KafkaConsumer(bootstrap_servers=run.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([TopicPartition("slow", 0)])
    first, second = (next(consumer).timestamp / 1000 for _ in range(2))
    consumer.close()
    assert abs(second - first - 10 * HOUR) < HOUR


def test_the_tier_is_unavailable_also_to_a_restarted_broker_and_then_loses_objects(run: Run) -> None:
    place_topic(run.bootstrap, "old", [[2, 1, 3]], TIERED)
    run.write("old", "x")
    run(run.place.break_tier(away=True))
    run(run.place.kill(2))
    run(run.place.start(2))
    run.in_sync("old")
    milena("elect", "old", "-b", run.bootstrap)
    run.place.ask(2, "roll", topic="old", partition=0)
    with pytest.raises(AssertionError, match="Input/output error"):
        run.place.ask(2, "tiering", topic="old", partition=0)
    run(run.place.pause(2))
    run(run.place.break_tier(lose=1.0))
    run(run.place.resume(2))
    # It was fenced if the pause took longer than its session: no other broker has closed the segment.
    run.in_sync("old")
    milena("elect", "old", "-b", run.bootstrap)

    def lost() -> list[str]:
        return [path for path in run(run.place.lost_objects()) if "/old-0-" in path]

    wait_until(lambda: bool(lost()), "a segment to be lost", 60)
    (path,) = lost()
    folder, _, name = path.rpartition("/")
    beside = run.place.container(1).run("ls", folder).split()
    assert name not in beside
    assert name.replace(".log", ".snapshot") in beside
    run(run.place.break_tier())
    run(run.place.kill(2))
    run(run.place.start(2))
    assert lost() == [path]
    run.in_sync("old")


def test_logs_and_container_states_are_kept_to_explain_a_failure(run: Run, tmp_path: Path) -> None:
    run(run.place.keep(tmp_path / "kept"))
    assert "node starts" in (tmp_path / "kept" / "broker-1.log").read_text()
    assert json.loads((tmp_path / "kept" / f"controller-{CONTROLLER}.state.json").read_text())["Status"] == "running"
