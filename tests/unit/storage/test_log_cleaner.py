"""The cleaner tasks of a broker, on a simulated clock and disk."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from milena.config.node_config import NodeConfig
from milena.lab.world.world import World, simulate
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.workers import PlainWorker
from milena.storage.cleaning.choice import Candidate
from milena.storage.cleaning.priority import URGENT_AFTER
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.files.checkpoints import decode_offsets
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.cleaning.cleaned_logs import batches_in, records_of
from tests.unit.storage.kept_node import Node
from tests.unit.storage.logs import batch_of

COMPACT = ("compact",)
LOOK = 20.0
"""Within so many seconds the cleaner checks all logs at least once."""


def on_a_simulated_node(scenario: Callable[[Node], Awaitable[None]], *, dirs: int = 1, **keys: object) -> None:
    async def run(world: World) -> None:
        node = Node(world.machine("one"), dirs=dirs, **keys)
        await node.start()
        await scenario(node)
        assert node.machine.failures == []

    simulate(run, seed=1)


def write(node: Node, log: UnifiedLog, count: int = 40, *, keys: int = 5) -> None:
    """Append ``count`` records of 200 bytes, with ``keys`` different keys, to segments of 1000 bytes."""
    for number in range(count):
        data = batch_of(b"%4d" % number * 50, keys=[b"%d" % (number % keys)], timestamp=node.runtime.clock.time_ms())
        log.append_as_leader(data, leader_epoch=LeaderEpoch(0))
    log.raise_high_watermark(log.log_end_offset)


def values(log: UnifiedLog) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    records = [record for batch in batches_in(log.folder, log.context.disk) for record in records_of(batch)]
    return {record.key: record.value for record in records}


def count(log: UnifiedLog) -> int:
    return sum(batch.count for batch in batches_in(log.folder, log.context.disk))


def test_only_logs_with_the_policy_compact_are_cleaned() -> None:
    async def scenario(node: Node) -> None:
        log, both, other = (
            node.log(0, cleanup_policy=COMPACT),
            node.log(1, cleanup_policy=("compact", "delete")),
            node.log(2),
        )
        for one in (log, both, other):
            write(node, one)
        expected = values(log)
        await node.runtime.clock.sleep(LOOK)
        assert values(log) == values(both) == values(other) == expected
        assert count(log) == count(both) < 12
        assert count(other) == 40
        await node.runtime.clock.sleep(10)
        cleaned = decode_offsets(node.runtime.disk.read("/data0/cleaner-offset-checkpoint"))
        assert cleaned == {("topic", 0): log.cleaned_to, ("topic", 1): both.cleaned_to}
        assert len(node.events.named("log cleaned")) == 2

    on_a_simulated_node(scenario)


def test_without_a_cleaner_compacted_logs_are_neither_compacted_nor_deleted() -> None:
    async def scenario(node: Node) -> None:
        log = node.log(cleanup_policy=("compact", "delete"), retention_ms=1000)
        write(node, log)
        await node.runtime.clock.sleep(120)
        assert (count(log), log.log_start_offset) == (40, 0)

    on_a_simulated_node(scenario, log_cleaner_enable="false")


def test_the_cleaner_applies_the_retention_of_compacted_logs() -> None:
    async def scenario(node: Node) -> None:
        log, kept = (
            node.log(cleanup_policy=("compact", "delete"), retention_ms=30_000),
            node.log(1, cleanup_policy=COMPACT),
        )
        write(node, log)
        write(node, kept)
        await node.runtime.clock.sleep(50)
        assert log.log_start_offset == log.log_end_offset == 40
        assert kept.log_start_offset == 0
        kept.increment_log_start(Offset(30))
        await node.runtime.clock.sleep(LOOK)
        assert kept.segments[0].base_offset > 0  # segments below the log start are deleted for any policy

    on_a_simulated_node(scenario)


def test_a_log_that_moves_to_another_directory_is_not_cleaned() -> None:
    async def scenario(node: Node) -> None:
        log = node.log(cleanup_policy=COMPACT)
        write(node, log)
        (target,) = (directory for directory in node.logs.dirs if directory is not node.logs.dir_of(log))
        future = node.logs.futures.create(log, target)
        await node.runtime.clock.sleep(2 * LOOK)
        assert count(log) == 40
        node.logs.futures.drop(future)
        await node.runtime.clock.sleep(LOOK)
        assert count(log) < 12

    on_a_simulated_node(scenario, dirs=2)


def test_a_log_that_may_be_tiered_is_not_cleaned() -> None:
    """Compaction must not remove records in favour of later ones that only this disk has, and segments that are copied
    to the tier again must have their original records."""

    async def scenario(node: Node) -> None:
        node.logs.dirs[0].context.tiered = True
        asked = node.log(0, cleanup_policy=COMPACT, remote_storage_enable=True)
        was = node.log(1, remote_storage_enable=True)
        write(node, asked)
        write(node, was)
        was.set_highest_offset_in_remote_storage(Offset(8))
        was.move_local_start(was.segments[3].base_offset)
        was.drop(was.segments.take_first(3))
        was.update_config(asked.config)
        plain = node.log(2, cleanup_policy=COMPACT)
        write(node, plain)
        await node.runtime.clock.sleep(2 * LOOK)
        assert count(asked) == 40 and asked.cleaned_to is was.cleaned_to is None
        assert plain.cleaned_to is not None
        was.update_config(
            plain.config
        )  # remote.storage.enable is off, and the beginning of the log is still in the tier
        await node.runtime.clock.sleep(2 * LOOK)
        assert was.cleaned_to is None

    on_a_simulated_node(scenario)


@pytest.mark.parametrize("event", ["truncated", "start", "deleted", "moved", "policy", "settings"])
def test_a_cleaning_in_progress_is_aborted_if_the_log_changes(event: str) -> None:
    """The cleaner is throttled to one segment per second, so that the change comes before the end."""

    async def scenario(node: Node) -> None:
        log, other = node.log(0, cleanup_policy=COMPACT), node.log(1)
        write(node, log)
        cleaner = node.logs.cleaner.cleaner
        while log not in cleaner.in_progress:
            await node.runtime.clock.sleep(0.1)
        await node.runtime.clock.sleep(1)
        match event:
            case "truncated":
                log.truncate_to(Offset(39))
            case "start":
                log.increment_log_start(Offset(7))
            case "deleted":
                node.logs.delete(log)
            case "moved":
                node.logs.futures.create(log, node.logs.dirs[node.logs.dirs[0] is node.logs.dir_of(log)])
            case "policy":
                log.update_config(other.config)
            case "settings":
                node.logs.cleaner.reconfigure(CleanerSettings(threads=0))
        expected = values(log)
        while log in cleaner.in_progress:
            await node.runtime.clock.sleep(0.1)
        assert log.cleaned_to is None
        assert values(log) == expected
        assert not cleaner.uncleanable and not node.offline

    on_a_simulated_node(scenario, dirs=2, log_cleaner_io_max_bytes_per_second=1000)


def test_the_throttle_limits_the_bytes_of_all_tasks_together() -> None:
    async def scenario(node: Node) -> None:
        logs = [node.log(number, cleanup_policy=COMPACT) for number in range(2)]
        for log in logs:
            write(node, log)
        began = node.runtime.clock.monotonic()
        while any(log.cleaned_to is None for log in logs):
            await node.runtime.clock.sleep(0.1)
        size = 2 * 2 * 35 * 270  # each log is read twice
        assert size / 2000 - 15 < node.runtime.clock.monotonic() - began < size / 2000 * 1.5 + 15

    on_a_simulated_node(scenario, log_cleaner_io_max_bytes_per_second=2000, log_cleaner_threads=2)


def record_checks(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[UnifiedLog]:
    """Returns a list to which each log is appended when the cleaner checks it."""
    cleaner, checked = node.logs.cleaner.cleaner, list[UnifiedLog]()
    look = cleaner.look

    def counted(log: UnifiedLog, now: int) -> Candidate | None:
        checked.append(log)
        return look(log, now)

    monkeypatch.setattr(cleaner, "look", counted)
    return checked


def test_many_due_logs_are_checked_only_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of all logs before each cleaning would keep the event loop busy."""

    async def scenario(node: Node) -> None:
        logs = [node.log(number, cleanup_policy=COMPACT) for number in range(60)]
        for log in logs:
            write(node, log, 10)
        await node.runtime.clock.sleep(10)
        checked = record_checks(node, monkeypatch)
        await node.runtime.clock.sleep(10)
        assert all(log.cleaned_to is not None for log in logs)
        assert len(checked) == 3 * len(logs)  # all logs, each log before its cleaning, and all logs again

    on_a_simulated_node(scenario)


