"""One pass of cleaning over a partition's segments in the tier, by its leader (docs/decisions/
2026-11-23-cleaning-in-the-tier.md).

First the keys of the dirty segments are read into an offset map. Then the segments are processed in groups, from the
oldest on: a group is fetched and cleaned, and, if that changed anything, copied to the tier as one segment that
replaces the group. The events of one group are read back before the next group begins. At the end the leader publishes
the first dirty offset. If a pass ends before that, the next one starts at the same offset.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import ZERO_UUID, Offset, ProducerId
from milena.runtime.disk import Steps, Worker
from milena.storage.cleaning.cleaning_round import Figures, NewSegment
from milena.storage.cleaning.retained import LastRecord
from milena.storage.cleaning.source import SegmentToClean
from milena.storage.cleaning.work import Work
from milena.storage.files.checkpoints import decode_epochs, encode_epochs
from milena.storage.files.names import LOG
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.storage.files.txn_index import AbortedTxn, decode_aborted
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.aux_state.aux_producers import producers_at
from milena.tiered.cleaning.cleaning_folder import CleaningFolder
from milena.tiered.cleaning.grouping import groups
from milena.tiered.cleaning.steps import Clean, Map, Mapped, Result, Written, clean_tier
from milena.tiered.cleaning.window import Source, Window, map_of_pass
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_manager import Deposed
from milena.tiered.reading.remote_segment import SegmentReader
from milena.tiered.segments.cleaner_offsets import CleanedTo, CleanerOffsets
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import IndexType, RemoteResourceNotFound, RemoteStorage
from milena.tiered.work.copying import INTERVAL, Prepared, copy_segment, wait_for_quota
from milena.tiered.work.downloading import download_log
from milena.tiered.work.fencing import deposed
from milena.tiered.work.roles import ReplicaRole

Throttle = Callable[[int], Awaitable[None]]


class PassEnded(Exception):
    """The log, the replica's role or the segments have changed, and the pass cannot continue. The text says why."""


class Resources(NamedTuple):
    """The resources of a pass. Sizes are bytes."""

    worker: Worker
    secret: bytes
    memory: int
    """The size of the offset map."""
    load_factor: float
    chunk: int
    throttle: Throttle
    """Awaited with the number of bytes that the worker has read and written."""


class PassResult(NamedTuple):
    """The result of a pass."""

    cleaned_to: Offset
    replaced: int
    """The number of segments that were replaced."""
    figures: Figures | None
    """None if no group was cleaned."""


