"""The contents of a tier by topic partition. The rules are the brokers': epoch chain, cleanings, fences, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Final
from uuid import UUID

from milena.pipeline.errors import PipelineError, loss
from milena.pipeline.locations import log_dirs_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.metadata_cache import PLAN_CACHE, TierMetadata, wants
from milena.pipeline.options import Chosen
from milena.pipeline.planning import Stretch, resolved
from milena.protocol.types import NodeId
from milena.protocol.uuids import to_text
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_partition_metadata
from milena.storage.files.names import PARTITION_METADATA
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.snapshot import FILE_NAME, CorruptRemoteLogSnapshot, Snapshot, decode_snapshot
from milena.tiered.offline.epoch_history import lineage_of_replicas, lineage_of_tier, node_of
from milena.tiered.offline.metadata_reader import MetadataReader
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, surveyed
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import INCOMPLETE_AGE_MS, LOG_SUFFIX, RemoteStorage, StoredSegment
from milena.tiered.store.tier_names import object_name
from milena.tiered.store.tier_names import partition_folder as tier_folder

AT_ONCE: Final = 16
"""The maximum number of segments whose files are read concurrently."""


@dataclass(slots=True)
class KnownPartition:
    """The part of a partition's log that can be read from the tier: ``parts`` in order of their offsets, from ``first``
    to ``end`` (exclusive). ``first`` equals ``end`` if the tier has no offset of the log."""

    partition: TopicIdPartition
    parts: Sequence[Stretch] = ()
    first: int = 0
    end: int = 0
    log_end: int | None = None
    """The log end offset of the replicas; None if no replica was found."""

    @classmethod
    def of(
        cls, partition: TopicIdPartition, parts: Sequence[Stretch], lineage: Lineage | None, copied: int = 0
    ) -> KnownPartition:
        """``copied``: the offset after the last one that was ever copied. A partition whose segments were all deleted
        begins and ends there, or at the log start offset if that is higher."""
        log_start = 0 if lineage is None else lineage.log_start or 0
        if lineage is None or not parts:
            return cls(partition, (), max(log_start, copied), max(log_start, copied))
        first = max(log_start, parts[0].first)
        return cls(partition, parts, first, max(first, parts[-1].last + 1))


@dataclass(slots=True)
class Catalogue:
    """The partitions of a tier."""

    tier_metadata: TierMetadata | None
    """None if the metadata is rebuilt from the files in the tier."""
    stored: Mapping[TopicIdPartition, Sequence[StoredSegment]] = field(default_factory=dict)
    log_dirs: Sequence[str] = ()
    snapshots: Mapping[TopicIdPartition, Sequence[str]] = field(default_factory=dict)
    """Paths of the brokers' metadata snapshots, for partitions whose records of the metadata topic are missing."""
    replicas: Set[TopicIdPartition] = frozenset()
    """The partitions of chosen topics that have a replica in ``log_dirs``."""
    brokers: Set[NodeId] = frozenset()
    """The brokers of ``log_dirs``."""
    named: Set[str] = frozenset()
    """The topics that the options name."""

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions that exist, in order. Without metadata, these are the partitions with segments."""
        if self.tier_metadata is None:
            return in_order({*self.stored, *self.snapshots})
        with_segments = {*self.snapshots, *self.tier_metadata.partitions()}
        found = {*with_segments, *filter(self._may_exist, self.tier_metadata.emptied())}
        tiered = {one.topic for one in found} | self.named
        found |= {one for one in self.replicas if one.topic in tiered}
        ids: dict[str, set[UUID]] = {}
        for one in found:
            ids.setdefault(one.topic, set()).add(one.topic_id)
        for topic, several in ids.items():
            for preferred in (self.replicas, with_segments) if len(several) > 1 else ():
                existing = several & {one.topic_id for one in preferred if one.topic == topic}
                ids[topic] = several = existing or several
        return in_order(one for one in found if one.topic_id in ids[one.topic])

    def _may_exist(self, emptied: TopicIdPartition) -> bool:
        """Whether a partition without segments may exist. The metadata topic has the same records after the topic was
        deleted, but then its leader has no replica any more."""
        assert self.tier_metadata is not None
        leader = self.tier_metadata.leader(emptied)
        return emptied in self.replicas or (leader is not None and leader not in self.brokers)

    def was_copied(self, partition: TopicIdPartition) -> bool:
        """Whether the tier has, or has had, segments of the partition."""
        events = self.tier_metadata is not None and self.tier_metadata.cache(partition) is not None
        return events or partition in self.stored or partition in self.snapshots


def in_order(partitions: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
    return sorted(partitions, key=lambda one: (one.topic, one.partition, one.topic_id.int))


async def catalogue_of_folders(
    loop: LoopThread, directories: Iterable[str], chosen: Chosen, place: Hashable
) -> Catalogue:
    """Return the catalogue of the chosen topics according to the metadata topic in brokers' directories. ``place``: the
    location of the tier, a part of the key under which results are cached. Raises PipelineError, also for unreadable
    metadata."""
    disk, log_dirs = loop.runtime.disk, log_dirs_of(directories)
    key = "folders", tuple(log_dirs), chosen, place
    reader, tier_metadata = PLAN_CACHE.take(key, lambda: _new_reader(chosen))
    await disk.offload(reader.read_on, disk, log_dirs)
    if reader.unreadable:  # a damaged record may have announced or deleted a segment
        damage = reader.unreadable[0]
        raise PipelineError(
            f"option metadata: partition {damage.number} of the metadata topic in {', '.join(log_dirs)} cannot be "
            f"read: {damage.why}"
        )
    if reader.contents is not tier_metadata.decoder:
        tier_metadata = TierMetadata(reader.contents)
    snapshots, replicas = await disk.offload(_replicas, disk, log_dirs, reader.contents, chosen)
    brokers = await disk.offload(_brokers, disk, log_dirs)
    if not reader.numbers and not snapshots:
        raise PipelineError(
            f"option metadata: {', '.join(log_dirs)} has no partition of the topic {REMOTE_LOG_METADATA_TOPIC}: name "
            "the directory of a broker with a replica of it, or omit the option to use only the tier's files"
        )

    async def give_back() -> None:
        PLAN_CACHE.put(key, (reader, tier_metadata))

    loop.at_end(give_back)
    named = frozenset([*chosen.topics, *(topic for topic, _ in chosen.partitions)])
    return Catalogue(
        tier_metadata, log_dirs=log_dirs, snapshots=snapshots, replicas=replicas, brokers=brokers, named=named
    )


def _new_reader(chosen: Chosen) -> tuple[MetadataReader[EventDecoder], TierMetadata]:
    reader = MetadataReader(partial(EventDecoder, partial(wants, chosen)))
    return reader, TierMetadata(reader.contents)


def _brokers(disk: Disk, log_dirs: Sequence[str]) -> frozenset[NodeId]:
    found = (node_of(disk, log_dir) for log_dir in log_dirs)
    return frozenset(one for one in found if one is not None)


def _replicas(
    disk: Disk, log_dirs: Sequence[str], decoder: EventDecoder, chosen: Chosen
) -> tuple[dict[TopicIdPartition, list[str]], set[TopicIdPartition]]:
    """Return the paths of snapshots of partitions without events, and the partitions of chosen topics that have a
    replica."""
    snapshots: dict[TopicIdPartition, list[str]] = {}
    replicas: set[TopicIdPartition] = set()
    for log_dir in log_dirs:
        for name in disk.list(log_dir):
            topic, _, digits = name.rpartition("-")
            path, named = f"{log_dir}/{name}/{FILE_NAME}", f"{log_dir}/{name}/{PARTITION_METADATA}"
            has_snapshot = digits.isdecimal() and disk.exists(path)
            if not digits.isdecimal() or not (has_snapshot or wants(chosen, topic)):
                continue
            try:
                partition = TopicIdPartition(decode_partition_metadata(disk.read(named)), topic, int(digits))
            except FileNotFoundError:
                continue
            except CorruptCheckpoint as error:
                if has_snapshot:
                    raise PipelineError(f"option metadata: {named}: {error}") from None
                continue
            if wants(chosen, topic):
                replicas.add(partition)
            if has_snapshot and partition not in decoder.partitions and partition not in decoder.unwanted:
                snapshots.setdefault(partition, []).append(path)
    return snapshots, replicas


async def catalogue_of_files(storage: RemoteStorage) -> Catalogue:
    """Return the catalogue of a tier according to its files alone, without a metadata topic. Raises
    RemoteStorageError."""
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    listed = await storage.segments()
    if any(LOG_SUFFIX not in one.objects for one in listed):  # a copy or a deletion may have been under way
        again = {one.segment_id: one for one in await storage.segments()}
        listed = [again[one.segment_id] for one in listed if one.segment_id in again]
    for one in listed:
        stored.setdefault(one.segment_id.partition, []).append(one)
    return Catalogue(None, stored)


def incarnation(partitions: Iterable[TopicIdPartition], topic: str) -> list[TopicIdPartition]:
    """Return those of ``partitions`` that belong to the topic. Raises PipelineError if they belong to several topics of
    this name (a deleted topic and its successor)."""
    found = [one for one in partitions if one.topic == topic]
    ids = {one.topic_id for one in found}
    if len(ids) > 1:
        several = ", ".join(sorted(map(to_text, ids)))
        raise PipelineError(
            f"the tier has several topics with the name {topic} ({several}), because it still has segments of deleted "
            "topics: use option metadata or kafka.bootstrap.servers to read the existing topic"
        )
    return found


async def looked_up(
    catalogue: Catalogue,
    disk: Disk,
    storage: RemoteStorage,
    partition: TopicIdPartition,
    *,
    strict: bool,
    now_ms: float | None = None,
) -> KnownPartition:
    """Return what the tier has of one partition. ``strict``: raise an error for a segment whose files cannot be read;
    otherwise the segment is left out with a warning. ``now_ms``: the present time, None for a store in which all files
    of a segment appear at once.

    Raises PipelineError, RemoteStorageError."""
    tier_metadata = catalogue.tier_metadata
    if tier_metadata is None:
        segments = await _surveyed(storage, catalogue.stored.get(partition, ()), strict=strict, now_ms=now_ms)
        return await _alone(storage, partition, RemoteLogMetadataCache.restored(segments, {}), None)
    lineage = await disk.offload(
        lineage_of_replicas, disk, catalogue.log_dirs, partition, tier_metadata.leader(partition)
    )
    log_end = None if lineage is None else int(lineage.log_end)
    cache = tier_metadata.cache(partition)
    if cache is None and partition not in catalogue.snapshots:
        return replace(KnownPartition.of(partition, (), lineage), log_end=log_end)
    if cache is None:
        cache = await disk.offload(_by_snapshot, disk, catalogue.snapshots[partition], partition)
        return replace(await _alone(storage, partition, cache, lineage), log_end=log_end)
    if lineage is None:
        lineage = tier_metadata.tier_lineage(partition)
        if lineage is None:
            lineage = await lineage_of_tier(storage, _serving(cache))
            tier_metadata.keep(partition, lineage)
    parts = () if lineage is None else tier_metadata.parts(partition, lineage)
    return replace(KnownPartition.of(partition, parts, lineage, copied_end(cache, lineage)), log_end=log_end)


async def _alone(
    storage: RemoteStorage, partition: TopicIdPartition, cache: RemoteLogMetadataCache, lineage: Lineage | None
) -> KnownPartition:
    """Return what the tier has of a partition according to the segments in ``cache``, without caching the result.
    ``lineage``: the log's epoch chain; None: take it from the tier's files."""
    lineage = lineage or await lineage_of_tier(storage, _serving(cache))
    parts = () if lineage is None else resolved(partition, cache, lineage.epochs, lineage.log_end)
    return KnownPartition.of(partition, parts, lineage, copied_end(cache, lineage))


def copied_end(cache: RemoteLogMetadataCache, lineage: Lineage | None) -> int:
    """Return the offset after the last one of a log that was ever copied to the tier, even if its segment was deleted
    since; 0 if none was. ``lineage``: the log's epoch chain; None: the newest epoch that was copied counts."""
    highest = cache.highest_offsets()
    if lineage is None:
        return highest[max(highest)] + 1 if highest else 0
    end = 0
    for (epoch, _), following in zip_longest(lineage.epochs, lineage.epochs[1:]):
        if epoch in highest:
            copied = highest[epoch] + 1
            end = max(end, copied if following is None else min(copied, following.start))
    return min(end, lineage.log_end)