def test_the_order_of_due_logs_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: Node) -> None:
        idle = node.log(7, cleanup_policy=COMPACT)
        logs = [node.log(number, cleanup_policy=COMPACT) for number in range(4)]
        for log in logs:
            write(node, log)
        checked = record_checks(node, monkeypatch)
        while logs[-1].cleaned_to is None:
            await node.runtime.clock.sleep(0.1)
        assert checked.count(idle) > len(logs)

    on_a_simulated_node(scenario, log_cleaner_io_max_bytes_per_second=1000)


def test_a_raised_throttle_takes_effect_at_once() -> None:
    async def scenario(node: Node) -> None:
        log = node.log(cleanup_policy=COMPACT)
        write(node, log)
        while log not in node.logs.cleaner.cleaner.in_progress:
            await node.runtime.clock.sleep(0.1)
        await node.runtime.clock.sleep(60)  # with the old throttle it would wait for an hour
        assert log.cleaned_to is None
        node.logs.cleaner.reconfigure(CleanerSettings(bytes_per_second=1e6))
        await node.runtime.clock.sleep(LOOK)
        assert log.cleaned_to is not None

    on_a_simulated_node(scenario, log_cleaner_io_max_bytes_per_second=1)


def test_a_cleaning_ends_soon_after_its_directory_has_failed() -> None:
    async def scenario(node: Node) -> None:
        _, log, cleaner = node.log(0), node.log(1, cleanup_policy=COMPACT), node.logs.cleaner.cleaner
        write(node, log)
        while log not in cleaner.in_progress:
            await node.runtime.clock.sleep(0.1)
        node.logs.take_offline(node.logs.dir_of(log), OSError(errno.EIO, "broken"))
        await node.runtime.clock.sleep(12)  # the throttle delays the end, since all of the log was read at once
        assert cleaner.in_progress == {} and cleaner.uncleanable == {}
        assert node.events.named("cleaning aborted") and not node.events.named("cleaning failed")

    on_a_simulated_node(scenario, dirs=2, log_cleaner_io_max_bytes_per_second=1000)


