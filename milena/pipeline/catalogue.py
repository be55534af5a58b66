"""What a tier has of each topic partition, by the brokers' own rules: lineage, cleanings, claims, deletions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from milena.pipeline.errors import PipelineError
from milena.pipeline.places import log_dirs_of
from milena.protocol.uuids import to_text
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.files.names import PARTITION_METADATA
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.snapshot import FILE_NAME, CorruptRemoteLogSnapshot, decode_snapshot
from milena.tiered.rescue.epoch_history import Lineage, lineage_of_replicas, lineage_of_tier, served_runs
from milena.tiered.rescue.metadata_folders import MetadataHistory, read_history
from milena.tiered.rescue.rebuilt_metadata import NotASegment
from milena.tiered.rescue.surveyed_metadata import surveyed
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import RemoteStorage, StoredSegment
from milena.tiered.store.tier_names import object_name
from milena.tiered.store.tier_names import partition_folder as tier_folder

AT_ONCE: Final = 16
"""Segments whose files are looked at concurrently."""


@dataclass(slots=True)
class Known:
    """One partition: its segments, and the log that they are read as. Offsets as of the tier alone."""

    partition: TopicIdPartition
    cache: RemoteLogMetadataCache
    epochs: Sequence[EpochEntry] = ()
    log_end: int = 0
    first: int = 0
    end: int = 0
    """Exclusive; equal to ``first`` if the tier has nothing of it."""

    def settle(self, lineage: Lineage | None) -> None:
        """Read it as the log of this lineage."""
        if lineage is None:
            return
        self.epochs, self.log_end = lineage.epochs, lineage.log_end
        segments = [one for one in self.cache.segments() if self.cache.serves(one)]
        runs = served_runs(lineage, segments)
        if runs:
            self.first, self.end = max(lineage.log_start or 0, runs[0][0]), runs[-1][1] + 1


@dataclass(slots=True)
class Catalogue:
    """The partitions that are known, whether or not anything of them was looked at."""

    history: MetadataHistory | None
    """None: the files tell."""
    stored: Mapping[TopicIdPartition, Sequence[StoredSegment]] = field(default_factory=dict)
    log_dirs: Sequence[str] = ()
    snapshots: Mapping[TopicIdPartition, str] = field(default_factory=dict)
    """Paths of the brokers' snapshots of the metadata of partitions whose part of the metadata topic is not here."""

    def partitions(self) -> list[TopicIdPartition]:
        known = {*self.stored, *self.snapshots}
        if self.history is not None:
            known |= {one for one, cache in self.history.caches.items() if len(cache)}
        return sorted(known, key=lambda one: (one.topic, one.partition, one.topic_id.int))


async def catalogue_of_folders(disk: Disk, directories: Iterable[str]) -> Catalogue:
    """What brokers' directories tell. Raises PipelineError, also for records of a version that is not known."""
    log_dirs = log_dirs_of(directories)
    history = await disk.offload(read_history, disk, log_dirs)
    for one in history.unreadable:
        raise PipelineError(
            f"option metadata: partition {one.number} of the metadata topic in {', '.join(log_dirs)} cannot be read: "
            f"{one.why}"
        )
    snapshots = await disk.offload(_snapshots, disk, log_dirs, history)
    return Catalogue(history, log_dirs=log_dirs, snapshots=snapshots)


def _snapshots(disk: Disk, log_dirs: Sequence[str], history: MetadataHistory) -> dict[TopicIdPartition, str]:
    from milena.storage.files.checkpoints import decode_partition_metadata

    found = {}
    for log_dir in log_dirs:
        for name in disk.list(log_dir):
            topic, _, digits = name.rpartition("-")
            path = f"{log_dir}/{name}/{FILE_NAME}"
            if not digits.isdecimal() or not os.path.exists(path):
                continue
            topic_id = decode_partition_metadata(disk.read(f"{log_dir}/{name}/{PARTITION_METADATA}"))
            partition = TopicIdPartition(topic_id, topic, int(digits))
            if partition not in history.caches:
                found[partition] = path
    return found


async def catalogue_of_files(storage: RemoteStorage) -> Catalogue:
    """What the tier itself tells. Raises RemoteStorageError."""
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for one in await storage.segments():
        stored.setdefault(one.segment_id.partition, []).append(one)
    return Catalogue(None, stored)


def incarnation(partitions: Iterable[TopicIdPartition], topic: str) -> list[TopicIdPartition]:
    """Those of a topic. Raises PipelineError if there are several topics of the name."""
    found = [one for one in partitions if one.topic == topic]
    ids = {one.topic_id for one in found}
    if len(ids) > 1:
        told = ", ".join(sorted(map(to_text, ids)))
        raise PipelineError(
            f"there are several topics {topic} in the tier ({told}), of one name: what is left of deleted ones; "
            "option metadata or kafka.bootstrap.servers tells which is meant"
        )
    return found


async def looked_up(
    catalogue: Catalogue, disk: Disk, storage: RemoteStorage, partition: TopicIdPartition, *, strict: bool
) -> Known:
    """One partition of it. ``strict``: a segment whose files cannot be read is an error, else it is left out.

    Raises PipelineError, RemoteStorageError."""
    if catalogue.history is None:
        segments = await _surveyed(storage, catalogue.stored.get(partition, ()), strict=strict)
        known = Known(partition, RemoteLogMetadataCache.restored(segments, {}))
        known.settle(await lineage_of_tier(storage, _serving(known.cache)))
        return known
    cache = catalogue.history.caches.get(partition)
    if cache is None:
        cache = await disk.offload(_by_snapshot, disk, catalogue.snapshots[partition], partition)
    known = Known(partition, cache)
    lineage = await disk.offload(lineage_of_replicas, disk, catalogue.log_dirs, partition)
    known.settle(lineage or await lineage_of_tier(storage, _serving(cache)))
    return known


def _serving(cache: RemoteLogMetadataCache) -> list[RemoteLogSegmentMetadata]:
    return [one for one in cache.segments() if cache.serves(one)]


def _by_snapshot(disk: Disk, path: str, partition: TopicIdPartition) -> RemoteLogMetadataCache:
    try:
        return decode_snapshot(disk.read(path), partition).cache()
    except CorruptRemoteLogSnapshot as error:
        raise PipelineError(f"option metadata: {path}: {error}") from None


async def _surveyed(
    storage: RemoteStorage, every: Sequence[StoredSegment], *, strict: bool
) -> list[RemoteLogSegmentMetadata]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(stored: StoredSegment) -> RemoteLogSegmentMetadata | None:
        async with limit:
            try:
                return await surveyed(storage, stored)
            except NotASegment as error:
                name = object_name(stored.start_offset, stored.segment_id.id, ".log")
                what = f"{tier_folder(stored.segment_id.partition)}/{name} is not a segment's: {error}"
                if strict and ".log" in stored.objects:
                    raise PipelineError(what) from None
                get_logger("pipeline").warning("left out", object=what)
                return None

    found: list[RemoteLogSegmentMetadata | None] = []
    for begin in range(0, len(every), 1000):
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(stored)) for stored in every[begin : begin + 1000]]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        found += [task.result() for task in tasks]
    return [one for one in found if one is not None]
