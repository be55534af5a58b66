"""Plans the restoration of a cluster from its tier: the topics and logs that can be recovered.

A log gets the leader epochs of the remaining replicas, or those stored in the tier, and it ends at the last offset in
the tier. Other segments in the tier stay listed: the new leader deletes them, as the old one would have done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final
from uuid import UUID

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import LeaderEpoch, Offset, ProducerId
from milena.protocol.uuids import to_text
from milena.storage.files.producer_snapshot import decode_snapshot, encode_snapshot
from milena.storage.state.epoch_cache import LeaderEpochCache
from milena.storage.state.producer_state import ProducerEntry, ProducerState
from milena.tiered.aux_state.aux_producers import CorruptProducers, producers_at
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.offline.epoch_history import starting_at
from milena.tiered.offline.metadata_history import MetadataHistory
from milena.tiered.offline.restorable_segments import restorable
from milena.tiered.rebuilding.epoch_chains import Lineage, served_runs
from milena.tiered.rebuilding.usable_segments import Restorable
from milena.tiered.segments.cleaner_offsets import author
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import RemoteResourceNotFound, RemoteStorage, StoredSegment

NO_PRODUCERS: Final = encode_snapshot(ProducerState())
ReplicaLineage = Callable[[TopicIdPartition], Awaitable[Lineage | None]]


class CannotRestore(ValueError):
    """The cluster cannot be restored as requested; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user has requested."""

    topics: Mapping[str, UUID | None] = field(default_factory=dict)
    """Topic names, with the id if several topics have the name; empty: all."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of a topic, if the tier does not show it."""
    skip_gaps: bool = False


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """The log of one restored partition: it starts at ``log_start``, in the tier, and new records are appended at
    ``lineage.log_end``."""

    partition: TopicIdPartition
    segments: Sequence[RemoteLogSegmentMetadata]
    lineage: Lineage
    log_start: Offset
    leader_epoch: LeaderEpoch
    """The next leader epoch: above all epochs seen in the tier."""
    producers: bytes
    """The producer snapshot at the end of the log."""
    bounds: Sequence[RemoteLogSegmentMetadata] = ()
    """Deleted cleaned segments, whose cleaner-offset maps still have an effect."""


@dataclass(slots=True)
class RestoredTopic:
    """A topic with its old id; partitions without a log were never copied."""

    name: str
    id: UUID
    partitions: int
    logs: dict[int, RestoredLog] = field(default_factory=dict)