def test_metrics_work_with_offline_logs_and_logs_whose_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: Node) -> None:
        _, log, cleaner = node.log(0), node.log(1, cleanup_policy=COMPACT), node.logs.cleaner
        cleaner.cleaner.uncleanable[log] = "damaged"
        await node.runtime.clock.sleep(LOOK)
        assert list(cleaner.cleaner.uncleanable) == [log]

        def odd(_log: UnifiedLog, _now: int) -> Candidate:
            raise RuntimeError("an error of ours")

        monkeypatch.setattr("milena.storage.manager.log_cleaner.candidate", odd)
        assert cleaner.dirty_bytes(cleaner.cleaner.uncleanable) == 0
        node.logs.take_offline(node.logs.dir_of(log), OSError(errno.EIO, "broken"))
        await node.runtime.clock.sleep(LOOK)
        assert cleaner.cleaner.uncleanable == {}

    on_a_simulated_node(scenario, dirs=2)


class SlowWorker:
    """A ``Worker`` that takes a second to end."""

    def __init__(self, node: Node) -> None:
        self._worker = PlainWorker(node.runtime.disk)
        self._clock = node.runtime.clock
        self.running = False

    @property
    def cpu_seconds(self) -> float | None:
        return self._worker.cpu_seconds

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.running = True
        return self._worker.run(*args, **kwargs)

    def set_urgent(self, urgent: bool) -> None:
        self._worker.set_urgent(urgent)

    def end(self) -> None:
        self._worker.end()

    async def ended(self) -> None:
        if self.running:
            await self._clock.sleep(1)
        self.running = False
        await self._worker.ended()


