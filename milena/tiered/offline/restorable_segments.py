"""Selects the segments of a tier that a restored cluster uses: those in the old metadata, and those whose metadata can
be rebuilt from their files.

A segment that the metadata does not mention, or only as a started copy, is used if it serves offsets of the log that no
other segment serves. A segment that was deleted according to the metadata stays deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from milena.protocol.types import Offset
from milena.protocol.uuids import to_text
from milena.tiered.offline.epoch_history import furthest, lineage_of_tier
from milena.tiered.offline.metadata_history import DELETIONS, MetadataHistory, is_deleted
from milena.tiered.reading.log_contents import read_contents
from milena.tiered.rebuilding.epoch_chains import Lineage, readable, served_runs
from milena.tiered.rebuilding.usable_segments import Restorable, as_finished, lacking, whole_segments
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType, RemoteStorage, StoredSegment

MEANINGS: Final = {
    IndexType.OFFSET.value: "it is read from its beginning on to find an offset",
    IndexType.TIMESTAMP.value: "it is read from its beginning on to find an offset or a time",
    IndexType.PRODUCER_SNAPSHOT.value: (
        "a follower whose leader's local log begins directly after it cannot learn the producers, and waits"
    ),
    IndexType.LEADER_EPOCH.value: (
        "its epochs come from its batches and from other segments; a follower whose leader's local log begins in it or "
        "directly after it cannot learn older ones, and waits"
    ),
}
"""The consequence if an object other than the log is missing."""

_STATE = RemoteLogSegmentState


async def restorable(
    storage: RemoteStorage,
    history: MetadataHistory | None,
    partition: TopicIdPartition,
    stored: Sequence[StoredSegment],
    of_replicas: Lineage | None,
    deleted: Sequence[RemoteLogSegmentMetadata] = (),
) -> Restorable:
    """Select the segments of ``partition``. ``stored``: all its segments in the tier; ``deleted``: segments that were
    deleted according to the metadata. Raises RemoteStorageError."""
    found = Restorable(
        bounds=[replace(one, state=_STATE.DELETE_SEGMENT_FINISHED, copied=True) for one in deleted if one.cleaned]
    )
    there = {segment.segment_id.id: segment for segment in stored}
    if history is None:
        found.segments = await whole_segments(storage, stored, found)
        found.lineage = furthest(of_replicas, await lineage_of_tier(storage, found.segments))
    else:
        await _listed(storage, history, partition, there, found)
        await _unlisted(storage, history, partition, there, of_replicas, found)
    found.segments.sort(key=_order)
    found.notes += _unread(found)
    found.notes += _lost_objects([there[segment.id] for segment in readable(found.segments) if segment.id in there])
    if of_replicas is not None and found.lineage is not None and found.lineage.log_end > of_replicas.log_end:
        found.notes.append(
            f"the old replicas' log ended at {of_replicas.log_end - 1} in leader epoch {of_replicas.epochs[-1].epoch}, "
            f"the tier's at {found.lineage.log_end - 1} in {found.lineage.epochs[-1].epoch}: the tier's log is used"
        )
    return found


async def _listed(
    storage: RemoteStorage,
    history: MetadataHistory,
    partition: TopicIdPartition,
    there: Mapping[UUID, StoredSegment],
    found: Restorable,
) -> None:
    """Add the segments that the metadata lists; a readable one only if its log is complete in the tier."""
    for segment in history.segments(partition):
        if segment.state not in DELETIONS and _was_deleted(history, segment.segment_id):
            found.leave_out(
                segment.id, "according to the metadata it was deleted, but the start of its deletion is missing there"
            )
            continue
        size = there[segment.id].objects.get(LOG_SUFFIX, 0) if segment.id in there else 0
        if segment.state is _STATE.COPY_SEGMENT_FINISHED and size < segment.size:
            damage = (await read_contents(storage, replace(segment, size=size))).damage if size else []
            found.leave_out(segment.id, "; ".join([f"its log has {size} of {segment.size} bytes", *damage]))
        else:
            found.segments.append(segment)


async def _unlisted(
    storage: RemoteStorage,
    history: MetadataHistory,
    partition: TopicIdPartition,
    there: Mapping[UUID, StoredSegment],
    of_replicas: Lineage | None,
    found: Restorable,
) -> None:
    """Set the lineage, and add segments that the metadata does not list, or only as started, if they have offsets of
    the log that no other segment has."""
    listed = {segment.id: segment for segment in found.segments}
    known = {segment.id for segment in history.segments(partition)}
    begun = {key: one for key, one in listed.items() if one.state is _STATE.COPY_SEGMENT_STARTED}
    deleted = {key for key in there if _was_deleted(history, RemoteLogSegmentId(partition, key))}
    unlisted = [one for key, one in there.items() if key not in known | deleted]
    unended = [there[key] for key in begun if key in there and LOG_SUFFIX in there[key].objects]
    whole = await whole_segments(storage, [*unlisted, *unended], found)
    candidates = [
        segment
        for segment in (as_finished(begun.get(segment.id), segment, found) for segment in whole)
        if segment is not None
    ]
    found.lineage = furthest(of_replicas, await lineage_of_tier(storage, [*found.segments, *candidates]))
    bounds = Cleanings.left_by(found.bounds)
    taken = [] if found.lineage is None else list(lacking(found.lineage, found.segments, candidates, bounds))
    ids = {segment.id for segment in taken}
    found.segments = [segment for segment in found.segments if segment.id not in ids] + taken
    if found.lineage is not None:
        of_begun = [segment for segment in taken if segment.id in begun]
        of_unlisted = [segment for segment in taken if segment.id not in begun]
        found.notes += _taken_note(found.lineage, of_unlisted, "the metadata does not list")
        found.notes += _taken_note(found.lineage, of_begun, "the metadata has only the start of the copy of")
    passed = [segment for segment in candidates if segment.id not in ids and segment.id not in begun]
    if passed:
        found.notes.append(
            f"the metadata does not list {_named(passed)}, which has no offsets that other segments lack: it stays in "
            "the tier, and no broker deletes it"
        )
    with_log = sorted(key for key in deleted if LOG_SUFFIX in there[key].objects)
    if with_log:
        more = f" and {len(with_log) - 1} more" if with_log[1:] else ""
        found.unused.append(f"the metadata says that segment {to_text(with_log[0])}{more} with files here was deleted")


def _unread(found: Restorable) -> Iterator[str]:
    read = {segment.id for segment in found.read()}
    unread = [segment for segment in readable(found.segments) if segment.id not in read]
    if unread:
        yield f"{_named(unread)} not read: replaced or rejected by cleanings, and deleted by the leader"


def _was_deleted(history: MetadataHistory, segment: RemoteLogSegmentId) -> bool:
    """Whether the metadata has the deletion of the segment, even if it lacks the segment itself."""
    return is_deleted(history.events.get(segment, ()))


def _taken_note(lineage: Lineage, taken: Sequence[RemoteLogSegmentMetadata], said: str) -> Iterator[str]:
    if taken:
        offsets = ", ".join(f"{first} to {last}" for first, last in served_runs(lineage, taken))
        yield f"{said} {_named(taken)}: taken from the files, offsets {offsets}"


def _named(segments: Sequence[RemoteLogSegmentMetadata]) -> str:
    more = f" and {len(segments) - 1} more" if segments[1:] else ""
    return f"segment {to_text(segments[0].id)}{more}"


def _lost_objects(taken: Collection[StoredSegment]) -> Iterator[str]:
    """Yield a note for each kind of object that is missing of the used segments, with the consequence."""
    for suffix, meaning in MEANINGS.items():
        lacking = [to_text(segment.segment_id.id) for segment in taken if suffix not in segment.objects]
        if lacking:
            more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
            yield f"there is no {suffix} of segment {lacking[0]}{more}: {meaning}"


def _order(segment: RemoteLogSegmentMetadata) -> tuple[Offset, Offset, int]:
    return segment.start_offset, segment.end_offset, segment.id.int
