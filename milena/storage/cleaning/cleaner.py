"""Cleans the logs of a node; tracks which are being cleaned and which are uncleanable, like ``LogCleanerManager``.

A worker does a round on the files alone. ``Cleaner`` swaps each new segment in, on the loop, after a check that the log
has not changed. An error affects one log only. A damaged log is marked as uncleanable until the node restarts, as in
Kafka. After a full disk or a killed worker the log is tried again later. If the disk fails, its directory goes offline.
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
from milena.storage.cleaning.cleaning_round import Figures, NewSegment
from milena.storage.cleaning.priority import Starved
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.cleaning.steps import clean_segments, remove_unfinished
from milena.storage.cleaning.swap import CleaningAborted, Generation, check_generation, generation_of, swap_in
from milena.storage.cleaning.work import Work, work_on
from milena.storage.files.index_file import CorruptIndex
from milena.storage.log.context import NEVER_TIERED
from milena.storage.log.unified_log import UnifiedLog

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StartedRound(NamedTuple):
    """A round in progress: the log, its state at the start, and the work for the worker."""

    log: UnifiedLog
    generation: Generation
    work: Work


def may_have_been_tiered(log: UnifiedLog) -> bool:
    """Whether records of the log may be in the tier, or may be copied to it later. Such a log is not cleaned here: the
    newer record of a key may be only on this disk, and copies of cleaned segments would have gaps
    (docs/decisions/2026-11-22-claims-and-marks.md)."""
    asked = log.context.tiered and log.config.remote_storage_enable and log.topic not in NEVER_TIERED
    return asked or log.remote_enabled or log.log_start_offset != log.local_log_start_offset


class Cleaner:
    """The cleaner of a node. Several tasks may use it, each with a worker of its own."""

    def __init__(
        self,
        disk: Disk,
        contained: Containment,
        secret: Callable[[], bytes],
        settings: CleanerSettings,
        *,
        paused: Callable[[UnifiedLog], bool] = lambda _log: False,
    ) -> None:
        """``secret``: makes the secret of ``OffsetMap``; called once. ``paused``: whether a log must not be cleaned at
        the moment."""
        self._disk = disk
        self._contained = contained
        self._make_secret = secret
        self._secret: bytes | None = None
        self._paused = paused
        self.settings = settings
        self.keeps_epochs = True
        """Whether the start of each leader epoch is kept (``epoch_marks``). False only in a test peer."""
        self.uncleanable: dict[UnifiedLog, str] = {}
        """Logs that cannot be cleaned, with the reason."""
        self.in_progress: dict[UnifiedLog, str] = {}
        """The logs being cleaned, with the folder that the worker writes to. If such a log is deleted, its folder is
        renamed, and a new log of the same name may use the old path."""

    def look(self, log: UnifiedLog, now: int) -> Candidate | None:
        """Return which part of ``log`` may be cleaned at ``now`` (ms); None if the log is not compacted, is
        uncleanable, or is being cleaned."""
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
        except Exception as unforeseen:  # an error of one log must not stop the cleaning of others
            self._unforeseen(log, unforeseen)
            return None
        if chosen.cleanable.checkpoint_is_wrong:
            if "delete" not in log.config.cleanup_policy:  # retention moves the log start, so it is expected there
                log.context.events.warning(
                    "first dirty offset out of range",
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

    def obstacle(self, log: UnifiedLog) -> str:
        """Return a sentence that says why a log cannot be cleaned now."""
        name = f"{log.topic}-{log.partition}"
        if not log.config.compacted:
            return f"{name} is not compacted: its cleanup.policy is {','.join(log.config.cleanup_policy)}"
        if may_have_been_tiered(log):
            return f"{name} is cleaned in the tier only"
        return f"{name} cannot be cleaned: {self.uncleanable.get(log, 'it is moving, offline or being deleted')}"

    def may_delete(self, log: UnifiedLog) -> bool:
        """Whether the cleaner may delete old segments of this compacted log now. A tiered log is left to the periodic
        retention."""
        return (
            log.config.compacted
            and not log.remote_enabled
            and log not in self.in_progress
            and log not in self.uncleanable
            and not (log.retired or log.context.offline or self._paused(log))
        )

    def forget_gone(self) -> None:
        """Remove deleted and offline logs from ``uncleanable``."""
        self.uncleanable = {
            log: reason for log, reason in self.uncleanable.items() if not (log.retired or log.context.offline)
        }

    def begin(self, log: UnifiedLog, now: int) -> StartedRound:
        """Start a round. ``now`` (ms) is compared with the delete horizons of tombstones and markers. Raises
        CleaningAborted if there is nothing to clean, CorruptBatch, CorruptIndex, OSError."""
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
        work = work._replace(keeps_epochs=self.keeps_epochs)
        return StartedRound(log, generation_of(log), work)

    def check(self, started: StartedRound) -> None:
        """Raise CleaningAborted if the log has changed so that the round cannot be completed."""
        check_generation(started.log, started.generation)
        if not started.log.config.compacted or self._paused(started.log) or may_have_been_tiered(started.log):
            raise CleaningAborted(f"{started.log} is no longer to be cleaned")

    def finish(self, started: StartedRound, cleaned_to: Offset) -> None:
        """Advance the first dirty offset. All new segments are swapped in, and the folder is synced: the checkpoint
        must not be ahead of what survives a power failure. Raises CleaningAborted."""
        check_generation(started.log, started.generation)
        started.log.cleaned_to = cleaned_to

    async def clean(self, log: UnifiedLog, now: int, worker: Worker, paced: Paced) -> Figures | None:
        """Do one round. Returns None if it was aborted or failed; the reason is logged. ``paced`` is awaited with the
        number of bytes that were read or written. Raises Starved from there."""
        if not self._may_clean(log):
            return None  # another task has begun to clean it
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
                await worker.ended()  # else the next round could find files that it still writes
        finally:
            del self.in_progress[log]
        if given_up is not None:
            raise given_up
        if isinstance(done, Figures):
            return done
        assert done is not None
        if isinstance(done, Starved):
            raise done
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
        """Return the cause of a failed round. If the log has changed, the worker's error is a consequence of that."""
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
            self._failed(log, error)  # the buffer is too small, or the directory is offline already
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