def _serving(cache: RemoteLogMetadataCache) -> list[RemoteLogSegmentMetadata]:
    return [one for one in cache.segments() if cache.serves(one)]


def _by_snapshot(disk: Disk, paths: Iterable[str], partition: TopicIdPartition) -> RemoteLogMetadataCache:
    """Return the segments in the newest of the brokers' snapshots at ``paths``. A damaged snapshot is ignored, as
    brokers do, if there is another one. Raises PipelineError, OSError."""
    newest: Snapshot | None = None
    why = ""
    for path in paths:
        try:
            found = decode_snapshot(disk.read(path), partition)
        except CorruptRemoteLogSnapshot as error:
            why = f"option metadata: {path}: {error}"
            continue
        if newest is None or found.next_offset > newest.next_offset:
            newest = found
    if newest is None:
        raise PipelineError(why)
    return newest.cache()


async def _surveyed(
    storage: RemoteStorage, stored_segments: Sequence[StoredSegment], *, strict: bool, now_ms: float | None
) -> list[RemoteLogSegmentMetadata]:
    """Return the metadata of the segments according to their files. ``now_ms``: the present time, None for a store in
    which a segment's files appear at once."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def metadata_of(stored: StoredSegment) -> RemoteLogSegmentMetadata | None:
        async with limit:
            try:
                metadata, cut = await surveyed(storage, stored)
            except NotASegment as error:
                detail = f"{_path(stored)} is not a valid segment: {error}"
                if strict:
                    raise PipelineError(detail) from None
                get_logger("pipeline").warning("segment left out", reason=detail)
                return None
            if cut:
                loss(f"{_path(stored)}, {cut}", strict)
            return metadata

    found: list[RemoteLogSegmentMetadata] = []
    with_log = [one for one in stored_segments if LOG_SUFFIX in one.objects]
    for begin in range(0, len(with_log), 1000):
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(metadata_of(stored)) for stored in with_log[begin : begin + 1000]]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        found += [one for one in (task.result() for task in tasks) if one is not None]
    for stored in stored_segments:
        if LOG_SUFFIX not in stored.objects:
            _without_log(stored, found, strict=strict, now_ms=now_ms)
    return found


def _without_log(
    stored: StoredSegment, others: Iterable[RemoteLogSegmentMetadata], *, strict: bool, now_ms: float | None
) -> None:
    """Report the loss of a segment of which only the indexes are there, unless its copy was repeated (another segment
    has its offsets), or may be under way (they are new, and the last ones of the log). Raises DataLoss."""
    start, end = stored.start_offset, 0
    repeated = False
    for one in others:
        repeated = repeated or one.start_offset <= start <= one.end_offset
        end = max(end, one.end_offset + 1)
    under_way = now_ms is not None and now_ms - stored.modified_ms < INCOMPLETE_AGE_MS and start >= end
    if repeated or under_way:
        why = "another segment has its offsets" if repeated else "its copy may be under way"
        get_logger("pipeline").warning("segment left out", reason=f"{_path(stored)} is missing: {why}")
        return
    loss(f"{_path(stored)} is missing, and its indexes are there", strict)


def _path(stored: StoredSegment) -> str:
    name = object_name(stored.start_offset, stored.segment_id.id, LOG_SUFFIX)
    return f"{tier_folder(stored.segment_id.partition)}/{name}"
