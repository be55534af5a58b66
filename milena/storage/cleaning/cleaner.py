"""Cleans the logs of a node, and knows which are being cleaned, and which cannot be, like ``LogCleanerManager``.

A round is done by a worker, which knows files alone; this swaps each new segment in, on the loop, after it has checked
that the log is still what it was. What fails is of that log alone: a damaged one is left as it is, marked, and
reported, as in Kafka, until the node is restarted. If the disk is full, or the worker is killed, it is tried again
later; if the disk fails, its directory goes offline.
"""

from __future__ import annotations

import errno
from asyncio import CancelledError
from collections.abc import Callable
from typing import Final, NamedTuple

from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.containment import Containment
from milena.runtime.disk import Disk, Paced, Worker, WorkerEnded
from milena.storage.cleaning.choice import Candidate, candidate
from milena.storage.cleaning.cleaned_segment import OffsetOverflow
from milena.storage.cleaning.round import Figures, NewSegment
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.cleaning.steps import clean_segments, remove_unfinished
from milena.storage.cleaning.swap import CleaningAborted, Generation, check_generation, generation_of, swap_in
from milena.storage.cleaning.work import Work, work_on
from milena.storage.files.index_file import CorruptIndex
from milena.storage.log.context import NEVER_TIERED
from milena.storage.log.unified_log import UnifiedLog

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StartedRound(NamedTuple):
    """A round that has started."""

    log: UnifiedLog
    generation: Generation
    work: Work


def may_have_been_tiered(log: UnifiedLog) -> bool:
    """Whether records of the log may be in the tier, or come back to it. A cleaning would remove records in favour of
    others that only this disk has, and what is published in the tier again, from these files, would have gaps
    (docs/decisions/2026-11-22-claims-and-marks.md)."""
    asked = log.context.tiered and log.config.remote_storage_enable and log.topic not in NEVER_TIERED
    return asked or log.remote_enabled or log.log_start_offset != log.local_log_start_offset


