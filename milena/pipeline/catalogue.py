"""The contents of a tier by topic partition. The rules are the brokers': epoch chain, cleanings, fences, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from milena.pipeline.errors import PipelineError, loss
from milena.pipeline.locations import log_dirs_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.metadata_cache import PLAN_CACHE, TierMetadata, wants
from milena.pipeline.options import Chosen
from milena.pipeline.planning import Stretch, resolved
from milena.protocol.uuids import to_text
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_partition_metadata
from milena.storage.files.names import PARTITION_METADATA
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.snapshot import FILE_NAME, CorruptRemoteLogSnapshot, Snapshot, decode_snapshot
from milena.tiered.offline.epoch_history import lineage_of_replicas, lineage_of_tier
from milena.tiered.offline.metadata_reader import MetadataReader
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, surveyed
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import LOG_SUFFIX, RemoteStorage, StoredSegment
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

    @classmethod
    def of(cls, partition: TopicIdPartition, parts: Sequence[Stretch], lineage: Lineage | None) -> KnownPartition:
        if lineage is None or not parts:
            return cls(partition)
        return cls(partition, parts, max(lineage.log_start or 0, parts[0].first), parts[-1].last + 1)


@dataclass(slots=True)
class Catalogue:
    """The partitions of a tier."""

    tier_metadata: TierMetadata | None
    """None if the metadata is rebuilt from the files in the tier."""
    stored: Mapping[TopicIdPartition, Sequence[StoredSegment]] = field(default_factory=dict)
    log_dirs: Sequence[str] = ()
    snapshots: Mapping[TopicIdPartition, Sequence[str]] = field(default_factory=dict)
    """Paths of the brokers' metadata snapshots, for partitions whose records of the metadata topic are missing."""

    def partitions(self) -> list[TopicIdPartition]:
        known = {*self.stored, *self.snapshots}
        if self.tier_metadata is not None:
            known |= self.tier_metadata.partitions()
        return in_order(known)


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
    snapshots = await disk.offload(_snapshots, disk, log_dirs, reader.contents)
    if not reader.numbers and not snapshots:
        raise PipelineError(
            f"option metadata: {', '.join(log_dirs)} has no partition of the topic {REMOTE_LOG_METADATA_TOPIC}: name "
            "the directory of a broker with a replica of it, or omit the option to use only the tier's files"
        )

    async def give_back() -> None:
        PLAN_CACHE.put(key, (reader, tier_metadata))

    loop.at_end(give_back)
    return Catalogue(tier_metadata, log_dirs=log_dirs, snapshots=snapshots)


def _new_reader(chosen: Chosen) -> tuple[MetadataReader[EventDecoder], TierMetadata]:
    reader = MetadataReader(partial(EventDecoder, partial(wants, chosen)))
    return reader, TierMetadata(reader.contents)


def _snapshots(disk: Disk, log_dirs: Sequence[str], decoder: EventDecoder) -> dict[TopicIdPartition, list[str]]:
    found: dict[TopicIdPartition, list[str]] = {}
    for log_dir in log_dirs:
        for name in disk.list(log_dir):
            topic, _, digits = name.rpartition("-")
            path = f"{log_dir}/{name}/{FILE_NAME}"
            if not digits.isdecimal() or not disk.exists(path):
                continue
            named = f"{log_dir}/{name}/{PARTITION_METADATA}"
            try:
                partition = TopicIdPartition(decode_partition_metadata(disk.read(named)), topic, int(digits))
            except CorruptCheckpoint as error:
                raise PipelineError(f"option metadata: {named}: {error}") from None
            if partition not in decoder.partitions and partition not in decoder.unwanted:
                found.setdefault(partition, []).append(path)
    return found


async def catalogue_of_files(storage: RemoteStorage) -> Catalogue:
    """Return the catalogue of a tier according to its files alone, without a metadata topic. Raises
    RemoteStorageError."""
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for one in await storage.segments():
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
    catalogue: Catalogue, disk: Disk, storage: RemoteStorage, partition: TopicIdPartition, *, strict: bool
) -> KnownPartition:
    """Return what the tier has of one partition. ``strict``: raise an error for a segment whose files cannot be read;
    otherwise the segment is left out with a warning.

    Raises PipelineError, RemoteStorageError."""
    tier_metadata = catalogue.tier_metadata
    if tier_metadata is None:
        segments = await _surveyed(storage, catalogue.stored.get(partition, ()), strict=strict)
        return await _alone(storage, partition, RemoteLogMetadataCache.restored(segments, {}), None)
    lineage = await disk.offload(
        lineage_of_replicas, disk, catalogue.log_dirs, partition, tier_metadata.leader(partition)
    )
    cache = tier_metadata.cache(partition)
    if cache is None:
        cache = await disk.offload(_by_snapshot, disk, catalogue.snapshots[partition], partition)
        return await _alone(storage, partition, cache, lineage)
    if lineage is None:
        lineage = tier_metadata.tier_lineage(partition)
        if lineage is None:
            lineage = await lineage_of_tier(storage, _serving(cache))
            tier_metadata.keep(partition, lineage)
    return KnownPartition.of(partition, () if lineage is None else tier_metadata.parts(partition, lineage), lineage)


async def _alone(
    storage: RemoteStorage, partition: TopicIdPartition, cache: RemoteLogMetadataCache, lineage: Lineage | None
) -> KnownPartition:
    """Return what the tier has of a partition according to the segments in ``cache``, without caching the result.
    ``lineage``: the log's epoch chain; None: take it from the tier's files."""
    lineage = lineage or await lineage_of_tier(storage, _serving(cache))
    return KnownPartition.of(
        partition, () if lineage is None else resolved(partition, cache, lineage.epochs, lineage.log_end), lineage
    )


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
    storage: RemoteStorage, stored_segments: Sequence[StoredSegment], *, strict: bool
) -> list[RemoteLogSegmentMetadata]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def metadata_of(stored: StoredSegment) -> RemoteLogSegmentMetadata | None:
        name = object_name(stored.start_offset, stored.segment_id.id, LOG_SUFFIX)
        path = f"{tier_folder(stored.segment_id.partition)}/{name}"
        async with limit:
            try:
                metadata, cut = await surveyed(storage, stored)
            except NotASegment as error:
                detail = f"{path} is not a valid segment: {error}"
                # Without a .log, these files belong to an unfinished copy or deletion.
                if strict and LOG_SUFFIX in stored.objects:
                    raise PipelineError(detail) from None
                get_logger("pipeline").warning("segment left out", reason=detail)
                return None
            if cut:
                loss(f"{path}, {cut}", strict)
            return metadata

    found: list[RemoteLogSegmentMetadata | None] = []
    for begin in range(0, len(stored_segments), 1000):
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(metadata_of(stored)) for stored in stored_segments[begin : begin + 1000]]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        found += [task.result() for task in tasks]
    return [one for one in found if one is not None]
