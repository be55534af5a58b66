"""Decodes millions of records of the metadata topic into caches of segments, for plans of large reads.

Nearly all records have one of two plain forms: a segment with one leader epoch, and an update of its state. These are
read by position and kept as tuples until the cache is needed, so that a segment that was deleted before never becomes
an object. From the first record of a partition in another form on, and after its cache was used, its records go through
``deserialize`` and ``RemoteLogMetadataCache.apply``. The result is the same (tests/unit/tiered/test_event_decoder.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.serialization import MetadataEvent, deserialize
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    allowed,
)

_SEGMENT: Final = Struct(">B16sBqqiqqBiqBiBb")
"""The fields after the partition: tags, id, tags, offsets, broker, times, number of epochs + 1, the first epoch, its
tags, size, custom metadata (0: null), state. Tags follow."""
_UPDATE: Final = Struct(">B16sBiqBb")
"""The fields after the partition: tags, id, tags, broker, time, custom metadata, state. Tags follow."""
_NO_TAGS: Final = b"\0"
_NO_TXN: Final = b"\1\0\1\1"
"""The tagged field for a segment without aborted transactions."""
_EPOCH_ALONE: Final = b"\1\x90\x4e\4"
_NO_TXN_AND_EPOCH: Final = b"\2\0\1\1\x90\x4e\4"
"""The same and the header of the tagged field 10000, before the author's leader epoch."""
_HEAD: Final = 3
"""Bytes before the partition: frame version, type, version. The next one is the length of the topic's name + 1."""
_REST: Final = 16 + 4
_NO_ID: Final = bytes(16)
_STARTED, _COPIED, _, _DELETED = RemoteLogSegmentState
_STATES: Final = tuple(RemoteLogSegmentState)


class _Plain(NamedTuple):
    """A segment with the fields of ``RemoteLogSegmentMetadata``."""

    start: int
    end: int
    broker: int
    newest: int
    event_ms: int
    epoch: int
    epoch_start: int
    size: int
    state: RemoteLogSegmentState
    no_txn: bool
    leader_epoch: int
    copied: bool


class PartitionEvents:
    """The events of one partition of a topic."""

    __slots__ = ("_cache", "_fence_epoch", "_highest", "_plain", "leader", "partition")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.leader: NodeId | None = None
        """The broker that published in the highest leader epoch; None if no event has a leader epoch."""
        self._plain: dict[bytes, _Plain] = {}
        self._highest: dict[LeaderEpoch, Offset] = {}
        self._fence_epoch: LeaderEpoch = UNFENCED
        self._cache: RemoteLogMetadataCache | None = None

    @property
    def cache(self) -> RemoteLogMetadataCache:
        """Return the cache that results from the events. It is the same object each time; later events change it."""
        if self._cache is None:
            segments = sorted(self._segments(), key=lambda one: one.start_offset)
            self._cache = RemoteLogMetadataCache.restored(segments, self._highest, self._fence_epoch)
            self._plain, self._highest = {}, {}
        return self._cache

    def _segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        for id_bytes, one in self._plain.items():
            yield RemoteLogSegmentMetadata(
                RemoteLogSegmentId(self.partition, UUID(bytes=id_bytes)),
                Offset(one.start),
                Offset(one.end),
                NodeId(one.broker),
                one.newest,
                one.event_ms,
                (EpochEntry(LeaderEpoch(one.epoch), Offset(one.epoch_start)),),
                one.size,
                None,
                one.state,
                one.no_txn,
                LeaderEpoch(one.leader_epoch),
                copied=one.copied,
            )

    def take(self, event: MetadataEvent) -> None:
        """Apply any event."""
        cache = self.cache
        cache.apply(event)
        if event.leader_epoch == cache.fence_epoch != UNFENCED:
            self.leader = event.broker_id

    def take_segment(self, value: bytes, at: int) -> bool:
        """Apply the record of a new segment; its partition ends at ``at``. Returns False if it has another form."""
        if self._cache is not None or len(value) <= at + _SEGMENT.size:
            return False
        fields = _SEGMENT.unpack_from(value, at)
        tag, id_bytes, more, start, end, broker, newest, event_ms, count, epoch, first, last, size, custom, state = (
            fields
        )
        if tag or more or last or count != 2 or custom or state or not 0 <= start <= end:
            return False
        if id_bytes in self._plain or id_bytes == _NO_ID:
            return False
        tail = value[at + _SEGMENT.size :]
        leader_epoch: int = UNFENCED
        if tail[:-4] == _NO_TXN_AND_EPOCH or tail[:-4] == _EPOCH_ALONE:
            leader_epoch = int.from_bytes(tail[-4:], signed=True)
        elif tail not in {_NO_TXN, _NO_TAGS}:
            return False
        if self._is_fenced(leader_epoch, broker):
            return True
        no_txn = tail[:4] == _NO_TXN or tail[:7] == _NO_TXN_AND_EPOCH
        made = start, end, broker, newest, event_ms, epoch, first, size, _STARTED, no_txn, leader_epoch, False
        self._plain[id_bytes] = _Plain._make(made)
        return True

    def take_update(self, value: bytes, at: int) -> bool:
        """Apply the record of a later state of a segment, or of a leader epoch fence; its partition ends at ``at``.
        Returns False if it has another form."""
        if self._cache is not None or len(value) <= at + _UPDATE.size:
            return False
        tag, id_bytes, more, broker, event_ms, custom, number = _UPDATE.unpack_from(value, at)
        # Tagged fields, custom metadata or an unknown state: `deserialize` decodes these.
        if tag or more or custom or not 0 <= number <= _DELETED:
            return False
        tail = value[at + _UPDATE.size :]
        leader_epoch: int = UNFENCED
        if tail[:-4] == _EPOCH_ALONE:
            leader_epoch = int.from_bytes(tail[-4:], signed=True)
        elif tail != _NO_TAGS:
            return False
        if self._is_fenced(leader_epoch, broker):
            return True
        known = self._plain.get(id_bytes)
        state = _STATES[number]
        # A fence names no segment; updates of unknown segments and invalid transitions are ignored, as by the cache.
        if known is None or not allowed(known.state, state):
            return True
        if state is _DELETED:
            del self._plain[id_bytes]
            return True
        if state is _COPIED and known.end >= max(known.start, known.epoch_start):
            of = LeaderEpoch(known.epoch)
            self._highest[of] = max(self._highest.get(of, Offset(-1)), Offset(known.end))
        start, end, _, newest, _, epoch, first, size, before, no_txn, _, copied = known
        was_copied = copied or before is _COPIED
        made = start, end, broker, newest, event_ms, epoch, first, size, state, no_txn, leader_epoch, was_copied
        self._plain[id_bytes] = _Plain._make(made)
        return True

    def _is_fenced(self, leader_epoch: int, broker: int) -> bool:
        """Whether an event is fenced; otherwise update the fence with it."""
        if UNFENCED < leader_epoch < self._fence_epoch:
            return True
        if leader_epoch > UNFENCED:
            self._fence_epoch = LeaderEpoch(leader_epoch)
            self.leader = NodeId(broker)
        return False


