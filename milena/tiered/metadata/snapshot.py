"""Snapshot file of one partition's cache, so that a restart need not read the metadata topic from its start.

Format: version int16 (2), CRC-32C uint32 of everything after it, id of the metadata topic, id of the partition's topic,
its number int32, next offset int64 (the first of the metadata partition that is not included), epoch of the fence
int32, leader epoch int32 and first dirty offset int64 of the last finished cleaning (-1 and -1 for none), number of
epochs int32, of cleaner-offset maps int32, of maps of deleted segments int32, of replaced segments int32, of segments
int32. For each epoch: epoch int32, highest offset int64. For each map: number of entries int32, entries (epoch int32,
offset int64, -1 for none). For each map of a deleted segment: its index int32. For each replaced segment: id, number of
maps int32, indexes of the maps int32. For each segment: id, start int64, end int64, broker int32, maximum timestamp
int64, event timestamp int64, size int32, state int8, flags int8 (1: no aborted transactions, 2: was copied, 4: a former
leader may still delete it), leader epoch int32, index of its map int32 (-1 for none), number of segments that it
replaces int32, number of epochs int16, length of the custom metadata int32 (-1 for none), ids of those that it
replaces, epochs (int32, int64), custom metadata. Version 1 had no fence, no maps and only the first flag.

The file is only a cache, and not synced: if it is missing, damaged or of another topic, the topic is read instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final
from uuid import UUID

from milena.protocol.records.crc import crc32c
from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.cleaner_offsets import NOT_CLEANED, CleanedTo, CleanerOffset, CleanerOffsets
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

FILE_NAME: Final = "remote-log-metadata-cache"
_VERSION: Final = 2
_PREFIX: Final = Struct(">hI")
_HEADER: Final = Struct(">16s16siqiiqiiiii")
_SEGMENT: Final = Struct(">qqiqqibbiiihi")
_EPOCH: Final = Struct(">iq")
_NUMBER: Final = Struct(">i")
_ID: Final = 16
_NO_TXN, _COPIED, _DOUBTFUL = 1, 2, 4
_NOT_CLEANED: Final = (-1, -1)


class CorruptRemoteLogSnapshot(ValueError):
    """A file that is not a valid snapshot of this partition."""


Replaced = tuple[UUID, tuple[CleanerOffsets, ...]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cache with everything before offset ``next_offset`` of its partition of the metadata topic ``topic_id``."""

    topic_id: UUID | None
    next_offset: Offset
    segments: Sequence[RemoteLogSegmentMetadata]
    highest: Mapping[LeaderEpoch, Offset]
    fence_epoch: LeaderEpoch = UNFENCED
    deleted: Sequence[CleanerOffsets] = ()
    """The maps of deleted segments."""
    replaced: Sequence[Replaced] = ()
    """Segments that were replaced, and the maps of the segments that replaced them."""
    cleaned_to: CleanedTo | None = None

    @classmethod
    def of(cls, cache: RemoteLogMetadataCache, topic_id: UUID | None, next_offset: Offset) -> Snapshot:
        cleanings = cache.cleanings
        replaced = [(segment, tuple(sorted(maps, key=str))) for segment, maps in cleanings.replaced.items()]
        return cls(
            topic_id,
            next_offset,
            cache.segments(),
            cache.highest_offsets(),
            cache.fence_epoch,
            tuple(cleanings.deleted),
            tuple(replaced),
            cache.cleaned_to,
        )

    def cache(self) -> RemoteLogMetadataCache:
        cleanings = Cleanings(self.deleted, self.replaced)
        return RemoteLogMetadataCache.restored(
            self.segments, self.highest, self.fence_epoch, cleanings, self.cleaned_to, replaced_are_known=True
        )


def encode_snapshot(partition: TopicIdPartition, snapshot: Snapshot) -> bytes:
    maps = _maps(snapshot)
    cleaned_by, cleaned_to = snapshot.cleaned_to or _NOT_CLEANED
    body = bytearray(
        _HEADER.pack(
            (snapshot.topic_id or ZERO_UUID).bytes,
            partition.topic_id.bytes,
            partition.partition,
            snapshot.next_offset,
            snapshot.fence_epoch,
            cleaned_by,
            cleaned_to,
            len(snapshot.highest),
            len(maps),
            len(snapshot.deleted),
            len(snapshot.replaced),
            len(snapshot.segments),
        )
    )
    for epoch, offset in snapshot.highest.items():
        body += _EPOCH.pack(epoch, offset)
    for offsets in maps:
        body += _NUMBER.pack(len(offsets))
        for entry in offsets:
            body += _EPOCH.pack(entry.epoch, -1 if entry.offset is None else entry.offset)
    for offsets in snapshot.deleted:
        body += _NUMBER.pack(maps[offsets])
    for segment_id, by in snapshot.replaced:
        body += segment_id.bytes + _NUMBER.pack(len(by))
        for offsets in by:
            body += _NUMBER.pack(maps[offsets])
    for segment in snapshot.segments:
        body += _encoded(segment, maps)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def _maps(snapshot: Snapshot) -> dict[CleanerOffsets, int]:
    """All maps, each once, and the index of each: segments of one cleaning share one."""
    maps: dict[CleanerOffsets, int] = {}
    every: Iterable[CleanerOffsets] = (
        *snapshot.deleted,
        *(offsets for _, by in snapshot.replaced for offsets in by),
        *(segment.cleaned for segment in snapshot.segments if segment.cleaned),
    )
    for offsets in every:
        maps.setdefault(offsets, len(maps))
    return maps


