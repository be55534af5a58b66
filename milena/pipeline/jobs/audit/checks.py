"""The checks of an audit, which run in Spark's tasks: read all objects of a segment and compare them with its metadata,
and check the segments of a partition against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from milena.pipeline.jobs.audit.inventory import SEGMENTS, PartitionFacts
from milena.pipeline.jobs.rows import Row, as_arrow, microseconds
from milena.pipeline.locations import storage_of
from milena.pipeline.loops import LoopThread
from milena.protocol.types import Offset
from milena.protocol.uuids import from_text, to_text
from milena.tiered.metadata.serialization import deserialize, serialize
from milena.tiered.offline.epoch_history import lineage_of_tier
from milena.tiered.offline.findings import Finding
from milena.tiered.offline.lineage_checks import check_cleanings, check_lineage
from milena.tiered.offline.verification import check_files, check_segment
from milena.tiered.reading.log_contents import LogContents, read_contents
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import LOG_SUFFIX, RemoteStorage, RemoteStorageError, StoredSegment

if TYPE_CHECKING:
    import pyarrow as pa

FOUND: Final = StructType(
    [StructField("kind", StringType()), StructField("what", StringType()), StructField("harmless", BooleanType())]
)
CHECKED: Final = StructType(
    [
        *SEGMENTS.fields,
        StructField("batches", LongType()),
        StructField("records", LongType()),
        StructField("codecs", ArrayType(StringType())),
        StructField("epochs", ArrayType(IntegerType())),
        StructField("oldest", TimestampType()),
        StructField("found", ArrayType(FOUND)),
    ]
)
"""CHECKED: a row of SEGMENTS, with the contents of the segment's log in the columns ``batches`` to ``oldest`` (null if
the log was not read). ``oldest``: the lowest timestamp of a batch's first record."""
FINDINGS: Final = StructType(
    [
        StructField("kind", StringType()),
        StructField("topic", StringType()),
        StructField("topicId", StringType()),
        StructField("partition", IntegerType()),
        StructField("segmentId", StringType()),
        StructField("what", StringType()),
        StructField("harmless", BooleanType()),
    ]
)
"""FINDINGS: the findings of an audit. ``topic`` to ``segmentId`` are null if the finding is not about a topic, a
partition or a segment."""


@dataclass(frozen=True, slots=True)
class SegmentChecks:
    """The function for ``mapInArrow`` that converts rows of SEGMENTS to rows of CHECKED. ``newest_ms``: the timestamp
    of the newest event in the metadata topic."""

    tier: str
    storage_options: str
    newest_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with LoopThread() as loop:
            storage = storage_of(loop.runtime, self.tier, self.storage_options)
            loop.at_end(storage.close)
            for batch in batches:
                for row in batch.to_pylist():  # row by row: reading a segment takes far longer than converting a row
                    yield as_arrow([loop.run(checked(storage, row, self.newest_ms))], CHECKED)


async def checked(storage: RemoteStorage, row: Row, newest_ms: int) -> Row:
    """Return a row of CHECKED: the row of SEGMENTS with the contents of its log and the findings."""
    segment, stored = segment_of(row), stored_of(row)
    contents: LogContents | None = None
    found: list[Finding] = []
    if segment is not None:
        if stored is not None and stored.objects.get(LOG_SUFFIX, -1) >= segment.size:
            try:
                contents = await read_contents(storage, segment)
            except RemoteStorageError:
                contents = None  # check_segment reports it
        found = await check_segment(storage, segment, stored, newest_ms, contents)
    elif stored is not None and not row["listed"]:
        found, segment, contents = await check_files(storage, stored)
        if segment is not None:
            row = row | {
                "startOffset": segment.start_offset,
                "endOffset": segment.end_offset,
                "newest": microseconds(segment.max_timestamp_ms),
                "metadata": serialize(segment),
            }
    known = None if contents is None else contents
    return row | {
        "batches": None if known is None else known.batches,
        "records": None if known is None else known.records,
        "codecs": None if known is None else sorted(known.codecs),
        "epochs": None if known is None else sorted({one.epoch for one in known.epochs}),
        "oldest": None if known is None or known.min_timestamp_ms is None else microseconds(known.min_timestamp_ms),
        "found": [{"kind": one.kind, "what": one.what, "harmless": one.harmless} for one in found],
    }


def segment_of(row: Row) -> RemoteLogSegmentMetadata | None:
    """Return the segment's metadata in a row of SEGMENTS; None if it has none."""
    if row["metadata"] is None:
        return None
    event = deserialize(row["metadata"], Offset(0))
    assert isinstance(event, RemoteLogSegmentMetadata)
    return event


def stored_of(row: Row) -> StoredSegment | None:
    """Return the segment's objects in a row of SEGMENTS; None if it has none."""
    if row["objects"] is None:
        return None
    partition = TopicIdPartition(from_text(row["topicId"]), row["topic"], row["partition"])
    segment_id = RemoteLogSegmentId(partition, from_text(row["segmentId"]))
    return StoredSegment(segment_id, row["startOffset"], dict(row["objects"]), 0)


@dataclass(frozen=True, slots=True)
class LineageChecks:
    """The function for ``applyInArrow`` that converts the rows of CHECKED of one topic id and partition to rows of
    FINDINGS."""

    tier: str
    storage_options: str
    facts: Mapping[tuple[str, int], PartitionFacts]

    def __call__(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        rows = table.select(["topicId", "partition", "metadata", "listed"]).to_pylist()
        facts = self.facts[rows[0]["topicId"], rows[0]["partition"]]
        segments = [one for one in map(segment_of, rows) if one is not None]
        lineage = facts.lineage
        if lineage is None and segments:
            with LoopThread() as loop:
                storage = storage_of(loop.runtime, self.tier, self.storage_options)
                loop.at_end(storage.close)
                lineage = loop.run(lineage_of_tier(storage, segments))
        found: list[Finding] = []
        if segments:
            cleanings = Cleanings.of(segments) if facts.cleanings is None else facts.cleanings
            partition = segments[0].segment_id.partition
            segments.sort(key=lambda one: (one.start_offset, one.end_offset, one.id.int))
            found += check_cleanings(partition, segments, cleanings)
            if lineage is not None:
                found += check_lineage(partition, segments, cleanings, lineage, facts.deleted)
        return pa.Table.from_batches([as_arrow(rows_of(found), FINDINGS)])


def rows_of(findings: Iterable[Finding]) -> list[Row]:
    """Return findings as rows of FINDINGS."""
    return [_row(one) for one in findings]


def _row(finding: Finding) -> Row:
    partition = finding.partition
    return {
        "kind": finding.kind,
        "topic": None if partition is None else partition.topic,
        "topicId": None if partition is None else to_text(partition.topic_id),
        "partition": None if partition is None else partition.partition,
        "segmentId": _text(finding.segment),
        "what": finding.what,
        "harmless": finding.harmless,
    }


def _text(one: UUID | None) -> str | None:
    return None if one is None else to_text(one)
