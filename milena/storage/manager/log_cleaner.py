"""The tasks that clean the logs of a broker, like the threads of Kafka's ``LogCleaner``.

Each task cleans the dirtiest log, then the next, with a worker of its own. When no log is due, the worker ends,
and the task waits for ``log.cleaner.backoff.ms``. A worker has a low priority unless its log is urgent
(``storage.cleaning.priority``). The tasks also apply retention to compacted logs, as in Kafka: if
another task moved the log start during a round, the round would be aborted.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from milena.protocol.errors import KafkaError
from milena.runtime.context import Runtime
from milena.runtime.disk import Worker
from milena.runtime.tasks import TaskHandle, Tasks
from milena.storage.cleaning.choice import Candidate, candidate, dirtiest_first
from milena.storage.cleaning.cleaner import Cleaner
from milena.storage.cleaning.cleaning_round import Figures
from milena.storage.cleaning.priority import Progress, Starved, Urgency
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.cleaning.throttle import Throttle
from milena.storage.log.context import EventLog
from milena.storage.log.unified_log import UnifiedLog

SLICE: Final = 100
"""Logs and segments that are examined before the loop runs other work."""
LOOK_HOLDS: Final = 15.0
"""Seconds for which the order of due logs is used. With thousands of logs it is too expensive before each round."""
SHORTEST_BACKOFF: Final = 0.01
"""The minimum backoff (seconds), so that a backoff of 0 does not keep the loop busy."""
SECRET_BYTES: Final = 32


class CleanedLogs(Protocol):
    """The logs of a broker."""

    def __iter__(self) -> Iterator[UnifiedLog]: ...

    def is_moving(self, log: UnifiedLog) -> bool: ...


@dataclass(slots=True)
class CleanerTask:
    """One of ``log.cleaner.threads`` tasks, with the metrics of its last round."""

    handle: TaskHandle | None = None
    figures: Figures | None = None
    seconds: float = 0.0
    """The duration of that round."""
    overdue_ms: int = 0
    """The maximum time that a log has exceeded ``max.compaction.lag.ms``."""

    @property
    def dead(self) -> bool:
        """Whether the task has ended with an error."""
        return self.handle is not None and self.handle.done()


class LogCleaner:
    """The cleaner tasks of a broker and their metrics. For use on the loop."""

    def __init__(self, logs: CleanedLogs, runtime: Runtime, settings: CleanerSettings, events: EventLog) -> None:
        self._logs = logs
        self._runtime = runtime
        self._events = events
        self.enabled = settings.enabled
        """``log.cleaner.enable``."""
        self.throttle = Throttle(runtime.clock, settings.bytes_per_second)
        """Shared by all cleaning on this node, including that in the tier."""
        self._tasks: Tasks | None = None
        self.cleaner = Cleaner(
            runtime.disk,
            runtime.contained,
            lambda: runtime.random.bytes(SECRET_BYTES),
            settings,
            paused=logs.is_moving,
        )
        self._urgency: Urgency[UnifiedLog] = Urgency(runtime.clock)
        self.tasks: list[CleanerTask] = []
        self.dirtiest_ratio = 0.0
        """The largest dirty ratio of a log at the last selection."""
        self.last_run_ms = runtime.clock.time_ms()

    # Metrics

    def recopied_percent(self) -> float:
        """Return the bytes written in the last rounds of the tasks, as a percentage of the bytes read."""
        last = [task.figures for task in self.tasks if task.figures is not None]
        return 100 * sum(one.bytes_written for one in last) / max(sum(one.bytes_read for one in last), 1)

    def since_last_run_ms(self) -> int:
        """Return the time (ms) since logs were last examined."""
        return self._runtime.clock.time_ms() - self.last_run_ms

    def dirty_bytes(self, logs: Iterable[UnifiedLog]) -> int:
        """Return the cleanable bytes of ``logs``. A log that cannot be read counts as 0."""
        now, total = self._runtime.clock.time_ms(), 0
        for log in logs:
            with suppress(Exception):
                total += candidate(log, now).cleanable_bytes
        return total

    # Tasks

    def start(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._begin(tasks)

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Apply changed settings. As in Kafka, running rounds are aborted, and all tasks are started again, including
        those that have ended with an error."""
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
        """Clean logs until none is due. A log that could not be cleaned is skipped until the next run."""
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
                for log in self._urgency.logs:
                    if log.retired or log.context.offline or not log.config.compacted:
                        self._urgency.forget(log)
                return

    async def _look(self, task: CleanerTask) -> list[Candidate]:
        """Return the logs that are due, the dirtiest first."""
        candidates: list[Candidate] = []

        def look_at(log: UnifiedLog) -> None:
            one = self.cleaner.look(log, self._now())
            if one is not None:
                self._urgency.note(log, is_due=one.is_due)
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
        """Clean ``log`` if it is still due: another task may have cleaned it. Returns whether it was cleaned."""
        chosen = self.cleaner.look(log, self._now())
        return chosen is not None and chosen.is_due and await self._clean(task, chosen, worker)

    async def _clean(self, task: CleanerTask, chosen: Candidate, worker: Worker) -> bool:
        """Do a round for the log of ``chosen``. Returns whether it can be tried again at once: its first dirty offset
        has advanced, or its worker starved."""
        clock, log = self._runtime.clock, chosen.log
        began = clock.monotonic()
        urgent = self._urgency.is_urgent(log, chosen.overdue_ms)
        worker.set_urgent(urgent)
        paced = partial(self._paced, None if urgent else Progress(clock, lambda: worker.cpu_seconds))
        try:
            figures = await self.cleaner.clean(log, clock.time_ms(), worker, paced)
        except Starved as starved:
            self._urgency.note_starved(log)
            self._events.info(
                "cleaning begins again with normal priority",
                topic=log.topic,
                partition=log.partition,
                reason=str(starved),
            )
            return True
        if figures is None:
            return False
        self._urgency.forget(log)
        task.figures, task.seconds = figures, clock.monotonic() - began
        self._events.info(
            "log cleaned",
            topic=log.topic,
            partition=log.partition,
            dirty_from=chosen.cleanable.first_dirty,
            cleaned_to=log.cleaned_to,
            seconds=round(task.seconds, 3),
            urgent=urgent,
            **figures._asdict(),
        )
        return log.cleaned_to is not None and log.cleaned_to > chosen.cleanable.first_dirty

    async def clean_now(self, log: UnifiedLog) -> Figures | None:
        """Clean a log now, regardless of its dirty ratio. Returns None if nothing is dirty. Raises ValueError if it
        cannot be cleaned."""
        while log in self.cleaner.in_progress:
            await self._runtime.clock.sleep(SHORTEST_BACKOFF)
        chosen = self.cleaner.look(log, self._now())
        if chosen is None:
            raise ValueError(self.cleaner.obstacle(log))
        if not chosen.cleanable_bytes:
            return None
        worker = self._runtime.disk.worker()
        worker.set_urgent(True)
        try:
            figures = await self.cleaner.clean(log, self._runtime.clock.time_ms(), worker, partial(self._paced, None))
        finally:
            worker.end()
        await worker.ended()
        if figures is None:
            raise ValueError(f"{log.topic}-{log.partition} was not cleaned: the node's log says why")
        return figures

    async def _paced(self, progress: Progress | None, amount: int) -> None:
        """Wait for the throttle. Raises Starved unless the round is urgent."""
        if progress is not None:
            progress.check()
        delay = self.throttle.delay(amount)
        if delay > 0:
            await self._runtime.clock.sleep(delay)
            if progress is not None:
                progress.paused(delay)

    async def _delete_old_segments(self) -> None:
        await self._in_slices(self._delete_old)

    def _delete_old(self, log: UnifiedLog) -> None:
        if not self.cleaner.may_delete(log):
            return
        try:
            log.delete_old_segments(self._runtime.clock.time_ms())
        except KafkaError:
            pass  # its directory has gone offline, which is logged already
        except Exception as error:  # an error of one log must not stop the work on others
            self._runtime.contained.note("retention of a compacted log", error, folder=log.folder)
