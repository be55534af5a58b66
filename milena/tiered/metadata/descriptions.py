"""A segment's description: its metadata as an object in the tier, for the case that the metadata topic is lost.

Only segments of compacted logs have one, because their files do not show the offset range, the cleaner-offset map, the
replaced segments and the leader epoch. Format: CRC-32C, then the record that announced the copy
(RemoteLogSegmentMetadataRecord with Milena's tagged fields).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from milena.protocol.records.crc import crc32c
from milena.protocol.records.remote_log_records import UnreadableRemoteLogRecord
from milena.protocol.types import Offset
from milena.tiered.metadata.serialization import deserialize, serialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata

_CRC: Final = Struct(">I")


class CorruptDescription(ValueError):
    """A description cannot be used; the message has the reason."""


def description_of(metadata: RemoteLogSegmentMetadata) -> bytes:
    """Encode a description. ``metadata``: the segment as announced by COPY_SEGMENT_STARTED."""
    record = serialize(metadata)
    return _CRC.pack(crc32c(record)) + record


def described(data: bytes, segment: RemoteLogSegmentId) -> RemoteLogSegmentMetadata:
    """Decode the description of ``segment``. Raises CorruptDescription, also if it describes another segment."""
    if len(data) <= _CRC.size or crc32c(data[_CRC.size :]) != _CRC.unpack_from(data)[0]:
        raise CorruptDescription("the checksum is wrong")
    try:
        found = deserialize(data[_CRC.size :], Offset(0))
    except UnreadableRemoteLogRecord as error:
        raise CorruptDescription(str(error)) from None
    if not isinstance(found, RemoteLogSegmentMetadata) or found.segment_id != segment:
        raise CorruptDescription("it describes another segment")
    return found
