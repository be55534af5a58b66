"""Snapshot file of one partition's cache, so that a restart need not read the metadata topic from its start.

Format: version int16 (1), CRC-32C uint32 of everything after it, id of the metadata topic, id of the partition's topic,
its number int32, next offset int64 (the first of the metadata partition that is not included), number of epochs int32,
number of segments int32. For each epoch: epoch int32, highest offset int64. For each segment: id, start int64, end
int64, broker int32, maximum timestamp int64, event timestamp int64, size int32, state int8, 1 for no aborted
transactions int8, number of epochs int16, length of the custom metadata int32 (-1 for none), epochs (int32, int64),
custom metadata.

The file is a copy: if it is missing, damaged or of another topic, the topic is read instead. So it is not synced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final
from uuid import UUID

from milena.protocol.records.crc import crc32c
from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

FILE_NAME: Final = "remote-log-metadata-cache"
_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_HEADER: Final = Struct(">16s16siqii")
_SEGMENT: Final = Struct(">16sqqiqqibbhi")
_EPOCH: Final = Struct(">iq")


class CorruptRemoteLogSnapshot(ValueError):
    """A file that is not a valid snapshot of this partition."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cache with everything before offset ``next_offset`` of its partition of the metadata topic ``topic_id``."""

    topic_id: UUID | None
    next_offset: Offset
    segments: Sequence[RemoteLogSegmentMetadata]
    highest: Mapping[LeaderEpoch, Offset]

    def cache(self) -> RemoteLogMetadataCache:
        return RemoteLogMetadataCache.restored(self.segments, self.highest)


def encode_snapshot(partition: TopicIdPartition, snapshot: Snapshot) -> bytes:
    body = bytearray(
        _HEADER.pack(
            (snapshot.topic_id or ZERO_UUID).bytes,
            partition.topic_id.bytes,
            partition.partition,
            snapshot.next_offset,
            len(snapshot.highest),
            len(snapshot.segments),
        )
    )
    for epoch, offset in snapshot.highest.items():
        body += _EPOCH.pack(epoch, offset)
    for segment in snapshot.segments:
        custom = segment.custom_metadata
        body += _SEGMENT.pack(
            segment.id.bytes,
            segment.start_offset,
            segment.end_offset,
            segment.broker_id,
            segment.max_timestamp_ms,
            segment.event_timestamp_ms,
            segment.size,
            segment.state,
            segment.txn_index_empty,
            len(segment.epochs),
            -1 if custom is None else len(custom),
        )
        for entry in segment.epochs:
            body += _EPOCH.pack(*entry)
        body += custom or b""
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, partition: TopicIdPartition) -> Snapshot:
    """Raises CorruptRemoteLogSnapshot."""
    try:
        version, crc = _PREFIX.unpack_from(data)
        if version != _VERSION:
            raise CorruptRemoteLogSnapshot(f"version {version} is not {_VERSION}")
        body = data[_PREFIX.size :]
        if crc32c(body) != crc:
            raise CorruptRemoteLogSnapshot(f"the checksum is not {crc}")
        topic_id, of_topic, number, next_offset, epochs, segments = _HEADER.unpack_from(body)
        if of_topic != partition.topic_id.bytes or number != partition.partition:
            raise CorruptRemoteLogSnapshot(f"it belongs to partition {number} of topic {UUID(bytes=of_topic)}")
        end = _HEADER.size + epochs * _EPOCH.size
        highest = {LeaderEpoch(epoch): Offset(at) for epoch, at in _EPOCH.iter_unpack(body[_HEADER.size : end])}
        return Snapshot(
            None if topic_id == ZERO_UUID.bytes else UUID(bytes=topic_id),
            Offset(next_offset),
            _segments(body, end, segments, partition),
            highest,
        )
    except StructError as reason:
        raise CorruptRemoteLogSnapshot(f"{len(data)} bytes are not a snapshot") from reason


def _segments(body: bytes, position: int, count: int, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
    states = {state.value: state for state in RemoteLogSegmentState}
    found = []
    for _ in range(count):
        segment_id, start, end, broker, newest, event, size, state, no_txn, epochs, custom = _SEGMENT.unpack_from(
            body, position
        )
        position += _SEGMENT.size
        entries = []
        for _ in range(epochs):
            epoch, offset = _EPOCH.unpack_from(body, position)
            entries.append(EpochEntry(LeaderEpoch(epoch), Offset(offset)))
            position += _EPOCH.size
        past = position + max(custom, 0)
        found.append(
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(partition, UUID(bytes=segment_id)),
                Offset(start),
                Offset(end),
                NodeId(broker),
                newest,
                event,
                tuple(entries),
                size,
                None if custom < 0 else body[position:past],
                states[state],
                bool(no_txn),
            )
        )
        position = past
    return found