class EventDecoder:
    """Decodes the records of the metadata topic. ``wanted``: returns whether a topic's records are decoded; of other
    topics, only the existing partitions are recorded."""

    def __init__(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        self.partitions: dict[TopicIdPartition, PartitionEvents] = {}
        self.unwanted: set[TopicIdPartition] = set()
        self._wanted = wanted
        self._heads: dict[bytes, Callable[[bytes, int], bool] | None] = {}
        """The function that applies a record, by the record's first bytes up to and including the partition; None for a
        partition that is not wanted."""
        self._shared: dict[TopicIdPartition, TopicIdPartition] = {}

    def applier(self, number: int) -> Callable[[bytes | None, Offset], None]:
        """Return ``take`` for every partition of the metadata topic: all records of a partition are in the same one."""
        return self.take

    def take(self, value: bytes | None, offset: Offset) -> None:
        """Apply the record at ``offset``. Of an unwanted partition only the beginning of a record is read. Raises
        UnreadableRemoteLogRecord."""
        if value is not None and len(value) > _HEAD:
            at = _HEAD + value[_HEAD] + _REST
            head = value[:at]
            if head in self._heads:
                take = self._heads[head]
                if take is None or take(value, at):
                    return
        self._take_slowly(value, offset)

    def _take_slowly(self, value: bytes | None, offset: Offset) -> None:
        event = deserialize(value, offset, self._shared)
        if event is None:
            return
        assert value is not None
        partition = self._shared.setdefault(event.segment_id.partition, event.segment_id.partition)
        events = self.partitions.get(partition)
        if events is None and partition not in self.unwanted:
            if self._wanted(partition.topic):
                events = self.partitions[partition] = PartitionEvents(partition)
            else:
                self.unwanted.add(partition)
        at = _HEAD + value[_HEAD] + _REST
        head = value[:at]
        take: Callable[[bytes, int], bool] | None = None
        if events is not None:
            take = events.take_segment if isinstance(event, RemoteLogSegmentMetadata) else events.take_update
        if value[_HEAD] < 0x80 and head not in self._heads:  # a length of one byte: the head has the whole partition
            self._heads[head] = take
            if take is not None and take(value, at):
                return
        if events is not None:
            events.take(event)
