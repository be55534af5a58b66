"""What becomes of a tier whose cluster is gone: the topics and logs that can be made of it again.

A log's leader epochs are those of the replicas that are left, or those that the tier holds itself, and it ends where
the tier does. What else is in the tier stays listed: the new leader cleans it up as the old one would have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final
from uuid import UUID

from protocol.types import LeaderEpoch, Offset, ProducerId
from protocol.uuids import to_text
from storage.epoch_cache import LeaderEpochCache
from storage.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from storage.producer_state import ProducerEntry, ProducerState
from tiered.log_contents import read_contents
from tiered.log_lineage import Lineage, lineage_of_tier, readable, served_runs, starting_at
from tiered.metadata_folders import MetadataHistory
from tiered.rebuilding import NotASegment, rebuilt
from tiered.remote_storage import LOG_SUFFIX, IndexType, RemoteResourceNotFound, RemoteStorage, StoredSegment
from tiered.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition

NO_PRODUCERS: Final = encode_snapshot(ProducerState())
MEANINGS: Final = {
    IndexType.OFFSET.value: "it is read from its beginning on to find an offset",
    IndexType.TIMESTAMP.value: "it is read from its beginning on to find an offset or a time",
    IndexType.PRODUCER_SNAPSHOT.value: (
        "a follower whose leader's local log begins right behind it cannot learn the producers, and waits"
    ),
    IndexType.LEADER_EPOCH.value: (
        "its epochs are told by its batches and other segments; a follower whose leader's local log begins in it or "
        "right behind it cannot learn older ones, and waits"
    ),
}
"""What it means that an object is lost of a segment whose log is there."""
ReplicaLineage = Callable[[TopicIdPartition], Awaitable[Lineage | None]]


class CannotRestore(ValueError):
    """The tier, or what was asked for, leaves no way to go on; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person has decided."""

    topics: Mapping[str, UUID | None] = field(default_factory=dict)
    """Names, with the id where there are several; empty: all."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many a topic has, where the tier does not show it."""
    skip_gaps: bool = False


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """One partition: ``log_start`` lies in the tier, the log goes on at ``lineage.log_end``."""

    partition: TopicIdPartition
    segments: Sequence[RemoteLogSegmentMetadata]
    lineage: Lineage
    log_start: Offset
    leader_epoch: LeaderEpoch
    """Above all that were ever seen in the tier."""
    producers: bytes
    """Their snapshot at the end of the log."""


@dataclass(slots=True)
class RestoredTopic:
    """A topic with its old id; partitions without a log were never copied."""

    name: str
    id: UUID
    partitions: int
    logs: dict[int, RestoredLog] = field(default_factory=dict)