@dataclass(slots=True)
class Restoration:
    """Everything that will be restored. ``notes``: information for the user."""

    topics: list[RestoredTopic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def plan(
    storage: RemoteStorage, history: MetadataHistory | None, of_replicas: ReplicaLineage, wishes: Wishes
) -> Restoration:
    """Plan the restoration from the tier's contents. Segments that are not in ``history`` are read completely to find
    where they end; without a history, all are.

    Raises CannotRestore, RemoteStorageError.
    """
    result = Restoration()
    deleted = {} if history is None else history.deleted()
    if history is not None:
        result.notes += _unread(history)
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for segment in await storage.segments():
        stored.setdefault(segment.segment_id.partition, []).append(segment)
    known = stored.keys() | (history.caches.keys() if history is not None else set())
    for name, topic_id in _chosen(known, wishes).items():
        partitions = sorted((one for one in known if one.topic_id == topic_id), key=lambda one: one.partition)
        topic = RestoredTopic(name, topic_id, max(one.partition for one in partitions) + 1)
        wanted = wishes.partitions.get(name, topic.partitions)
        if wanted < topic.partitions:
            raise CannotRestore(f"topic {name} has at least {topic.partitions} partitions, not {wanted}")
        topic.partitions = wanted
        for partition in partitions:
            of_old = await of_replicas(partition)
            found = await restorable(
                storage, history, partition, stored.get(partition, []), of_old, deleted.get(partition, ())
            )
            # Only the metadata shows which segments were replaced: serving a replaced one would restore old values.
            if found.undescribed and (history is None or partition not in history.caches):
                raise CannotRestore(
                    f"{_name(partition)}: {found.undescribed[0]}. Without the old metadata topic (--metadata) it "
                    "is unknown which of its segments were replaced; --topic names the topics to restore without it"
                )
            result.notes += [f"{_name(partition)}: {note}" for note in found.notes]
            log = await _log(storage, partition, found, wishes, result.notes)
            if log is not None:
                topic.logs[partition.partition] = log
        result.topics.append(topic)
    if not result.topics:
        raise CannotRestore("the tier contains no segment")
    return result


def _unread(history: MetadataHistory) -> Iterator[str]:
    """Yield a note for each partition of the metadata topic with unreadable records, which may have concerned any
    segment."""
    for number, found in groupby(history.unreadable, key=lambda part: part.number):
        first, *others = found
        more = f", and {len(others)} more there" if others else ""
        yield f"partition {number} of the metadata topic cannot be read completely: {first.why}{more}"


def _chosen(known: set[TopicIdPartition], wishes: Wishes) -> dict[str, UUID]:
    """Return the topics to restore, with one topic id for each name. Raises CannotRestore."""
    ids: dict[str, set[UUID]] = {}
    for partition in known:
        ids.setdefault(partition.topic, set()).add(partition.topic_id)
    for name, topic_id in wishes.topics.items():
        if name not in ids or (topic_id is not None and topic_id not in ids[name]):
            what = name if topic_id is None else f"{name} with the id {to_text(topic_id)}"
            raise CannotRestore(f"there is no topic {what} in the tier; there are {', '.join(sorted(ids)) or 'none'}")
    for name in wishes.partitions:
        if name not in ids:
            raise CannotRestore(f"there is no topic {name} in the tier")
    chosen = {}
    for name in sorted(wishes.topics or ids):
        wanted = wishes.topics.get(name)
        if wanted is None and len(ids[name]) > 1:
            several = ", ".join(sorted(map(to_text, ids[name])))
            raise CannotRestore(f"topic {name} is in the tier with the ids {several}: choose one by --topic {name}=ID")
        chosen[name] = wanted or next(iter(ids[name]))
    return chosen


def _name(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _served(
    partition: TopicIdPartition, found: Restorable, lineage: Lineage, wishes: Wishes, notes: list[str]
) -> tuple[Offset, Offset]:
    """Return the offsets (first, last) that the log will have in the tier. Raises CannotRestore if there are gaps that
    the user has not accepted."""
    every = served_runs(lineage, found.read())
    runs = [run for run in every if run[1] >= (lineage.log_start or 0)] or every[-1:]
    missing = [(before[1] + 1, after[0] - 1) for before, after in pairwise(runs)]
    what = f"{_name(partition)}: offsets {', '.join(f'{first} to {last}' for first, last in missing)} are in no segment"
    if missing and not wishes.skip_gaps:
        reasons = f" ({'; '.join(found.unused)})" if found.unused else ""
        raise CannotRestore(
            f"{what}{reasons}; with --skip-gaps the log begins after them, and all segments before them will be "
            "deleted from the tier"
        )
    if missing:
        notes.append(f"{what}, the log begins at {runs[-1][0]}")
    elif lineage.log_start is not None and lineage.log_start < runs[0][0]:
        notes.append(
            f"{_name(partition)}: offsets {lineage.log_start} to {runs[0][0] - 1}, with which the old replicas' log "
            f"began, are in no segment, the log begins at {runs[0][0]}"
        )
    return runs[-1]


async def _log(
    storage: RemoteStorage, partition: TopicIdPartition, found: Restorable, wishes: Wishes, notes: list[str]
) -> RestoredLog | None:
    """Plan one log. Returns None if no segment of the partition can be read. Raises CannotRestore,
    RemoteStorageError."""
    lineage, segments = found.lineage, found.segments
    if lineage is None or not served_runs(lineage, found.read()):
        notes.append(f"{_name(partition)}: nothing in the tier can be read, the partition will be empty")
        return None
    first, last = _served(partition, found, lineage, wishes, notes)
    start = max(first, lineage.log_start or first)
    end = Offset(last + 1)
    if start >= end:
        start = end
    known = LeaderEpochCache(lineage.epochs)
    known.truncate_from_end(end)
    every = [*segments, *found.bounds]
    authors = [author(segment.cleaned) for segment in every if segment.cleaned]  # whose maps judge those of lower ones
    newest = max([lineage.epochs[-1].epoch, *(segment.epochs[-1].epoch for segment in every), *authors])
    producers = NO_PRODUCERS
    cache = RemoteLogMetadataCache.restored(segments, {}, cleanings=Cleanings.left_by(found.bounds))
    try:
        producers = await producers_at(storage, cache, end, known.entries, start)
    except (RemoteResourceNotFound, CorruptProducers, CorruptBatch) as error:
        notes.append(f"{_name(partition)}: the state of its producers is lost: {error}")
    undecided = [str(producer) for producer, _ in open_transactions(producers)]
    if undecided:
        notes.append(
            f"{_name(partition)}: transactions are aborted whose ends are not in the tier, of the producers "
            f"{', '.join(undecided)}"
        )
    lineage = starting_at(replace(lineage, epochs=tuple(known.entries), log_end=end), start)
    return RestoredLog(partition, segments, lineage, start, LeaderEpoch(newest + 1), producers, found.bounds)


def open_transactions(snapshot: bytes) -> list[tuple[ProducerId, ProducerEntry]]:
    """Return the producers that have an open transaction in a snapshot, which must be valid."""
    return [(producer, entry) for producer, entry in decode_snapshot(snapshot) if entry.txn_first_offset is not None]
