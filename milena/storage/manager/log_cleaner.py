"""The tasks of a broker that clean its logs, like the threads of Kafka's ``LogCleaner``.

Each cleans the dirtiest log, then the next, with a worker of its own, which ends when no log is due; every
``log.cleaner.backoff.ms`` it looks again. After each look old segments of compacted logs are deleted, which is left to
the cleaner as in Kafka: a log whose beginning goes while it is cleaned would be cleaned in vain.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from milena.protocol.errors import KafkaError
from milena.runtime.context import Runtime
from milena.runtime.disk import Worker
from milena.runtime.tasks import TaskHandle, Tasks
from milena.storage.cleaning.choice import Candidate, candidate, dirtiest_first
from milena.storage.cleaning.cleaner import Cleaner
from milena.storage.cleaning.round import Figures
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.cleaning.throttle import Throttle
from milena.storage.log.context import EventLog
from milena.storage.log.unified_log import UnifiedLog

SLICE: Final = 100
"""Logs and segments that are looked at before other work runs."""
LOOK_HOLDS: Final = 15.0
"""Seconds for which a look at all logs holds: with thousands, one before each round would keep the loop busy."""
SHORTEST_BACKOFF: Final = 0.01
"""Seconds: a backoff of 0 must not keep the loop busy."""
SECRET_BYTES: Final = 32


class CleanedLogs(Protocol):
    """The logs of a broker."""

    def __iter__(self) -> Iterator[UnifiedLog]: ...

    def is_moving(self, log: UnifiedLog) -> bool: ...


@dataclass(slots=True)
class CleanerTask:
    """One of ``log.cleaner.threads``. What it shows of its last round and the look before that."""

    handle: TaskHandle | None = None
    figures: Figures | None = None
    seconds: float = 0.0
    """How long that round took."""
    overdue_ms: int = 0
    """How long a log had waited beyond ``max.compaction.lag.ms``, at most."""

    @property
    def dead(self) -> bool:
        """Whether it has ended by an error."""
        return self.handle is not None and self.handle.done()


class LogCleaner:
    """Runs on the loop."""

    def __init__(self, logs: CleanedLogs, runtime: Runtime, settings: CleanerSettings, events: EventLog) -> None:
        self._logs = logs
        self._runtime = runtime
        self._events = events
        self.enabled = settings.enabled
        """Whether the node cleans logs, with however many tasks."""
        self.throttle = Throttle(runtime.clock, settings.bytes_per_second)
        """Of all that cleans logs on this node, in the tier, too."""
        self._tasks: Tasks | None = None
        self.cleaner = Cleaner(
            runtime.disk,
            runtime.contained,
            lambda: runtime.random.bytes(SECRET_BYTES),
            settings,
            paused=logs.is_moving,
        )
        self.tasks: list[CleanerTask] = []
        self.dirtiest_ratio = 0.0
        """The largest share of a log that was dirty when a log was last chosen."""
        self.last_run_ms = runtime.clock.time_ms()

    # What it shows

    def recopied_percent(self) -> float:
        """Bytes that the tasks' last rounds have written, of those that they have read."""
        last = [task.figures for task in self.tasks if task.figures is not None]
        return 100 * sum(one.bytes_written for one in last) / max(sum(one.bytes_read for one in last), 1)

    def since_last_run_ms(self) -> int:
        return self._runtime.clock.time_ms() - self.last_run_ms

    def dirty_bytes(self, logs: Iterable[UnifiedLog]) -> int:
        """What could be cleaned of ``logs``; of one that cannot be judged nothing is known."""
        now, total = self._runtime.clock.time_ms(), 0
        for log in logs:
            with suppress(Exception):
                total += candidate(log, now).cleanable_bytes
        return total

    # What it does

    def start(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._begin(tasks)

    def reconfigure(self, settings: CleanerSettings) -> None:
        """As in Kafka, rounds under way are given up, and new tasks begin: those that had died, too."""
        if settings == self.cleaner.settings:
            return
        self.cleaner.settings = settings
        self.throttle.change(settings.bytes_per_second)
        if self._tasks is None:
            return
        for task in self.tasks:
            if task.handle is not None:
                task.handle.cancel()
        self._begin(self._tasks)

    def _begin(self, tasks: Tasks) -> None:
        self.tasks = [CleanerTask() for _ in range(self.cleaner.settings.threads if self.enabled else 0)]
        for number, task in enumerate(self.tasks):
            task.handle = tasks.attempt(self._run(task), name=f"log cleaner {number}")

    async def _run(self, task: CleanerTask) -> None:
        worker = self._runtime.disk.worker()
        stopped: CancelledError | None = None
        try:
            while True:
                await self._clean_all_due(task, worker)
                worker.end()
                await worker.ended()
                backoff = self.cleaner.settings.backoff_ms / 1000
                await self._runtime.clock.sleep(max(backoff, SHORTEST_BACKOFF))
        except CancelledError as cancelled:
            stopped = cancelled
        finally:
            worker.end()
        await worker.ended()
        if stopped is not None:
            raise stopped

    async def _clean_all_due(self, task: CleanerTask, worker: Worker) -> None:
        """A log that could not be cleaned waits for the next time."""
        tried: set[int] = set()
        while True:
            due = [one.log for one in await self._look(task) if id(one.log) not in tried]
            holds_until = self._runtime.clock.monotonic() + LOOK_HOLDS
            for log in due:
                if self._runtime.clock.monotonic() >= holds_until:
                    break
                tried.add(id(log))
                if await self._clean_if_due(task, log, worker):
                    tried.discard(id(log))
            await self._delete_old_segments()
            if not due:
                self.cleaner.forget_gone()
                return

    async def _look(self, task: CleanerTask) -> list[Candidate]:
        """The logs that are due, the dirtiest first."""
        candidates: list[Candidate] = []

        def look_at(log: UnifiedLog) -> None:
            one = self.cleaner.look(log, self._now())
            if one is not None and one.clean_bytes + one.cleanable_bytes:
                candidates.append(one)

        await self._in_slices(look_at)
        self.dirtiest_ratio = max((one.dirty_ratio for one in candidates), default=0.0)
        due = dirtiest_first(candidates)
        if due:
            task.overdue_ms = max(one.overdue_ms for one in candidates)
        return due

    async def _in_slices(self, work: Callable[[UnifiedLog], None]) -> None:
        looked_at = 0
        for log in list(self._logs):
            work(log)
            looked_at += 1 + len(log.segments)
            if looked_at >= SLICE:
                looked_at = 0
                await self._runtime.clock.sleep(0)

    def _now(self) -> int:
        now = self.last_run_ms = self._runtime.clock.time_ms()
        return now

    async def _clean_if_due(self, task: CleanerTask, log: UnifiedLog, worker: Worker) -> bool:
        """Whether it was cleaned. Another task may have been faster, or the log has changed since it was looked at."""
        chosen = self.cleaner.look(log, self._now())
        return chosen is not None and chosen.is_due and await self._clean(task, chosen, worker)

    async def _clean(self, task: CleanerTask, chosen: Candidate, worker: Worker) -> bool:
        """Whether it was cleaned."""
        clock, log = self._runtime.clock, chosen.log
        began = clock.monotonic()
        figures = await self.cleaner.clean(log, clock.time_ms(), worker, self._paced)
        if figures is None:
            return False
        task.figures, task.seconds = figures, clock.monotonic() - began
        self._events.info(
            "log cleaned",
            topic=log.topic,
            partition=log.partition,
            dirty_from=chosen.cleanable.first_dirty,
            cleaned_to=log.cleaned_to,
            seconds=round(task.seconds, 3),
            **figures._asdict(),
        )
        return log.cleaned_to is not None and log.cleaned_to > chosen.cleanable.first_dirty

    async def _paced(self, amount: int) -> None:
        delay = self.throttle.delay(amount)
        if delay > 0:
            await self._runtime.clock.sleep(delay)

    async def _delete_old_segments(self) -> None:
        await self._in_slices(self._delete_old)

    def _delete_old(self, log: UnifiedLog) -> None:
        if not self.cleaner.may_delete(log):
            return
        try:
            log.delete_old_segments(self._runtime.clock.time_ms())
        except KafkaError:
            pass  # its directory has gone offline, and its owner knows that
        except Exception as error:  # of one log: it must not keep the others from being cleaned
            self._runtime.contained.note("retention of a compacted log", error, folder=log.folder)