class Cleaner:
    """Several tasks may use it, each with a worker of its own."""

    def __init__(
        self,
        disk: Disk,
        contained: Containment,
        secret: Callable[[], bytes],
        settings: CleanerSettings,
        *,
        paused: Callable[[UnifiedLog], bool] = lambda _log: False,
    ) -> None:
        """``secret``: see ``OffsetMap``; asked for once. ``paused``: whether a log must stay as it is for now."""
        self._disk = disk
        self._contained = contained
        self._make_secret = secret
        self._secret: bytes | None = None
        self._paused = paused
        self.settings = settings
        self.uncleanable: dict[UnifiedLog, str] = {}
        """Logs that cannot be cleaned, with the reason."""
        self.in_progress: dict[UnifiedLog, str] = {}
        """With the folder that a worker writes to: a log that was deleted meanwhile is in another, and a new one of its
        name is there."""

    def look(self, log: UnifiedLog, now: int) -> Candidate | None:
        """What may be cleaned of a log; None if it is not compacted, cannot be cleaned, or is just being. ``now``:
        ms."""
        if not self._may_clean(log):
            return None
        try:
            chosen = candidate(log, now)
        except (CorruptBatch, CorruptIndex) as error:
            self._mark(log, str(error))
            return None
        except OSError as failure:
            log.context.failed(failure)
            return None
        except Exception as unforeseen:  # of one log: it must not keep the others from being cleaned
            self._unforeseen(log, unforeseen)
            return None
        if chosen.cleanable.checkpoint_is_wrong:
            if "delete" not in log.config.cleanup_policy:
                log.context.events.warning(
                    "first dirty offset is outside of the log",
                    topic=log.topic,
                    partition=log.partition,
                    checkpoint=log.cleaned_to,
                    log_start=log.log_start_offset,
                    log_end=log.log_end_offset,
                )
            log.cleaned_to = chosen.cleanable.first_dirty
        return chosen

    def _may_clean(self, log: UnifiedLog) -> bool:
        return self.may_delete(log) and not may_have_been_tiered(log) and log.folder not in self.in_progress.values()

    def may_delete(self, log: UnifiedLog) -> bool:
        """Whether old segments of a compacted log may be deleted now. Those of a tiered log do not wait for the
        cleaner."""
        return (
            log.config.compacted
            and not log.remote_enabled
            and log not in self.in_progress
            and log not in self.uncleanable
            and not (log.retired or log.context.offline or self._paused(log))
        )

    def forget_gone(self) -> None:
        """Logs that were deleted, or are offline, are no longer uncleanable."""
        self.uncleanable = {
            log: reason for log, reason in self.uncleanable.items() if not (log.retired or log.context.offline)
        }

    def begin(self, log: UnifiedLog, now: int) -> StartedRound:
        """``now``: ms, the time by which tombstones and markers are judged. Raises CleaningAborted if nothing is to be
        done, CorruptBatch, CorruptIndex, OSError."""
        settings, cleanable = self.settings, candidate(log, now).cleanable
        if cleanable.first_dirty >= cleanable.end:
            raise CleaningAborted(f"{log} has nothing to be cleaned")
        work = work_on(
            log,
            cleanable,
            now=now,
            memory=settings.map_bytes,
            load_factor=settings.load_factor,
            chunk=settings.read_bytes,
        )
        return StartedRound(log, generation_of(log), work)

    def check(self, started: StartedRound) -> None:
        """Raises CleaningAborted if a round that has started comes to nothing."""
        check_generation(started.log, started.generation)
        if not started.log.config.compacted or self._paused(started.log) or may_have_been_tiered(started.log):
            raise CleaningAborted(f"{started.log} is no longer to be cleaned")

    def finish(self, started: StartedRound, cleaned_to: Offset) -> None:
        """All new segments are swapped in, and the folder is synced: the checkpoint must not know of more than a power
        loss would leave. Raises CleaningAborted."""
        check_generation(started.log, started.generation)
        started.log.cleaned_to = cleaned_to

    async def clean(self, log: UnifiedLog, now: int, worker: Worker, paced: Paced) -> Figures | None:
        """A round. None if it came to nothing, for a reason that is reported. ``paced``: awaited for the bytes that
        were read or written."""
        if not self._may_clean(log):
            return None  # another task has been faster
        self.in_progress[log] = log.folder
        done: Figures | Exception | None = None
        given_up: CancelledError | None = None
        try:
            try:
                done = await self._attempt(log, now, worker, paced)
            except CancelledError as cancelled:
                given_up = cancelled
            if not isinstance(done, Figures):
                worker.end()
                await worker.ended()  # before that, another round could meet its files
        finally:
            del self.in_progress[log]
        if given_up is not None:
            raise given_up
        if isinstance(done, Figures):
            return done
        assert done is not None
        self._report(log, done)
        return None

    async def _attempt(self, log: UnifiedLog, now: int, worker: Worker, paced: Paced) -> Figures | Exception:
        started = None
        try:
            await self._disk.offload(remove_unfinished, self._disk, log.folder)
            started = self.begin(log, now)
            return await self._round(started, worker, paced)
        except Exception as error:
            return self._cause(started, error)

    def _cause(self, started: StartedRound | None, error: Exception) -> Exception:
        """If the log has changed under its worker, what that has found in the files means nothing."""
        if started is None:
            return error
        try:
            self.check(started)
        except CleaningAborted as aborted:
            return aborted
        return error

    async def _round(self, started: StartedRound, worker: Worker, paced: Paced) -> Figures:
        log = started.log

        async def checked(amount: int) -> None:
            self.check(started)
            await paced(amount)
            self.check(started)

        self.check(started)
        steps = worker.run(clean_segments, checked, started.work, self._known_secret())
        cleaned_to, figures = None, None
        while (step := await steps.next()) is not None:
            self.check(started)
            if isinstance(step, NewSegment):
                swap_in(log, started.generation, step)
            else:
                cleaned_to, figures = step
        assert cleaned_to is not None
        assert figures is not None
        await self._disk.offload(self._disk.sync_folder, log.folder)
        self.finish(started, cleaned_to)
        return figures

    def _known_secret(self) -> bytes:
        if self._secret is None:
            self._secret = self._make_secret()
        return self._secret

    def _report(self, log: UnifiedLog, error: Exception) -> None:
        if isinstance(error, CleaningAborted):
            log.context.events.info("cleaning aborted", topic=log.topic, partition=log.partition, reason=str(error))
        elif isinstance(error, CorruptBatch | CorruptIndex | OffsetOverflow):
            self._mark(log, str(error))
        elif isinstance(error, OSError):
            self._failed(log, error)
            if error.errno not in _FULL and not isinstance(error, FileNotFoundError):
                log.context.failed(error)
        elif isinstance(error, ValueError | KafkaError | WorkerEnded | MemoryError):
            self._failed(log, error)  # a buffer that is too small; the directory is offline already
        else:
            self._unforeseen(log, error)

    def _unforeseen(self, log: UnifiedLog, error: Exception) -> None:
        self._mark(log, f"{type(error).__name__}: {error}")
        self._contained.note("cleaning of a log", error, folder=log.folder)

    def _failed(self, log: UnifiedLog, error: Exception) -> None:
        log.context.events.warning("cleaning failed", topic=log.topic, partition=log.partition, reason=str(error))

    def _mark(self, log: UnifiedLog, reason: str) -> None:
        self.uncleanable[log] = reason
        log.context.events.error(
            "log cannot be cleaned", topic=log.topic, partition=log.partition, folder=log.folder, reason=reason
        )
