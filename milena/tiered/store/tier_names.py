"""Names of objects in the tier, as in Kafka's LocalTieredStorage (docs/kafka-semantics.md: Layout of the folder tier).

``kafka-tiered-storage/<topic>-<partition>-<topic id>/<20 digits of the start offset>-<segment id><suffix>``, ids as 22
characters of URL-safe base64. Names only; both adapters use them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.uuids import from_text, to_text
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType, SegmentFiles

ROOT: Final = "kafka-tiered-storage"
COPYING: Final = "milena-copying"
"""Beside ROOT, with a folder for each broker: unfinished copies. They must not be below ROOT, because Kafka treats any
file there as part of a segment."""
DESCRIPTIONS: Final = "milena-segments"
"""Beside ROOT, for the same reason: the descriptions of segments of compacted logs, in folders and under names like
those of the segments' objects."""
WORK_ORDERS: Final = "milena-work"
"""Beside ROOT: work orders of Milena before 2026-11-25 (docs/decisions/2026-11-25-no-work-orders.md)."""
DESCRIPTION: Final = ".metadata"
SUFFIXES: Final = (*(index.value for index in IndexType), LOG_SUFFIX)
"""In the order in which objects appear; they are deleted in the opposite one."""

_OBJECT: Final = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})(\.[a-z_]+)")
_FOLDER: Final = re.compile(r"(.+)-(\d+)-([A-Za-z0-9_-]{22})")


class ObjectName(NamedTuple):
    """The parts of an object's name."""

    start_offset: int
    id: UUID
    suffix: str


def partition_folder(partition: TopicIdPartition) -> str:
    """Return the folder of a partition, relative to the tier's folder."""
    return f"{ROOT}/{partition.topic}-{partition.partition}-{to_text(partition.topic_id)}"


def object_path(metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
    """Return the path of a segment's object, relative to the tier's folder."""
    return f"{partition_folder(metadata.partition)}/{object_name(metadata.start_offset, metadata.id, suffix)}"


def description_folder(partition: TopicIdPartition) -> str:
    """Return the folder of a partition's descriptions, relative to the tier's folder."""
    return f"{DESCRIPTIONS}/{partition_folder(partition).removeprefix(ROOT + '/')}"


def description_path(partition: TopicIdPartition, start_offset: int, segment: UUID) -> str:
    """Return the path of a segment's description, relative to the tier's folder."""
    return f"{description_folder(partition)}/{object_name(start_offset, segment, DESCRIPTION)}"


def parse_description(name: str) -> tuple[int, UUID] | None:
    """Return the start offset and the id of the segment; None if the file is not a description."""
    match = _OBJECT.fullmatch(name)
    if match is None or match[3] != DESCRIPTION:
        return None
    segment = _uuid(match[2])
    return None if segment is None else (int(match[1]), segment)


def object_name(start_offset: int, segment: UUID, suffix: str) -> str:
    return f"{start_offset:020d}-{to_text(segment)}{suffix}"


def parse_folder(name: str) -> TopicIdPartition | None:
    """Return the partition of a folder; None if the folder is not a partition's."""
    match = _FOLDER.fullmatch(name)
    if match is None:
        return None
    topic_id = _uuid(match[3])
    return None if topic_id is None else TopicIdPartition(topic_id, match[1], int(match[2]))


def parse_object(name: str) -> ObjectName | None:
    """Return the parts of an object's name; None if the file is not an object of a segment."""
    match = _OBJECT.fullmatch(name)
    if match is None or match[3] not in SUFFIXES:
        return None
    segment = _uuid(match[2])
    return None if segment is None else ObjectName(int(match[1]), segment, match[3])


def sources(files: SegmentFiles) -> list[tuple[str, str | bytes]]:
    """Return suffix and path or contents of a segment's objects, in the order in which they may appear."""
    found: dict[str, str | bytes | None] = {
        IndexType.OFFSET.value: files.offset_index,
        IndexType.TIMESTAMP.value: files.time_index,
        IndexType.PRODUCER_SNAPSHOT.value: files.producer_snapshot,
        IndexType.TRANSACTION.value: files.txn_index,
        IndexType.LEADER_EPOCH.value: files.leader_epochs,
        LOG_SUFFIX: files.log,
    }
    ordered = ((suffix, found[suffix]) for suffix in SUFFIXES)
    return [(suffix, source) for suffix, source in ordered if source is not None]


def _uuid(text: str) -> UUID | None:
    try:
        return from_text(text)
    except ValueError:
        return None
