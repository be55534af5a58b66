"""Periodic work on logs: retention, flushes, checkpoints, deletion of files, expiration of producer ids."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from milena.protocol.cooperative import run_in_steps
from milena.protocol.errors import KafkaError
from milena.runtime.context import Runtime
from milena.runtime.tasks import Tasks
from milena.storage.files.deletions import remove_paths
from milena.storage.log.context import Log
from milena.storage.log.flush import SYNCED_FIRST, FlushPlan, run_plans
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig

NEVER: Final = (1 << 63) - 1
INITIAL_DELAY: Final = 30.0
DELETION_TICK: Final = 1.0
SLICE: Final = 50
"""The number of logs that are processed before the loop runs other work."""
ID_SYNCS: Final = 2
"""The number of syncs of topic ids at the same time. A journaling file system commits them together. Each takes a
thread of the disk's (``OFFLOAD_THREADS``); the other half is for the work that requests wait for."""


@dataclass(frozen=True, slots=True)
class MaintenanceTimes:
    """Intervals in ms; ``NEVER`` disables a task."""

    retention_ms: int = 300_000
    flush_ms: int = NEVER
    recovery_checkpoint_ms: int = 60_000
    high_watermark_checkpoint_ms: int = 5_000
    producer_check_ms: int = 600_000
    delete_delay_ms: int = 60_000

    @classmethod
    def of(cls, config: NodeConfig) -> MaintenanceTimes:
        """From Kafka's keys. The three checkpoints are written together, at the shortest of their intervals."""
        return cls(
            config.get_int("log.retention.check.interval.ms"),
            config.get_int("log.flush.scheduler.interval.ms"),
            min(
                config.get_int("log.flush.offset.checkpoint.interval.ms"),
                config.get_int("log.flush.start.offset.checkpoint.interval.ms"),
            ),
            config.get_int("replica.high.watermark.checkpoint.interval.ms"),
            config.get_int("producer.id.expiration.check.interval.ms"),
            config.get_int("log.segment.delete.delay.ms"),
        )


class Logs(Protocol):
    """The logs that the tasks work on."""

    @property
    def online_dirs(self) -> list[LogDir]: ...

    def __iter__(self) -> Iterator[UnifiedLog]: ...

    def take_offline(self, directory: LogDir, error: OSError) -> None: ...

    def is_left_to_cleaner(self, log: UnifiedLog) -> bool: ...