class CleaningPass:
    """One pass. All steps raise PassEnded, the errors in ``shared.tier.FAILURES``, CorruptIndex, CorruptSnapshot,
    ValueError, and WorkerEnded."""

    def __init__(self, tier: Tier, role: ReplicaRole, log: UnifiedLog, window: Window, resources: Resources) -> None:
        self._tier = tier
        self._role = role
        self.log = log
        self._window = window
        self._resources = resources
        self._by = role.leader_epoch
        self._disk = tier.runtime.disk
        self._folder = CleaningFolder(self._disk, log.folder)
        self._log_folder = log.folder
        self._replaced = 0
        self._figures: Figures | None = None

    @property
    def _cache(self) -> RemoteLogMetadataCache:
        return self._tier.metadata.cache(self._role.partition)

    def check(self) -> None:
        """Raise PassEnded if this broker no longer leads the partition in the same leader epoch with the same log, or
        if the partition must not be cleaned any more. Raise Deposed if there is a fence of a later leader."""
        role, log = self._role, self.log
        if not role.holds(log) or role.leader_epoch != self._by:
            raise PassEnded("this broker no longer leads the partition, or leads it in another epoch")
        if not log.config.compacted or not log.remote_copy_enabled:
            raise PassEnded("the partition is no longer compacted in the tier")
        if log.folder != self._log_folder:
            raise PassEnded("the log was moved")
        if self._cache.fence_epoch > self._by:
            raise deposed(self._cache, self._by)

    async def run(self) -> PassResult | None:
        """Run the whole pass. Returns None if all dirty records belong to transactions whose end is not in the tier.
        The worker is ended and the folder is removed in all cases."""
        try:
            self.check()
            await self._disk.offload(self._folder.begin)
            return await self._run()
        except RemoteResourceNotFound as error:
            gone = next((source for source in self._window.sources if not self._serves(source)), None)
            if gone is None:
                raise
            raise PassEnded(f"the segment from offset {gone.first} on was deleted while it was read") from error
        finally:
            self._resources.worker.end()
            await self._resources.worker.ended()
            await self._disk.offload(self._folder.remove)

    async def _run(self) -> PassResult | None:
        producers = await self._bounded()
        window = self._window
        if window.end <= window.first_dirty:
            return None
        await self._fetch_aborted()
        steps = self._resources.worker.run(clean_tier, self._throttle, self._work(producers), self._resources.secret)
        end = await self._map(steps)
        if end <= window.first_dirty:
            raise PassEnded(f"the map has no room for the keys of the batch at {window.first_dirty}")
        mapped = [source for source in window.sources if source.first < end]
        offsets = map_of_pass(self._cache, self._by, end, leader_epochs=self.log.epochs.entries)
        local = self.log.local_log_start_offset
        # Segments that are still local keep their tombstones, so they are not grouped with others (_time_of_deletes).
        for some in ([one for one in mapped if one.last < local], [one for one in mapped if one.last >= local]):
            for group in groups(some, self.log.config, end=window.end):
                await self._clean(steps, group, offsets)
        await self._finish(end)
        return PassResult(end, self._replaced, self._figures)

    # -- what is known before

    async def _bounded(self) -> dict[ProducerId, LastRecord]:
        """Return the producers at the end of the window. If a transaction is open there, the window is shortened to the
        segments before it: the tier does not show yet whether its records are committed."""
        while self._window.sources:
            source = self._window.sources[-1]
            try:
                entries = decode_snapshot(await self._producers(source))
            except CorruptSnapshot as error:
                raise CorruptSnapshot(f"producers of segment {source.segment.id}: {error}") from error
            self.check()
            open_from = [entry.txn_first_offset for _, entry in entries if entry.txn_first_offset is not None]
            if not open_from or min(open_from) >= self._window.end:
                return {producer: LastRecord(entry.last_offset, entry.epoch) for producer, entry in entries}
            self._window = self._window.until(min(open_from))
        return {}

    async def _producers(self, source: Source) -> bytes:
        """Return a snapshot of the producers after the last record of ``source``. Raises RemoteStorageError."""
        storage, end = self._tier.storage, Offset(source.last + 1)
        if source.last == source.segment.end_offset:
            return await storage.fetch_index(source.segment, IndexType.PRODUCER_SNAPSHOT)
        log = self.log
        return await producers_at(storage, self._cache, end, log.epochs.entries, log.log_start_offset)

    async def _fetch_aborted(self) -> None:
        for source in self._window.sources:
            aborted = await _aborted_in(self._tier.storage, source)
            self.check()
            if aborted:
                await self._disk.offload(self._folder.add_aborted, source.first, aborted)

    def _work(self, producers: dict[ProducerId, LastRecord]) -> Work:
        config, window, resources = self.log.config, self._window, self._resources
        segments = [SegmentToClean(source.first, source.segment.size) for source in window.sources]
        return Work(
            self._folder.path,
            (*segments, SegmentToClean(window.end, 0)),
            window.first_dirty,
            window.end,
            self._tier.runtime.clock.time_ms(),
            config.delete_retention_ms,
            config.segment_bytes,
            config.segment_index_bytes,
            config.index_interval_bytes,
            producers,
            resources.memory,
            resources.load_factor,
            resources.chunk,
        )

    # -- step by step

    async def _throttle(self, amount: int) -> None:
        self.check()
        await self._resources.throttle(amount)
        self.check()

    async def _fetched(self, amount: int) -> None:
        """Wait until the quota for reads of the tier permits more than the ``amount`` bytes that were fetched."""
        quota, clock = self._tier.fetch_quota, self._tier.runtime.clock
        quota.record(amount, clock.time_ms())
        self.check()
        while (excess := quota.throttle_ms(clock.time_ms())) > 0:
            await self._role.pause(excess / 1000)
            self.check()

    async def _fetch(self, source: Source) -> SegmentToClean:
        segment, start, end = source.segment, 0, source.segment.size
        if source.is_cut:
            reader = SegmentReader(self._tier.storage, self._tier.indexes)
            start = await _position(reader, segment, source.first)
            end = await _position(reader, segment, Offset(source.last + 1))
        path = self._folder.file(source.first, LOG)
        size = await download_log(self._tier, segment, path, start=start, end=end, throttle=self._fetched)
        self.check()
        return SegmentToClean(source.first, size)

    async def _map(self, steps: Steps[Result]) -> Offset:
        """Add the keys of the dirty segments to the map; return the offset where the map ends."""
        mapped = await steps.next()
        for source in self._window.sources:
            if source.last < self._window.first_dirty:
                continue
            file = await self._fetch(source)
            mapped = await steps.next(Map(file))
            await self._disk.offload(self._folder.remove_group, (source.first,))
            self.check()
            assert isinstance(mapped, Mapped)
            if not mapped.has_room:
                break
        assert isinstance(mapped, Mapped)
        return mapped.to

    async def _clean(self, steps: Steps[Result], group: Sequence[Source], offsets: CleanerOffsets) -> None:
        self._check_group(group)
        if group[-1].last < self.log.log_start_offset:
            return  # the group has expired
        files = tuple([await self._fetch(source) for source in group])
        self._check_group(group)
        written = await steps.next(Clean(files, self._time_of_deletes(group)))
        self.check()
        assert isinstance(written, Written)
        self._figures = written.figures
        if written.segment.changed:
            await self._replace(group, written.segment, offsets)
        await self._disk.offload(self._folder.remove_group, [source.first for source in group])
        self.check()

    def _time_of_deletes(self, group: Sequence[Source]) -> int | None:
        """Return the time (ms) by which expired tombstones of ``group`` are removed. None if none may be removed: the
        records that they delete are still in the local log."""
        is_local = group[-1].last >= self.log.local_log_start_offset
        return None if is_local else self._tier.runtime.clock.time_ms()

    def _still_serve(self, group: Sequence[Source]) -> bool:
        return group[-1].last >= self.log.log_start_offset and all(map(self._serves, group))

    def _serves(self, source: Source) -> bool:
        known = self._cache.get(source.segment.id)
        if known is None or not self._cache.serves(known) or known.at_risk:
            return False
        return known.id not in self._tier.unreliable.of(self._role.partition)

    def _is_wanted(self, group: Sequence[Source]) -> bool:
        return self._role.leader_epoch == self._by and self._still_serve(group)

    def _check_group(self, group: Sequence[Source]) -> None:
        self.check()
        if group[-1].last >= self.log.log_start_offset and not self._still_serve(group):
            raise PassEnded(f"the segments from offset {group[0].first} on have changed")

    # -- what becomes of it

    async def _replace(self, group: Sequence[Source], new: NewSegment, offsets: CleanerOffsets) -> None:
        """Copy the new segment to the tier, and check that it replaces the group."""
        tier, role, log = self._tier, self._role, self.log
        last = group[-1]
        snapshot, epochs = await self._producers(last), await self._epochs(last)
        await self._disk.offload(self._folder.add_producers, group[0].first, snapshot)
        await wait_for_quota(tier, role)
        self._check_group(group)
        metadata = self._metadata(group, new, offsets)
        tier.copy_quota.record(metadata.size, metadata.event_timestamp_ms)
        interval = tier.config().get_int(INTERVAL) / 1000
        files = self._folder.files_of(new, epochs)
        with tier.copies.attempt(interval), role.attempts.attempt(interval):
            await copy_segment(tier, role, log, Prepared(metadata, files), lambda: self._is_wanted(group))
        self.check()
        known = self._cache.get(metadata.id)
        if known is None or not self._cache.serves(known):
            raise PassEnded(f"the segments from offset {group[0].first} on have changed while they were replaced")
        self._replaced += len(metadata.replaces)
        tier.events.info(
            "remote segments cleaned",
            topic=log.topic,
            partition=log.partition,
            first=metadata.start_offset,
            last=metadata.end_offset,
            replaced=len(metadata.replaces),
            bytes_before=sum(source.segment.size for source in group),
            bytes_after=metadata.size,
        )

    def _metadata(self, group: Sequence[Source], new: NewSegment, offsets: CleanerOffsets) -> RemoteLogSegmentMetadata:
        first, end = group[0].first, Offset(group[-1].last + 1)
        epochs = tuple(self.log.epochs.entries_in_range(first, end))
        if not epochs:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no leader epoch of {first} to {end} is known")
        newest = new.largest_timestamp
        if newest < 0:  # no record is left, but retention must not depend on that
            newest = max(source.segment.max_timestamp_ms for source in group)
        return RemoteLogSegmentMetadata(
            RemoteLogSegmentId(self._role.partition, self._tier.runtime.random.uuid()),
            first,
            Offset(end - 1),
            self._tier.node_id,
            newest,
            self._tier.runtime.clock.time_ms(),
            epochs,
            new.size,
            None,
            RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            not new.has_aborted,
            self._by,
            offsets,
            tuple(source.segment.id for source in group if source.whole),
        )

    async def _epochs(self, source: Source) -> bytes:
        """Return the leader epochs up to the last record of ``source``, as a checkpoint. Raises RemoteStorageError,
        or CorruptCheckpoint: the new segment outlives its sources, so it must not repeat damage of the store."""
        if source.whole:
            checkpoint = await self._tier.storage.fetch_index(source.segment, IndexType.LEADER_EPOCH)
            decode_epochs(checkpoint)
            return checkpoint
        return encode_epochs(self.log.epochs.entries_in_range(Offset(-1), Offset(source.last + 1)))

    async def _finish(self, end: Offset) -> None:
        """Publish the first dirty offset of the next pass."""
        if self._cache.copied_again != self._window.copied_again:
            raise PassEnded("segments were copied again during the pass, with records that had been cleaned away")
        tier, partition = self._tier, self._role.partition
        await tier.metadata.update(
            RemoteLogSegmentUpdate(
                RemoteLogSegmentId(partition, ZERO_UUID),
                tier.node_id,
                tier.runtime.clock.time_ms(),
                None,
                RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
                self._by,
                first_dirty=end,
            )
        )
        if self._cache.cleaned_to != CleanedTo(self._by, end):
            raise Deposed(f"the end of a cleaning up to {end} in leader epoch {self._by} is fenced")


async def _aborted_in(storage: RemoteStorage, source: Source) -> list[AbortedTxn]:
    """Return the aborted transactions whose markers are among the offsets of ``source``. Raises RemoteStorageError,
    CorruptIndex."""
    segment = source.segment
    if segment.txn_index_empty:
        return []
    try:
        data = await storage.fetch_index(segment, IndexType.TRANSACTION)
    except RemoteResourceNotFound:
        if segment.leader_epoch != UNFENCED:
            raise
        data = b""  # metadata of Kafka before 4.0 does not record that there is no transaction index
    aborted = decode_aborted(data, f"transaction index of segment {segment.id}")
    return [one for one in aborted if source.first <= one.last_offset <= source.last]


async def _position(reader: SegmentReader, segment: RemoteLogSegmentMetadata, offset: Offset) -> int:
    """Return the position of the first batch that begins at ``offset`` or later. Raises RemoteStorageError,
    CorruptBatch."""
    found = await reader.find(segment, offset)
    if found is None:
        return segment.size
    if found[1].base_offset < offset:
        raise CorruptBatch(f"a batch of segment {segment.id} has offsets on both sides of {offset}")
    return found[1].position
