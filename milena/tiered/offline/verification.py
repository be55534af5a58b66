"""Verifies without a cluster that a tier contains what its metadata says, and nothing else.

For each partition, the objects of its segments are read whole and compared with the metadata, and the ranges that the
readable segments serve under the log's leader epochs are checked for gaps and overlaps. If the metadata is not known,
it is rebuilt from the segments' files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from milena.tiered.offline.findings import (
    BAD_RECORD,
    FOREIGN,
    LEFTOVER,
    LISTED_TWICE,
    ORPHAN,
    TRANSITION,
    UNDELETED,
    UNFINISHED,
    UNKNOWN_RECORD,
    Finding,
)
from milena.tiered.offline.lineage_checks import check_cleanings, check_lineage
from milena.tiered.offline.metadata_history import MetadataHistory
from milena.tiered.offline.object_checks import MISSING, UNREADABLE, check_description, check_objects
from milena.tiered.reading.log_contents import LogContents
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, rebuilt
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.store.remote_storage import LOG_SUFFIX, RemoteStorage, RemoteStorageError, StoredSegment

UNDER_WAY_MS: Final = 3 * 3_600_000
"""The time that a copy or a deletion may take: the leader looks every hour for copies that are an hour old (Milena),
and retries deletions in each pass. It is measured up to the newest event, since a stopped cluster finishes nothing."""
LOOKS: Final = 3

_STATE = RemoteLogSegmentState
Choice = Callable[[Collection[TopicIdPartition]], Sequence[TopicIdPartition]]
NotTiered = Callable[[TopicIdPartition], str | None]
LineageOf = Callable[[TopicIdPartition, list[RemoteLogSegmentMetadata]], Awaitable[Lineage | None]]


@dataclass(slots=True)
class Verification:
    """The result of a verification: numbers of checked items, and findings."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    """The harmless findings."""
    partitions: int = 0
    segments: int = 0
    size: int = 0
    """Bytes of all objects."""


async def verify(
    storage: RemoteStorage,
    history: MetadataHistory | None,
    lineage_of: LineageOf,
    *,
    choose: Choice = lambda known: sorted(known, key=in_order),
    not_tiered: NotTiered = lambda _: None,
    has_metadata: Callable[[TopicIdPartition], bool] = lambda _: True,
) -> Verification:
    """Check the known partitions that ``choose`` selects. ``history``: the contents of the metadata topic, None if
    unknown. ``not_tiered``: returns the reason why a partition should have no segments in the tier; None if it may have
    some. ``has_metadata``: whether ``history`` has the metadata of a partition; of others, only the files are checked.

    Raises RemoteStorageError if the tier cannot be listed, and the errors of ``choose``.
    """
    result = Verification()
    stored: dict[TopicIdPartition, dict[UUID, StoredSegment]] = {}
    for segment in await storage.segments():
        stored.setdefault(segment.segment_id.partition, {})[segment.segment_id.id] = segment
    found = [Finding(FOREIGN, path) for path in await storage.foreign()]
    known = set(history.caches) if history is not None else set()
    chosen = choose(known | stored.keys())
    if history is not None:
        found += check_history(history, set(chosen))
    deleted = {} if history is None else history.deleted()
    for partition in chosen:
        objects = stored.get(partition, {})
        result.segments += len(objects)
        result.size += sum(sum(segment.objects.values()) for segment in objects.values())
        of_files, listed = (
            await _files_alone(storage, objects)
            if history is None or not has_metadata(partition)
            else await _against_metadata(storage, history, partition, objects)
        )
        found += of_files
        result.partitions += bool(objects or listed)  # everything may have been deleted
        why = not_tiered(partition) if objects or listed else None
        if why is not None:
            count = len(objects.keys() | {metadata.id for metadata in listed})
            segments = f"{count} segment{' is' if count == 1 else 's are'}"
            found.append(Finding(LEFTOVER, f"{why}, {segments} left of it", partition))
        cache = None if history is None or not has_metadata(partition) else history.caches.get(partition)
        cleanings = Cleanings.of(listed) if cache is None else cache.cleanings
        found += check_cleanings(partition, listed, cleanings)
        lineage = await lineage_of(partition, listed)
        if lineage is not None:
            found += check_lineage(partition, listed, cleanings, lineage, deleted.get(partition, ()))
    result.findings = [finding for finding in found if not finding.harmless]
    result.notes = [finding for finding in found if finding.harmless]
    return result


async def confirmed(look: Callable[[Set[TopicIdPartition] | None], Awaitable[Verification]]) -> Verification:
    """Return the findings of ``look`` while the cluster may be running: partitions with findings are checked again,
    with the metadata read again, and only repeated findings are reported. ``look`` is called with the partitions to
    check, None for all."""
    result = await look(None)
    before = result.findings
    for _ in range(LOOKS):
        if not before:
            break
        again = await look({finding.partition for finding in before if finding.partition is not None})
        known = {(finding.kind, finding.partition, finding.segment) for finding in before}
        before = again.findings
        if all((finding.kind, finding.partition, finding.segment) in known for finding in before):
            break
    result.findings = before
    return result


def in_order(partition: TopicIdPartition) -> tuple[str, int, int]:
    return partition.topic, partition.topic_id.int, partition.partition


def check_history(history: MetadataHistory, wanted: Collection[TopicIdPartition]) -> Iterator[Finding]:
    """Check the events of the ``wanted`` partitions: unreadable records, repeated segments, invalid transitions."""
    for one in history.unreadable:
        kind = UNKNOWN_RECORD if one.unknown else BAD_RECORD
        yield Finding(kind, f"partition {one.number} of the metadata topic: {one.why}")
    for segment_id, events in history.events.items():
        if segment_id.partition not in wanted:
            continue
        begun: list[RemoteLogSegmentMetadata] = []
        deleting = False
        for logged in events:
            if logged.fenced:
                continue  # a former leader wrote it, and no reader applies it
            where = f"offset {logged.offset} of partition {logged.number} of the metadata topic"
            if isinstance(logged.event, RemoteLogSegmentMetadata):
                if begun and logged.event != begun[0]:
                    yield Finding(LISTED_TWICE, f"{where} lists it again", segment_id.partition, segment_id.id)
                    continue
                begun.append(logged.event)
            if not logged.accepted:
                what = f"{logged.event.state.name} must not follow, at {where}"
                # Two leaders may delete a segment, and a former leader may finish its copy after that.
                yield Finding(TRANSITION, what, segment_id.partition, segment_id.id, harmless=deleting)
            elif logged.event.state is _STATE.DELETE_SEGMENT_STARTED:
                deleting = True


async def _against_metadata(
    storage: RemoteStorage,
    history: MetadataHistory,
    partition: TopicIdPartition,
    objects: dict[UUID, StoredSegment],
) -> tuple[list[Finding], list[RemoteLogSegmentMetadata]]:
    findings: list[Finding] = []
    listed = history.segments(partition)
    for segment in listed:
        findings += await check_segment(storage, segment, objects.get(segment.id), history.newest_ms)
    known = {segment.id for segment in listed}
    for one in sorted(objects.keys() - known, key=lambda one: (objects[one].start_offset, one.int)):
        findings.append(unlisted(objects[one], deleted=RemoteLogSegmentId(partition, one) in history.events))
    return findings, listed


async def check_segment(
    storage: RemoteStorage,
    segment: RemoteLogSegmentMetadata,
    stored: StoredSegment | None,
    newest_ms: int,
    contents: LogContents | None = None,
) -> list[Finding]:
    """Check a segment that the metadata lists. ``stored``: its objects; ``newest_ms``: the time of the newest event;
    ``contents``: the contents of its log, if they are known."""
    partition = segment.segment_id.partition
    if segment.state is not _STATE.COPY_SEGMENT_FINISHED:
        if stored is None and segment.state is not _STATE.DELETE_SEGMENT_STARTED:
            return []
        said = "its copy was" if segment.state is _STATE.COPY_SEGMENT_STARTED else "its deletion was"
        files = "there is nothing of it" if stored is None else f"{len(stored.objects)} objects are there"
        under_way = newest_ms - segment.event_timestamp_ms < UNDER_WAY_MS
        what = f"{said} not finished yet, {files}" if under_way else f"{said} never finished, {files}"
        return [Finding(UNFINISHED, what, partition, segment.id, harmless=under_way)]
    if stored is None:
        return [Finding(MISSING, "it has no files", partition, segment.id)]
    found = await check_objects(storage, segment, stored, contents)
    found += await check_description(storage, segment)
    return [Finding(kind, what, partition, segment.id) for kind, what in found]


def unlisted(stored: StoredSegment, *, deleted: bool) -> Finding:
    """Return the finding for a segment that the metadata does not list. ``deleted``: it was listed and deleted."""
    kind, why = (UNDELETED, "it was deleted") if deleted else (ORPHAN, "there is no metadata of it")
    what = f"{why}, {len(stored.objects)} objects are there"
    return Finding(kind, what, stored.segment_id.partition, stored.segment_id.id)


async def _files_alone(
    storage: RemoteStorage, objects: dict[UUID, StoredSegment]
) -> tuple[list[Finding], list[RemoteLogSegmentMetadata]]:
    findings: list[Finding] = []
    listed = []
    for stored in objects.values():
        found, segment, _ = await check_files(storage, stored)
        findings += found
        if segment is not None:
            listed.append(segment)
    return findings, sorted(listed, key=lambda segment: (segment.start_offset, segment.end_offset, segment.id.int))


async def check_files(
    storage: RemoteStorage, stored: StoredSegment
) -> tuple[list[Finding], RemoteLogSegmentMetadata | None, LogContents | None]:
    """Check a segment without metadata by its files. Also returns its rebuilt metadata and the contents of its log;
    None if the files are not those of a segment."""
    partition, one = stored.segment_id.partition, stored.segment_id.id
    try:
        segment, contents, undescribed = await rebuilt(storage, stored)
    except NotASegment as error:
        kind = UNREADABLE if LOG_SUFFIX in stored.objects else ORPHAN
        return [Finding(kind, str(error), partition, one)], None, None
    except RemoteStorageError as error:
        return [Finding(UNREADABLE, str(error), partition, one)], None, None
    findings = [Finding(MISSING, undescribed, partition, one)] if undescribed else []
    found = await check_objects(storage, segment, stored, contents)
    return findings + [Finding(kind, what, partition, one) for kind, what in found], segment, contents
