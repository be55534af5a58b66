"""The bytes that identify a partition in records of the metadata topic, read without decoding the rest."""

from __future__ import annotations

from typing import Final

from milena.protocol.schemas.primitives import Data, Writer
from milena.tiered.segments.segment_metadata import TopicIdPartition

_OF_SEGMENTS: Final = (b"\x01\x00\x00", b"\x01\x01\x00")
"""The first bytes of records about segments: frame version, type, version. The partition follows."""
_ID_AND_NUMBER: Final = 16 + 4


def partition_bytes(partition: TopicIdPartition) -> bytes:
    """Encode a partition as in records."""
    out = Writer()
    out.compact_string(partition.topic)
    out.uuid(partition.topic_id)
    out.int32(partition.partition)
    return bytes(out)


def peek_partition(value: Data | None) -> bytes | None:
    """Return the partition of a record about a segment, encoded as by ``partition_bytes``, without decoding the rest.

    None for other records, and for records damaged before that field. Most records concern partitions of other brokers;
    this takes a hundredth of the time of ``deserialize``.
    """
    if value is None or len(value) < 5 or bytes(value[:3]) not in _OF_SEGMENTS:
        return None
    if value[3] < 0x80:
        end = 3 + value[3] + _ID_AND_NUMBER
    else:
        end = 4 + (value[3] & 0x7F | value[4] << 7) + _ID_AND_NUMBER
    return bytes(value[3:end]) if end <= len(value) else None
