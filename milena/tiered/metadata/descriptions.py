"""A segment's own metadata, kept beside it in the tier: what its files do not tell where the metadata topic is lost.

Segments of compacted logs have one: the offsets that they stand for, how far the log was cleaned, what they replace, in
which leader epoch. It is the record that announced the copy (RemoteLogSegmentMetadataRecord with Milena's tagged
fields), behind its CRC-32C.
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
    """A description that cannot be used; the text says why."""


def description_of(metadata: RemoteLogSegmentMetadata) -> bytes:
    """``metadata`` as announced."""
    record = serialize(metadata)
    return _CRC.pack(crc32c(record)) + record


def described(data: bytes, segment: RemoteLogSegmentId) -> RemoteLogSegmentMetadata:
    """What a description says of this segment. Raises CorruptDescription."""
    if len(data) <= _CRC.size or crc32c(data[_CRC.size :]) != _CRC.unpack_from(data)[0]:
        raise CorruptDescription("the checksum is wrong")
    try:
        found = deserialize(data[_CRC.size :], Offset(0))
    except UnreadableRemoteLogRecord as error:
        raise CorruptDescription(str(error)) from None
    if not isinstance(found, RemoteLogSegmentMetadata) or found.segment_id != segment:
        raise CorruptDescription("it is of something else")
    return found
