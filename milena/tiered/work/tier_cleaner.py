"""Cleans the compacted partitions that a broker leads in the tier, one pass after the other, as long as they are dirty
enough.

A pass that fails is repeated by a later round; its objects in the tier are deleted like those of a failed copy. A
partition with a damaged segment is reported and not cleaned again until its leadership changes.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.disk import WorkerEnded
from milena.storage.cleaning.cleaned_segment import OffsetOverflow
from milena.storage.cleaning.priority import Urgency
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.files.checkpoints import CorruptCheckpoint
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.producer_snapshot import CorruptSnapshot
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.cleaning.cleaning_folder import cleaning_folder
from milena.tiered.cleaning.window import Source, Window, dirtiness, first_dirty, old_enough, sources
from milena.tiered.shared.tier import FAILURES, Tier
from milena.tiered.work.cleaning_pass import CleaningPass, PassEnded, PassResult, Resources
from milena.tiered.work.copying import check_place
from milena.tiered.work.log_updates import update_from_metadata
from milena.tiered.work.roles import ReplicaRole

THREADS: Final = "remote.log.manager.cleaner.thread.pool.size"
SLICE: Final = 200
"""Segments that are examined before other tasks of the loop run."""
SECRET_BYTES: Final = 32
DAMAGE: Final = (CorruptBatch, CorruptIndex, CorruptSnapshot, CorruptCheckpoint, OffsetOverflow)


class TierCleaner:
    """The cleaner of one broker. Several rounds may run at the same time, each with its own worker process."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._secret: bytes | None = None
        self._urgency: Urgency[ReplicaRole] = Urgency(tier.runtime.clock)

    async def round(self, _tier: Tier, role: ReplicaRole) -> None:
        """Clean one partition if it is due. Raises the errors in ``FAILURES``."""
        await self._round(role, at_any_ratio=False)

    async def clean_now(self, role: ReplicaRole) -> None:
        """As ``round``, regardless of ``min.cleanable.dirty.ratio``."""
        await self._round(role, at_any_ratio=True)

    async def _round(self, role: ReplicaRole, *, at_any_ratio: bool) -> None:
        log = role.log
        if log is None or not log.config.compacted:
            self.forget(role)
        if log is None or not _may_clean(self._tier, role, log):
            return
        if not await update_from_metadata(self._tier, role, log):
            return
        place, in_use = cleaning_folder(log.folder), self._tier.in_use
        if place in in_use:
            return  # a pass of the replica's former role still uses the folder
        in_use.add(place)
        try:
            await self._clean(role, log, at_any_ratio=at_any_ratio)
        finally:
            in_use.discard(place)

    def forget(self, role: ReplicaRole) -> None:
        """Forget since when the partition is due: the role has ended, or the partition is not compacted any more."""
        self._urgency.forget(role)

    async def _clean(self, role: ReplicaRole, log: UnifiedLog, *, at_any_ratio: bool) -> None:
        cleaned_to = Offset(0)
        while (window := await self._due(role, log, at_any_ratio)) is not None and window.first_dirty >= cleaned_to:
            if not (self._tier.copies.may_begin and role.attempts.may_begin):
                return
            await check_place(self._tier, role)
            resources = self._resources(urgent=role.needs_cleaning_urgently)
            done = await self._attempt(role, window, CleaningPass(self._tier, role, log, window, resources))
            if done is not None:
                self._urgency.forget(role)
            if done is None or done.cleaned_to <= window.first_dirty:
                return
            cleaned_to = done.cleaned_to

    async def _due(self, role: ReplicaRole, log: UnifiedLog, at_any_ratio: bool) -> Window | None:
        """Return the window to clean now; None if it is not dirty enough, or if the role has ended."""
        if not role.holds(log) or not _may_clean(self._tier, role, log):
            return None
        cache, epochs = self._tier.metadata.cache(role.partition), log.epochs.entries
        unreliable: set[UUID] = {*self._tier.unreliable.of(role.partition), *(one.id for one in cache.at_risk())}
        found: list[Source] = []
        start, end, copied_again = log.log_start_offset, log.log_end_offset, cache.copied_again
        for source in sources(cache, log_start=start, log_end=end, leader_epochs=epochs, without=unreliable):
            found.append(source)
            if not len(found) % SLICE:
                await self._tier.runtime.clock.sleep(0)
        if not role.holds(log):
            return None
        now = self._tier.runtime.clock.time_ms()
        dirty_from = first_dirty(cache, log_start=start, log_end=end, leader_epochs=epochs)
        window = old_enough(Window(found, dirty_from, copied_again), log.config, now)
        found_dirty = dirtiness(window, log.config, now)
        role.figures.dirty_ratio = found_dirty.ratio
        least_ratio = 0.0 if at_any_ratio else log.config.min_cleanable_dirty_ratio
        is_due = window.end > window.first_dirty and found_dirty.is_due(least_ratio)
        self._urgency.note(role, is_due=is_due)
        role.needs_cleaning_urgently = self._urgency.is_urgent(role, found_dirty.overdue_ms)
        return window if is_due else None

    async def _attempt(self, role: ReplicaRole, window: Window, one: CleaningPass) -> PassResult | None:
        """Run a pass. Returns None if it failed; the reason was logged. Raises the errors in ``FAILURES``."""
        tier, clock, log = self._tier, self._tier.runtime.clock, one.log
        meters = tier.meters.of(role.replica.topic)
        began = clock.monotonic()
        meters.clean_requests.add()
        try:
            done = await one.run()
        except PassEnded as ended:
            self._ended(log, ended)
            return None
        except DAMAGE as damage:
            meters.clean_errors.add()
            self._mark(role, log, str(damage))
            return None
        except FAILURES:
            meters.clean_errors.add()
            raise
        except (ValueError, WorkerEnded, MemoryError) as failure:
            meters.clean_errors.add()
            tier.report("cleaning in the tier failed", role.replica, failure)
            return None
        except Exception as error:
            meters.clean_errors.add()
            tier.runtime.contained.note("cleaning in the tier", error, folder=log.folder)
            self._mark(role, log, f"{type(error).__name__}: {error}")
            return None
        if done is None:
            return None
        figures = done.figures._asdict() if done.figures is not None else {}
        if done.figures is not None:
            meters.cleaned_bytes.add(done.figures.bytes_read)
        tier.events.info(
            "log cleaned in the tier",
            topic=log.topic,
            partition=log.partition,
            dirty_from=window.first_dirty,
            cleaned_to=done.cleaned_to,
            replaced=done.replaced,
            seconds=round(clock.monotonic() - began, 3),
            **figures,
        )
        return done

    def _resources(self, *, urgent: bool) -> Resources:
        config, worker = self._tier.config(), self._tier.runtime.disk.worker()
        worker.set_urgent(urgent)
        settings = CleanerSettings.of(config)
        threads = config.get_int(THREADS)
        if self._secret is None:
            self._secret = self._tier.runtime.random.bytes(SECRET_BYTES)
        return Resources(
            worker,
            self._secret,
            settings.dedupe_buffer // threads,
            settings.load_factor,
            settings.read_bytes,
            self._throttle,
        )

    async def _throttle(self, amount: int) -> None:
        delay = self._tier.cleaning.delay(amount)
        if delay > 0:
            await self._tier.runtime.clock.sleep(delay)

    def _ended(self, log: UnifiedLog, ended: PassEnded) -> None:
        self._tier.events.info(
            "cleaning in the tier ended", topic=log.topic, partition=log.partition, reason=str(ended)
        )

    def _mark(self, role: ReplicaRole, log: UnifiedLog, reason: str) -> None:
        role.uncleanable = reason
        self._tier.events.error(
            "log cannot be cleaned in the tier", topic=log.topic, partition=log.partition, reason=reason
        )


def _may_clean(tier: Tier, role: ReplicaRole, log: UnifiedLog) -> bool:
    return (
        log.config.compacted
        and log.remote_copy_enabled
        and role.may_copy
        and role.uncleanable is None
        and tier.metadata.is_ready(role.partition)
    )