@dataclass(slots=True)
class Restoration:
    """All that will be there again. ``notes``: what a person should know."""

    topics: list[RestoredTopic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def plan(
    storage: RemoteStorage, history: MetadataHistory | None, of_replicas: ReplicaLineage, wishes: Wishes
) -> Restoration:
    """Look through the tier. Without ``history`` its logs are read whole, to find where each segment ends.

    Raises CannotRestore, RemoteStorageError.
    """
    result = Restoration()
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for one in await storage.segments():
        stored.setdefault(one.segment_id.partition, []).append(one)
    known = stored.keys() | (history.caches.keys() if history is not None else set())
    for name, topic_id in _chosen(known, wishes).items():
        partitions = sorted((one for one in known if one.topic_id == topic_id), key=lambda one: one.partition)
        topic = RestoredTopic(name, topic_id, max(one.partition for one in partitions) + 1)
        wanted = wishes.partitions.get(name, topic.partitions)
        if wanted < topic.partitions:
            raise CannotRestore(f"topic {name} has at least {topic.partitions} partitions, not {wanted}")
        topic.partitions = wanted
        for partition in partitions:
            segments, left_out = await _segments(storage, history, partition, stored.get(partition, []), result.notes)
            lineage = await of_replicas(partition) or await lineage_of_tier(storage, segments)
            runs = served_runs(lineage, readable(segments)) if lineage is not None else []
            _check_gaps(partition, runs, wishes, left_out, result.notes)
            log = await _log(storage, partition, segments, lineage, runs, result.notes)
            if log is not None:
                topic.logs[partition.partition] = log
        result.topics.append(topic)
    if not result.topics:
        raise CannotRestore("there is no segment in the tier")
    return result


def _chosen(known: set[TopicIdPartition], wishes: Wishes) -> dict[str, UUID]:
    """One id for each topic, by name."""
    ids: dict[str, set[UUID]] = {}
    for one in known:
        ids.setdefault(one.topic, set()).add(one.topic_id)
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


async def _segments(
    storage: RemoteStorage,
    history: MetadataHistory | None,
    partition: TopicIdPartition,
    stored: Sequence[StoredSegment],
    notes: list[str],
) -> tuple[list[RemoteLogSegmentMetadata], list[str]]:
    """The partition's segments, and why others are none. A readable one has its log in the tier."""
    found: list[RemoteLogSegmentMetadata] = []
    there = {one.segment_id.id: one for one in stored}
    left_out: list[str] = []
    if history is not None:
        for segment in history.segments(partition):
            object_size = there[segment.id].objects.get(LOG_SUFFIX, 0) if segment.id in there else 0
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED and object_size < segment.size:
                part = replace(segment, size=object_size)
                damage = (await read_contents(storage, part)).damage if object_size else []
                why = "; ".join([f"its log has {object_size} of {segment.size} bytes", *damage])
                left_out.append(_left_out(segment.id, why))
            else:
                found.append(segment)
    else:
        for one in stored:
            try:
                segment, contents = await rebuilt(storage, one)
            except NotASegment as error:
                left_out.append(_left_out(one.segment_id.id, str(error)))
                continue
            damage = [*(f"{where} has a wrong checksum" for where in contents.bad_checksums), *contents.damage]
            if damage:
                left_out.append(_left_out(segment.id, "; ".join(damage)))
            else:
                found.append(segment)
        found.sort(key=lambda segment: (segment.start_offset, segment.end_offset, segment.id.int))
    notes += [f"{_name(partition)}: {why}" for why in left_out]
    notes += _lost_objects(partition, [there[one.id] for one in readable(found) if one.id in there])
    return found, left_out


def _lost_objects(partition: TopicIdPartition, taken: Sequence[StoredSegment]) -> Iterator[str]:
    """What it means that segments are taken which lack something."""
    for suffix, meaning in MEANINGS.items():
        lacking = [to_text(one.segment_id.id) for one in taken if suffix not in one.objects]
        if lacking:
            more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
            yield f"{_name(partition)}: there is no {suffix} of segment {lacking[0]}{more}: {meaning}"


def _left_out(segment: UUID, why: str) -> str:
    return f"segment {to_text(segment)} is left out: {why}"


def _name(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _check_gaps(
    partition: TopicIdPartition,
    runs: Sequence[tuple[Offset, Offset]],
    wishes: Wishes,
    left_out: Sequence[str],
    notes: list[str],
) -> None:
    """Raises CannotRestore where there are gaps that nobody wants to pass over."""
    if len(runs) < 2:
        return
    told = ", ".join(f"{before[1] + 1} to {after[0] - 1}" for before, after in pairwise(runs))
    what = f"{_name(partition)}: offsets {told} are in no segment"
    if not wishes.skip_gaps:
        reasons = f" ({'; '.join(left_out)})" if left_out else ""
        raise CannotRestore(
            f"{what}{reasons}; with --skip-gaps the log begins behind them, and what is before them will be deleted "
            "from the tier"
        )
    notes.append(f"{what}, the log begins at {runs[-1][0]}")


async def _log(
    storage: RemoteStorage,
    partition: TopicIdPartition,
    segments: Sequence[RemoteLogSegmentMetadata],
    lineage: Lineage | None,
    runs: Sequence[tuple[Offset, Offset]],
    notes: list[str],
) -> RestoredLog | None:
    """None where nothing in the tier can be read."""
    if lineage is None or not runs:
        notes.append(f"{_name(partition)}: nothing in the tier can be read, the partition will be empty")
        return None
    first, last = runs[-1]
    start = max(first, lineage.log_start or first)
    end = Offset(last + 1)
    if start >= end:
        start = end
    known = LeaderEpochCache(lineage.epochs)
    known.truncate_from_end(end)
    newest = max([lineage.epochs[-1].epoch, *(segment.epochs[-1].epoch for segment in segments)])
    producers = await _producers(storage, readable(segments), end, notes)
    undecided = [str(producer) for producer, _ in open_transactions(producers)]
    if undecided:
        notes.append(
            f"{_name(partition)}: transactions are aborted whose ends are not in the tier, of the producers "
            f"{', '.join(undecided)}"
        )
    lineage = starting_at(replace(lineage, epochs=tuple(known.entries), log_end=end), start)
    return RestoredLog(partition, segments, lineage, start, LeaderEpoch(newest + 1), producers)


async def _producers(
    storage: RemoteStorage, segments: Sequence[RemoteLogSegmentMetadata], end: Offset, notes: list[str]
) -> bytes:
    """The producers as of the last segment's end, or nobody where that is not known."""
    for segment in reversed(segments):
        if segment.end_offset + 1 == end:
            try:
                snapshot = await storage.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
                decode_snapshot(snapshot)
            except (RemoteResourceNotFound, CorruptSnapshot) as error:
                notes.append(f"{_name(segment.partition)}: the state of its producers is lost: {error}")
            else:
                return snapshot
    return NO_PRODUCERS


def open_transactions(snapshot: bytes) -> list[tuple[ProducerId, ProducerEntry]]:
    """The producers that a valid snapshot has in a transaction."""
    return [(producer, entry) for producer, entry in decode_snapshot(snapshot) if entry.txn_first_offset is not None]
