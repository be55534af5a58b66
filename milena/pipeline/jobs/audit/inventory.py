"""Lists the segments of a tier on the driver, from the names and sizes of its objects and from the metadata topic. The
contents of objects are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from milena.pipeline.catalogue import in_order
from milena.pipeline.jobs.rows import Row, microseconds
from milena.pipeline.locations import log_dirs_of, storage_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SourceOptions
from milena.pipeline.plans import NOT_COPIED, chosen_topics, only_assigned
from milena.protocol.uuids import to_text
from milena.tiered.metadata.serialization import serialize
from milena.tiered.offline.epoch_history import lineage_of_replicas, lineage_of_tier
from milena.tiered.offline.findings import FOREIGN, LEFTOVER, Finding
from milena.tiered.offline.metadata_history import MetadataHistory, read_history
from milena.tiered.offline.metadata_reader import metadata_folders
from milena.tiered.offline.verification import check_history, unlisted
from milena.tiered.rebuilding.epoch_chains import Lineage, readable
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from milena.tiered.store.remote_storage import StoredSegment

SEGMENTS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("topicId", StringType()),
        StructField("partition", IntegerType()),
        StructField("segmentId", StringType()),
        StructField("startOffset", LongType()),
        StructField("endOffset", LongType()),
        StructField("state", StringType()),
        StructField("newest", TimestampType()),
        StructField("copied", TimestampType()),
        StructField("modified", TimestampType()),
        StructField("size", LongType()),
        StructField("objects", MapType(StringType(), LongType())),
        StructField("listed", BooleanType()),
        StructField("metadata", BinaryType()),
    ]
)
"""SEGMENTS: the segments of a tier. ``startOffset`` and ``endOffset`` are inclusive; ``size``: bytes of all objects.
Null without metadata: ``state``, ``endOffset``, ``newest`` (its records' largest timestamp), ``copied`` and
``metadata`` (a record of the metadata topic). Null without objects: ``modified`` and ``objects`` (bytes by suffix).
``listed``: whether a metadata topic was found, so that a segment without metadata is an orphan."""
NotTiered = Callable[[TopicIdPartition], str | None]


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of a partition in addition to its segments. ``lineage``: the epoch chain of its log; None if it can
    be determined from the segments only."""

    lineage: Lineage | None = None
    cleanings: Cleanings | None = None
    deleted: Sequence[RemoteLogSegmentMetadata] = ()


@dataclass(slots=True)
class Inventory:
    """The segments of a tier (rows of SEGMENTS), and findings that do not need their contents. ``newest_ms``: the
    timestamp of the newest event of the metadata topic."""

    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    facts: dict[tuple[str, int], PartitionFacts] = field(default_factory=dict)
    """By topic id and partition."""
    newest_ms: int = 0
    not_in_tier: dict[str, int] | None = None
    """For each topic, the number of offsets that are not in the tier yet; None if that is unknown without replicas."""

    def count_remaining(self, topic: str, lineage: Lineage, listed: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Count the offsets of a partition after its last segment. ``lineage``: that of a replica."""
        copied = max((one.end_offset + 1 for one in readable(listed)), default=0)
        remaining = max(0, lineage.log_end - max(copied, lineage.log_start or 0))
        self.not_in_tier = self.not_in_tier or {}
        self.not_in_tier[topic] = self.not_in_tier.get(topic, 0) + remaining


def inventory(options: SourceOptions, not_tiered: NotTiered = lambda _: None) -> Inventory:
    """Return the inventory of the partitions that ``options`` select. ``not_tiered``: returns the reason why a
    partition should have no segments in the tier, or None if it may have some.

    Raises PipelineError, and RemoteStorageError if the tier cannot be listed."""
    with LoopThread() as loop:
        storage = storage_of(loop.runtime, options.tier, options.storage_options)
        loop.at_end(storage.close)
        # List the objects before the metadata are read: each object is announced in the metadata before it is written,
        # so a listed one that has no metadata is an orphan.
        stored: dict[TopicIdPartition, list[StoredSegment]] = {}
        for segment in loop.run(storage.segments()):
            stored.setdefault(segment.segment_id.partition, []).append(segment)
        disk = loop.runtime.disk
        log_dirs = log_dirs_of(options.metadata)
        history = read_history(disk, log_dirs) if metadata_folders(disk, log_dirs) else None
        of_history = () if history is None else (one for one, cache in history.caches.items() if len(cache))
        emptied = () if history is None else (one.topic for one in history.caches)
        chosen = _chosen(options, in_order({*stored, *of_history}), emptied)
        result = Inventory(newest_ms=0 if history is None else history.newest_ms)
        result.findings += [Finding(FOREIGN, path) for path in loop.run(storage.foreign())]
        if history is not None:
            result.findings += check_history(history, set(chosen))
        deleted = {} if history is None else history.deleted()
        for partition in chosen:
            objects = {one.segment_id.id: one for one in stored.get(partition, ())}
            listed = [] if history is None else history.segments(partition)
            result.rows += _rows(partition, listed, objects, has_metadata=history is not None)
            result.findings += _unlisted(history, partition, listed, objects)
            why = not_tiered(partition) if objects or listed else None
            if why is not None:
                result.findings.append(Finding(LEFTOVER, f"{why}, {len(objects)} segments remain", partition))
            lineage = lineage_of_replicas(disk, log_dirs, partition)
            if lineage is not None:
                result.count_remaining(partition.topic, lineage, listed)
            if lineage is None and listed:
                lineage = loop.run(lineage_of_tier(storage, listed))
            cache = None if history is None else history.caches.get(partition)
            result.facts[to_text(partition.topic_id), partition.partition] = PartitionFacts(
                lineage, None if cache is None else cache.cleanings, tuple(deleted.get(partition, ()))
            )
    return result


def _chosen(
    options: SourceOptions, known: Sequence[TopicIdPartition], emptied: Iterable[str]
) -> list[TopicIdPartition]:
    """Return the partitions among ``known`` that ``options`` select. ``emptied``: topics that may have no segments any
    more. Raises PipelineError."""
    hint = f"; if it exists, {NOT_COPIED}"
    names = set(chosen_topics(options.chosen, sorted({*(one.topic for one in known), *emptied}), hint))
    return only_assigned(options.chosen, [one for one in known if one.topic in names])


def _unlisted(
    history: MetadataHistory | None,
    partition: TopicIdPartition,
    listed: Sequence[RemoteLogSegmentMetadata],
    objects: Mapping[UUID, StoredSegment],
) -> Iterator[Finding]:
    if history is not None:
        known = {one.id for one in listed}
        for one in sorted(objects.keys() - known, key=lambda one: (objects[one].start_offset, one.int)):
            yield unlisted(objects[one], deleted=RemoteLogSegmentId(partition, one) in history.events)


def _rows(
    partition: TopicIdPartition,
    listed: Sequence[RemoteLogSegmentMetadata],
    objects: Mapping[UUID, StoredSegment],
    *,
    has_metadata: bool,
) -> Iterator[Row]:
    by_id = {one.id: one for one in listed}
    for one in [*by_id, *(objects.keys() - by_id.keys())]:
        segment, stored = by_id.get(one), objects.get(one)
        start = segment.start_offset if segment is not None else stored.start_offset if stored is not None else 0
        yield {
            "topic": partition.topic,
            "topicId": to_text(partition.topic_id),
            "partition": partition.partition,
            "segmentId": to_text(one),
            "startOffset": int(start),
            "endOffset": None if segment is None else int(segment.end_offset),
            "state": None if segment is None else segment.state.name,
            "newest": None if segment is None else microseconds(segment.max_timestamp_ms),
            "copied": None if segment is None else microseconds(segment.event_timestamp_ms),
            "modified": None if stored is None else microseconds(stored.modified_ms),
            "size": 0 if stored is None else sum(stored.objects.values()),
            "objects": None if stored is None else list(stored.objects.items()),
            "listed": has_metadata,
            "metadata": None if segment is None else serialize(segment),
        }