def _encoded(segment: RemoteLogSegmentMetadata, maps: Mapping[CleanerOffsets, int]) -> bytes:
    custom = segment.custom_metadata
    flags = _NO_TXN * segment.txn_index_empty | _COPIED * segment.copied | _DOUBTFUL * segment.at_risk
    out = bytearray(segment.id.bytes)
    out += _SEGMENT.pack(
        segment.start_offset,
        segment.end_offset,
        segment.broker_id,
        segment.max_timestamp_ms,
        segment.event_timestamp_ms,
        segment.size,
        segment.state,
        flags,
        segment.leader_epoch,
        maps[segment.cleaned] if segment.cleaned else -1,
        len(segment.replaces),
        len(segment.epochs),
        -1 if custom is None else len(custom),
    )
    for source in segment.replaces:
        out += source.bytes
    for entry in segment.epochs:
        out += _EPOCH.pack(*entry)
    return bytes(out + (custom or b""))


def decode_snapshot(data: bytes, partition: TopicIdPartition) -> Snapshot:
    """Decode the snapshot of a partition. Raises CorruptRemoteLogSnapshot."""
    try:
        version, crc = _PREFIX.unpack_from(data)
        if version != _VERSION:
            raise CorruptRemoteLogSnapshot(f"version {version} is not {_VERSION}")
        body = data[_PREFIX.size :]
        if crc32c(body) != crc:
            raise CorruptRemoteLogSnapshot(f"the checksum is not {crc}")
        topic_id, of_topic, number, next_offset, fence_epoch, by, cleaned_to, *counts = _HEADER.unpack_from(body)
        if of_topic != partition.topic_id.bytes or number != partition.partition:
            raise CorruptRemoteLogSnapshot(f"it belongs to partition {number} of topic {UUID(bytes=of_topic)}")
        source = _Source(body, _HEADER.size, partition)
        epochs, maps, deleted, replaced, segments = counts
        highest = {entry.epoch: entry.start for entry in source.epochs(epochs)}
        source.maps = [source.offsets() for _ in range(maps)]
        return Snapshot(
            None if topic_id == ZERO_UUID.bytes else UUID(bytes=topic_id),
            Offset(next_offset),
            highest=highest,
            fence_epoch=LeaderEpoch(fence_epoch),
            cleaned_to=None if cleaned_to < 0 else CleanedTo(LeaderEpoch(by), Offset(cleaned_to)),
            deleted=tuple([source.map() for _ in range(deleted)]),
            replaced=tuple([source.replaced() for _ in range(replaced)]),
            segments=[source.segment() for _ in range(segments)],
        )
    except StructError as reason:
        raise CorruptRemoteLogSnapshot(f"{len(data)} bytes are not a snapshot") from reason


class _Source:
    """Reads the parts of a snapshot in their order. Raises struct.error at its end."""

    def __init__(self, body: bytes, position: int, partition: TopicIdPartition) -> None:
        self.maps: list[CleanerOffsets] = []
        self._entries: dict[CleanerOffset, CleanerOffset] = {}
        self._body = body
        self._position = position
        self._partition = partition
        self._states = {state.value: state for state in RemoteLogSegmentState}

    def _next(self, what: Struct) -> tuple[int, ...]:
        found: tuple[int, ...] = what.unpack_from(self._body, self._position)
        self._position += what.size
        return found

    def epochs(self, count: int) -> list[EpochEntry]:
        entries = (self._next(_EPOCH) for _ in range(count))
        return [EpochEntry(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in entries]

    def offsets(self) -> CleanerOffsets:
        (count,) = self._next(_NUMBER)
        entries = [CleanerOffset(epoch, None if offset < 0 else offset) for epoch, offset in self.epochs(count)]
        return tuple([self._entries.setdefault(entry, entry) for entry in entries])  # one map continues another

    def map(self) -> CleanerOffsets:
        (index,) = self._next(_NUMBER)
        return self.maps[index]

    def replaced(self) -> Replaced:
        segment_id = self._id()
        (count,) = self._next(_NUMBER)
        return segment_id, tuple(self.map() for _ in range(count))

    def segment(self) -> RemoteLogSegmentMetadata:
        segment_id = self._id()
        start, end, broker, newest, event, size, state, flags, *more = self._next(_SEGMENT)
        leader_epoch, cleaned, replaces, epochs, custom = more
        sources = tuple(self._id() for _ in range(replaces))
        entries = tuple(self.epochs(epochs))
        past = self._position + max(custom, 0)
        custom_metadata = None if custom < 0 else self._body[self._position : past]
        self._position = past
        return RemoteLogSegmentMetadata(
            RemoteLogSegmentId(self._partition, segment_id),
            Offset(start),
            Offset(end),
            NodeId(broker),
            newest,
            event,
            entries,
            size,
            custom_metadata,
            self._states[state],
            bool(flags & _NO_TXN),
            LeaderEpoch(leader_epoch),
            NOT_CLEANED if cleaned < 0 else self.maps[cleaned],
            sources,
            bool(flags & _COPIED),
            bool(flags & _DOUBTFUL),
        )

    def _id(self) -> UUID:
        first = self._position
        self._position += _ID
        return UUID(bytes=self._body[first : self._position])
