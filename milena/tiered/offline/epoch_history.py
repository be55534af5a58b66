"""Finds the leader epochs of a partition's log without a broker: from the replicas' folders, or from the tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import NodeId, Offset
from milena.runtime.disk import Disk
from milena.storage.files.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
)
from milena.storage.files.meta_properties import CorruptMetaProperties, decode_meta_properties
from milena.storage.files.names import (
    EPOCHS,
    LOG,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    offset_of_file,
    partition_folder,
)
from milena.storage.log.batch_scan import LOOKUP_CHUNK, scan_batches
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.tiered.rebuilding.epoch_chains import Lineage, readable
from milena.tiered.segments.lineage import filtered
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from milena.tiered.store.remote_storage import IndexType, RemoteResourceNotFound, RemoteStorage


def lineage_of_replicas(
    disk: Disk, log_dirs: Sequence[str], partition: TopicIdPartition, leader: NodeId | None = None
) -> Lineage | None:
    """Return the lineage of the replica in ``log_dirs`` with the newest epoch; None if there is no replica.

    If several replicas have that epoch, the log start is that of ``leader``, or else the lowest one, since a former
    leader may have raised its log start by another retention. The log end is the highest one. Blocks. Raises OSError.
    """
    folders = [(log_dir, f"{log_dir}/{partition_folder(partition.topic, partition.partition)}") for log_dir in log_dirs]
    there = [(log_dir, folder) for log_dir, folder in folders if disk.exists(folder)]
    found = [(log_dir, _if_there(disk, log_dir, folder, partition)) for log_dir, folder in there]
    known = [(log_dir, lineage) for log_dir, lineage in found if lineage is not None]
    if not known:
        return None
    epoch = max(one.epochs[-1].epoch for _, one in known)
    newest = [(log_dir, one) for log_dir, one in known if one.epochs[-1].epoch == epoch]
    log_end = max(one.log_end for _, one in newest)
    of_leader = [one for log_dir, one in newest if node_of(disk, log_dir) == leader] if leader is not None else []
    first = min(of_leader or [one for _, one in newest], key=lambda one: (one.log_start or 0, -one.log_end))
    return replace(first, log_end=log_end)


def node_of(disk: Disk, log_dir: str) -> NodeId | None:
    """Return the id of the broker whose log directory this is; None if its meta.properties is missing or damaged."""
    try:
        return decode_meta_properties(disk.read(f"{log_dir}/{META_PROPERTIES}")).node_id
    except (FileNotFoundError, CorruptMetaProperties):
        return None


def _if_there(disk: Disk, log_dir: str, folder: str, partition: TopicIdPartition) -> Lineage | None:
    """Return the lineage of one replica; None if it is of another topic id, damaged or empty, or if its broker deletes
    it, or one of its segments, while it is read."""
    try:
        return _of_replica(disk, log_dir, folder, partition)
    except FileNotFoundError:
        return None


def _of_replica(disk: Disk, log_dir: str, folder: str, partition: TopicIdPartition) -> Lineage | None:
    try:
        if decode_partition_metadata(disk.read(f"{folder}/{PARTITION_METADATA}")) != partition.topic_id:
            return None
        epochs = decode_epochs(disk.read(f"{folder}/{EPOCHS}"))
    except CorruptCheckpoint:
        return None
    bases = sorted(
        base for name in disk.list(folder) if name.endswith(LOG) and (base := offset_of_file(name)) is not None
    )
    if not epochs or not bases:
        return None
    end = _log_end(disk, f"{folder}/{bases[-1]:020d}{LOG}", bases[-1])
    return Lineage(tuple(filtered(epochs)), end, f"{folder}/{EPOCHS}", _log_start(disk, log_dir, partition))


def _log_end(disk: Disk, path: str, base: int) -> Offset:
    """Return the offset after the last complete batch."""
    file = disk.open(path, read_only=True)
    end = base
    try:
        for batch in scan_batches(file, 0, file.size, chunk=LOOKUP_CHUNK):
            end = batch.last_offset + 1
    except CorruptBatch:
        return Offset(end)
    finally:
        file.close()
    return Offset(end)


def _log_start(disk: Disk, log_dir: str, partition: TopicIdPartition) -> Offset | None:
    try:
        starts = decode_offsets(disk.read(f"{log_dir}/{LOG_STARTS}"))
    except (FileNotFoundError, CorruptCheckpoint):
        return None
    return starts.get((partition.topic, partition.partition))


async def stored_epochs(storage: RemoteStorage, segment: RemoteLogSegmentMetadata) -> list[EpochEntry]:
    """Return the leader epochs up to the end of ``segment``, as copied with it.

    Raises RemoteStorageError, for example RemoteResourceNotFound, and CorruptCheckpoint.
    """
    return decode_epochs(await storage.fetch_index(segment, IndexType.LEADER_EPOCH))


async def lineage_of_tier(storage: RemoteStorage, segments: Iterable[RemoteLogSegmentMetadata]) -> Lineage | None:
    """Return the lineage of the log from which the newest of ``segments`` was copied: the segment with the newest epoch
    and, of those, the highest end offset. None without readable segments.

    The epochs come from the checkpoint that was copied with that segment. If it is lost, they come from the next older
    segment with a checkpoint, and from the metadata of the newer ones. Raises RemoteStorageError.
    """
    newest = sorted(
        readable(segments), key=lambda segment: (segment.epochs[-1].epoch, segment.end_offset, segment.id.int)
    )
    if not newest:
        return None
    log_end = Offset(newest[-1].end_offset + 1)
    later: list[RemoteLogSegmentMetadata] = []
    for segment in reversed(newest):
        try:
            entries = await stored_epochs(storage, segment)
        except (RemoteResourceNotFound, CorruptCheckpoint):
            entries = []
        if not entries:
            later.append(segment)
            continue
        known = LeaderEpochCache(entries)
        _extend(known, [segment, *reversed(later)])
        source = f"the leader epochs stored with the segment at {segment.start_offset}"
        return Lineage(tuple(filtered(known.entries)), log_end, source)
    known = LeaderEpochCache()
    _extend(known, reversed(later))
    return Lineage(tuple(filtered(known.entries)), log_end, "the leader epochs of the segments themselves")


def furthest(of_replicas: Lineage | None, of_tier: Lineage | None) -> Lineage | None:
    """Return the lineage with which a restored partition continues: the one with the newest epoch; if both have the
    same newest epoch, the longer one, since an epoch has one log. Replicas may be old copies, or may have lagged behind
    their leader."""
    if of_replicas is None or of_tier is None:
        return of_replicas or of_tier
    replicas, tier = of_replicas.epochs[-1].epoch, of_tier.epochs[-1].epoch
    if tier > replicas:
        return replace(of_tier, log_start=of_replicas.log_start)
    if tier == replicas and of_tier.log_end > of_replicas.log_end:
        return replace(of_replicas, log_end=of_tier.log_end)
    return of_replicas


def _extend(known: LeaderEpochCache, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
    """Add the newer epochs of ``segments``."""
    for segment in segments:
        for epoch, start in segment.epochs:
            if known.latest is None or epoch > known.latest:
                known.assign(epoch, start)


def starting_at(lineage: Lineage, offset: Offset) -> Lineage:
    """Return the lineage of a log that starts at ``offset``."""
    known = LeaderEpochCache(lineage.epochs)
    known.truncate_from_start(offset)
    return replace(lineage, epochs=tuple(known.entries), log_start=offset)