def slow_workers(node: Node) -> list[SlowWorker]:
    """The workers of tasks that begin from now on."""
    made: list[SlowWorker] = []

    def worker() -> SlowWorker:
        made.append(SlowWorker(node))
        return made[-1]

    node.runtime.disk.worker = worker  # type: ignore[method-assign]
    node.logs.cleaner.reconfigure(replace(node.logs.cleaner.cleaner.settings, backoff_ms=1000))
    return made


def test_the_end_of_a_worker_is_awaited_after_each_cleaning() -> None:
    """Otherwise the operating system would keep the ended worker for ever."""

    async def scenario(node: Node) -> None:
        workers = slow_workers(node)
        log = node.log(cleanup_policy=COMPACT)
        write(node, log)
        while log.cleaned_to is None:
            await node.runtime.clock.sleep(0.1)
        await node.runtime.clock.sleep(5)
        assert [one.running for one in workers] == [False]

    on_a_simulated_node(scenario)


def test_an_aborted_cleaning_holds_its_log_until_its_worker_has_ended() -> None:
    async def scenario(node: Node) -> None:
        workers = slow_workers(node)
        log, cleaner = node.log(cleanup_policy=COMPACT), node.logs.cleaner
        write(node, log)
        while log not in cleaner.cleaner.in_progress:
            await node.runtime.clock.sleep(0.1)
        await node.runtime.clock.sleep(2)
        cleaner.reconfigure(replace(cleaner.cleaner.settings, bytes_per_second=1e6))
        await node.runtime.clock.sleep(0.5)
        assert log in cleaner.cleaner.in_progress and workers[0].running and not workers[1].running
        await node.runtime.clock.sleep(5)
        assert log.cleaned_to is not None and not any(one.running for one in workers)
        assert cleaner.cleaner.in_progress == {}

    on_a_simulated_node(scenario, log_cleaner_io_max_bytes_per_second=1000)


def test_a_full_disk_delays_the_cleaning_of_one_log_but_not_of_others() -> None:
    async def scenario(node: Node) -> None:
        log, other = node.log(0, cleanup_policy=COMPACT), node.log(1, cleanup_policy=COMPACT)
        write(node, log)
        write(node, other, 30)
        expected = values(log)
        node.machine.storage.fail(f"{log.folder}/", errno.ENOSPC, operation="append")
        await node.runtime.clock.sleep(LOOK)
        assert values(log) == expected and log.cleaned_to is None  # segments whose records all go need no space
        assert count(other) < 12 and other.cleaned_to is not None
        node.machine.storage.heal()
        await node.runtime.clock.sleep(LOOK)
        assert values(log) == expected and log.cleaned_to is not None

    on_a_simulated_node(scenario)