class LogMaintenance:
    """The tasks of a LogManager."""

    def __init__(self, logs: Logs, runtime: Runtime, times: MaintenanceTimes) -> None:
        self._logs = logs
        self._runtime = runtime
        self._times = times
        self._rolled: dict[Log, None] = {}
        self._requested = asyncio.Event()
        self._unsynced: dict[Log, None] = {}
        self._sync_requested = asyncio.Event()
        self._checkpoint_requested = False
        self._new: deque[Log] = deque()
        """Logs whose topic ids are not synced."""
        self._new_added = asyncio.Event()

    def start(self, tasks: Tasks) -> None:
        times = self._times
        checkpoint_ms = min(times.recovery_checkpoint_ms, times.high_watermark_checkpoint_ms)
        tasks.spawn(self._on_demand(), name="flush after roll")
        tasks.spawn(self._sync_unsynced(), name="sync before replication")
        for _ in range(ID_SYNCS):
            tasks.spawn(self._sync_ids(), name="sync of topic ids")
        tasks.spawn(self._every(times.retention_ms, self._retention, INITIAL_DELAY), name="retention")
        tasks.spawn(self._every(checkpoint_ms, self.write_checkpoints), name="checkpoints")
        tasks.spawn(self._every(times.producer_check_ms, self._expire), name="producer expiration")
        tasks.spawn(self._every(int(DELETION_TICK * 1000), self._delete), name="deletion")
        if times.flush_ms < NEVER:
            tasks.spawn(self._every(times.flush_ms, self._flush_old), name="flush")

    def flush_soon(self, log: Log) -> None:
        """A log has rolled: sync what precedes the new segment, in the background."""
        if log.topic in SYNCED_FIRST:
            return  # each append to it starts a sync of the complete log
        self._rolled[log] = None
        self._requested.set()

    def sync_soon(self, log: Log) -> None:
        """Sync a log of a ``SYNCED_FIRST`` topic, for whose sync other brokers wait. Calls during a sync are combined
        into the next one."""
        self._unsynced[log] = None
        self._sync_requested.set()

    def sync_id_soon(self, log: Log) -> None:
        """Sync the topic id of a new log, like Kafka's scheduled task "flush-metadata-file": the first record need not
        wait for it, which would hold the loop for two syncs of a disk."""
        self._new.append(log)
        self._new_added.set()

    def checkpoint_soon(self) -> None:
        """Write the checkpoints: a log was truncated below its recovery point, or logs were deleted."""
        self._checkpoint_requested = True
        self._requested.set()

    async def flush(self, logs: Sequence[Log], *, sealed_only: bool = False) -> None:
        """Sync logs, ``SLICE`` at a time, since a sync needs open files. A worker does the blocking part. If a disk
        fails, its directory goes offline."""
        for first in range(0, len(logs), SLICE):
            await self._flush_some(logs[first : first + SLICE], sealed_only=sealed_only)

    async def _flush_some(self, logs: Sequence[Log], *, sealed_only: bool) -> None:
        await self._run_plans(logs, lambda log: log.plan_flush(log.sealed_end if sealed_only else None))

    async def _run_plans(self, logs: Sequence[Log], planned: Callable[[Log], FlushPlan | None]) -> None:
        plans: list[tuple[Log, FlushPlan]] = []
        for log in logs:
            try:
                plan = planned(log)
            except KafkaError:
                continue  # it is deleted or offline, which is logged already
            if plan is not None:
                plans.append((log, plan))
        if not plans:
            return
        errors = await self._runtime.disk.offload(run_plans, [plan for _, plan in plans])
        for (log, plan), error in zip(plans, errors, strict=True):
            if error is None:
                log.flushed(plan)
            else:
                log.context.failed(error)

    async def write_checkpoints(self) -> None:
        """Write the changed offset checkpoints of all directories."""
        for directory in self._logs.online_dirs:
            collecting = directory.collect_checkpoints()
            checkpoints = await run_in_steps(collecting, partial(self._runtime.clock.sleep, 0))
            if checkpoints.files:
                await self._offload(directory, directory.write, checkpoints)

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]], delay: float = 0.0) -> None:
        if delay:
            await self._runtime.clock.sleep(min(delay, interval_ms / 1000))
            await work()
        while True:
            await self._runtime.clock.sleep(interval_ms / 1000)
            await work()

    async def _on_demand(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            if self._checkpoint_requested:
                self._checkpoint_requested = False
                await self.write_checkpoints()
            while self._rolled:
                logs = list(self._rolled)
                self._rolled.clear()
                await self.flush(logs, sealed_only=True)

    async def _sync_unsynced(self) -> None:
        """Sync the logs of ``sync_soon``. A task of its own, since other flushes may take long."""
        while True:
            await self._sync_requested.wait()
            self._sync_requested.clear()
            logs = list(self._unsynced)
            self._unsynced.clear()
            await self.flush(logs)
            for log in logs:
                log.context.synced(log)

    async def _sync_ids(self) -> None:
        while True:
            if not self._new:
                self._new_added.clear()
                await self._new_added.wait()
            count = min(SLICE, len(self._new))  # mypyc evaluates the end of a range in each iteration
            logs = [self._new.popleft() for _ in range(count)]
            await self._run_plans(logs, lambda log: log.plan_id_sync())

    async def _in_slices(self, work: Callable[[UnifiedLog], None]) -> None:
        for number, log in enumerate(list(self._logs)):
            try:
                work(log)
            except KafkaError:
                continue  # its directory has gone offline, which is logged already
            except Exception as error:  # an error of one log must neither stop the work on others nor end the node
                self._runtime.contained.note("maintenance of a log", error, folder=log.folder)
            if number % SLICE == SLICE - 1:
                await self._runtime.clock.sleep(0)

    async def _retention(self) -> None:
        def delete_old(log: UnifiedLog) -> None:
            if not self._logs.is_left_to_cleaner(log):
                log.delete_old_segments(self._runtime.clock.time_ms())

        await self._in_slices(delete_old)

    async def _expire(self) -> None:
        now = self._runtime.clock.time_ms()
        await self._in_slices(lambda log: log.producers.expire(now, log.context.producer_expiration_ms))

    async def _flush_old(self) -> None:
        now = self._runtime.clock.time_ms()
        logs = [log for log in self._logs if log.topic not in SYNCED_FIRST]
        await self.flush([log for log in logs if now - log.last_flush_ms >= log.config.flush_ms])

    async def _delete(self) -> None:
        now = self._runtime.clock.time_ms()
        for directory in self._logs.online_dirs:
            deletions = directory.context.deletions
            if len(deletions) and (due := deletions.take_due(now)):
                await self._offload(directory, remove_paths, self._runtime.disk, due)

    async def _offload(self, directory: LogDir, work: Callable[..., None], *args: object) -> None:
        try:
            await self._runtime.disk.offload(work, *args)
        except OSError as error:
            self._logs.take_offline(directory, error)
