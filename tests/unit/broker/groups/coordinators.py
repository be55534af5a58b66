"""A coordinator that leads a partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from milena.broker.groups.coordinator import GroupCoordinator
from milena.broker.groups.deleted_topic_offsets import TopicsView
from milena.broker.groups.model import CommittedOffset, GroupSettings
from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode
from milena.protocol.types import OFFSETS_TOPIC, ZERO_UUID, LeaderEpoch
from tests.unit.broker.fixtures import ME, Bench, led_by

OLD, NEW = UUID(int=7), UUID(int=8)


class Turn:
    def __await__(self) -> Generator[None, None, None]:
        yield None


class Tasks:
    """Runs tasks step by step."""

    def __init__(self) -> None:
        self.running: list[Coroutine[Any, Any, None]] = []
        self.turns = 0
        self.kept: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def keep(self, task: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.kept.append(task)

    def attempt(self, task: Coroutine[Any, Any, None], name: str) -> None:
        self.running.append(task)

    def run(self) -> None:
        self.turns = 0
        for task in self.running:
            for _ in task.__await__():
                self.turns += 1
        self.running.clear()


def let_tasks_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return the bench, whose clock lets other tasks run instead of sleeping."""

    async def turn(_: float) -> None:
        await Turn()

    monkeypatch.setattr(bench.clock, "sleep", turn)
    return bench


class Coordinated:
    """A coordinator of one partition of ``__consumer_offsets``, which has only this replica."""

    def __init__(self, bench: Bench) -> None:
        self.tasks = Tasks()
        self.partition: Partition = bench.led(OFFSETS_TOPIC)
        self.noted: list[Exception] = []
        contained = SimpleNamespace(note=lambda what, error, **where: self.noted.append(error))
        runtime: Any = SimpleNamespace(clock=bench.clock, random=bench.runtime.random, contained=contained)
        tasks: Any = self.tasks
        self.topics = {OLD, NEW}
        """The topic ids in this broker's image."""
        self.current: list[Callable[[], bool]] = []
        """The results of queries whether the image is current. A query without a result fails the test."""
        self.groups = GroupCoordinator(
            runtime,
            tasks,
            turn=lambda: bench.clock.sleep(0),
            partition_count=lambda: 1,
            topics=TopicsView(exists=lambda topic_id: topic_id in self.topics, current=self._is_current),
            settings=GroupSettings(initial_delay_ms=0),
            commit_timeout_ms=5_000,
            load_bytes=1 << 20,
            retention_ms=1_000,
            check_interval_ms=1_000,
        )
        self.epoch = 0
        self.elect()
        self.tasks.run()

    async def _is_current(self) -> bool:
        return self.current.pop(0)()

    def elect(self, epochs: int = 2) -> None:
        """Elect this broker in a new leader epoch. In skipped epochs another broker may have led."""
        self.epoch += epochs
        self.partition.become(led_by(ME, leader_epoch=self.epoch))
        self.groups.elected(0, LeaderEpoch(self.epoch), self.partition)

    def commit(self, offset: int, topic_id: UUID = ZERO_UUID, topic: str = "t") -> ErrorCode:
        shard = self.groups.shard("g")
        errors: list[ErrorCode] = []
        committed = CommittedOffset(offset, -1, "", 0, -1, topic_id)
        shard.commit(shard.get_or_create("g"), {(topic, 0): committed}, errors.append)
        return errors[0]

    def offsets(self) -> dict[str, int]:
        found = self.groups.shard("g").committed_offsets("g")
        return {topic: committed.offset for (topic, _), committed in found.items()}