def test_a_node_killed_during_a_cleaning_loses_no_records() -> None:
    async def run(world: World) -> None:
        machine = world.machine("one")
        for seconds in (1, 5, 9, 13):
            node = Node(machine, log_cleaner_io_max_bytes_per_second=1000)
            await node.start()
            log = node.log(cleanup_policy=COMPACT)
            write(node, log)
            expected = values(log)
            while log not in node.logs.cleaner.cleaner.in_progress:
                await node.runtime.clock.sleep(0.1)
            await node.runtime.clock.sleep(seconds)
            assert log in node.logs.cleaner.cleaner.in_progress
            machine.kill()
            await machine.wait_ended()
            node = Node(machine)
            await node.start()
            assert values(node.log(cleanup_policy=COMPACT)) == expected
            machine.kill()
            await machine.wait_ended()

    simulate(run, seed=1)


def test_a_log_whose_worker_starves_is_cleaned_with_normal_priority() -> None:
    """A worker of low priority takes a minute for its first step, without CPU time; an urgent one takes no time."""

    class StarvingWorker(SlowWorker):
        urgent = False
        cpu_seconds = 0.0

        def set_urgent(self, urgent: bool) -> None:
            self.urgent = urgent
            chosen.append(urgent)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            work, paced, *rest = args

            async def slow(amount: int) -> None:
                if not self.urgent:
                    await node_of[0].runtime.clock.sleep(60)
                await paced(amount)

            return super().run(work, slow, *rest, **kwargs)

    chosen: list[bool] = []
    node_of: list[Node] = []

    async def scenario(node: Node) -> None:
        node_of.append(node)
        node.runtime.disk.worker = lambda: StarvingWorker(node)  # type: ignore[method-assign]
        node.logs.cleaner.reconfigure(replace(node.logs.cleaner.cleaner.settings, backoff_ms=1000))
        log = node.log(cleanup_policy=COMPACT)
        write(node, log)
        expected = values(log)
        await node.runtime.clock.sleep(70)
        assert chosen == [False, True]
        assert log.cleaned_to is not None and values(log) == expected
        assert len(node.events.named("cleaning begins again with normal priority")) == 1
        write(node, log)
        await node.runtime.clock.sleep(70)
        assert chosen[2] is False

    on_a_simulated_node(scenario)


def test_the_time_for_which_a_log_was_due_ends_when_it_is_not_compacted_any_more() -> None:
    class NotedWorker(SlowWorker):
        def set_urgent(self, urgent: bool) -> None:
            chosen.append(urgent)

    chosen: list[bool] = []

    async def scenario(node: Node) -> None:
        node.runtime.disk.worker = lambda: NotedWorker(node)  # type: ignore[method-assign]
        node.logs.cleaner.reconfigure(replace(node.logs.cleaner.cleaner.settings, backoff_ms=1000))
        log = node.log(cleanup_policy=COMPACT)
        write(node, log)
        node.machine.storage.fail(f"{log.folder}/", errno.ENOSPC, operation="append")
        await node.runtime.clock.sleep(URGENT_AFTER + LOOK)
        assert chosen[-1] is True
        config, log.config = log.config, replace(log.config, cleanup_policy=("delete",))
        await node.runtime.clock.sleep(LOOK)
        log.config = config
        await node.runtime.clock.sleep(LOOK)
        assert chosen[-1] is False

    on_a_simulated_node(scenario)


def test_settings_are_taken_from_kafkas_keys() -> None:
    config = NodeConfig.of(
        log_cleaner_threads=2,
        log_cleaner_dedupe_buffer_size=4 << 20,
        log_cleaner_io_buffer_size=40_000,
        log_cleaner_io_buffer_load_factor=0.5,
        log_cleaner_io_max_bytes_per_second=1.5e6,
        log_cleaner_backoff_ms=7,
    )
    settings = CleanerSettings.of(config)
    assert settings == CleanerSettings(2, 4 << 20, 0.5, 40_000, 1.5e6, 7)
    assert (settings.map_bytes, settings.read_bytes) == (2 << 20, 10_000)
    assert CleanerSettings.of(NodeConfig.of(log_cleaner_enable="false")).enabled is False
