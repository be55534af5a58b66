"""Metadata of a segment in the tier, and the transitions of its state (KIP-405; docs/kafka-semantics.md: Segment
states).

::

    (none) -> COPY_SEGMENT_STARTED -> COPY_SEGMENT_FINISHED -> DELETE_SEGMENT_STARTED -> DELETE_SEGMENT_FINISHED
                        |                                                ^
                        +------------------------------------------------+

Segments are readable in COPY_SEGMENT_FINISHED, and listed in all states but the last. A new leader that does not accept
a former leader's DELETE_SEGMENT_STARTED sets the segment back to COPY_SEGMENT_FINISHED, to republish it. Kafka has no
such transition, and its readers drop the update.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import itemgetter
from typing import Final
from uuid import UUID

from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.cleaner_offsets import NOT_CLEANED, CleanerOffsets

_EPOCH = itemgetter(0)


class RemoteLogSegmentState(IntEnum):
    """Numbers as in the metadata records."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


UNFENCED: Final = LeaderEpoch(-1)
"""The leader epoch of events without one: those of Kafka's brokers, or of an older version of Milena."""
_STATE = RemoteLogSegmentState
TRANSITIONS: Final = {
    None: frozenset({_STATE.COPY_SEGMENT_STARTED}),
    _STATE.COPY_SEGMENT_STARTED: frozenset({_STATE.COPY_SEGMENT_FINISHED, _STATE.DELETE_SEGMENT_STARTED}),
    _STATE.COPY_SEGMENT_FINISHED: frozenset({_STATE.DELETE_SEGMENT_STARTED}),
    _STATE.DELETE_SEGMENT_STARTED: frozenset({_STATE.DELETE_SEGMENT_FINISHED}),
    _STATE.DELETE_SEGMENT_FINISHED: frozenset[RemoteLogSegmentState](),
}
"""The allowed next states of a state; None: the segment is not known."""


def allowed(before: RemoteLogSegmentState | None, after: RemoteLogSegmentState) -> bool:
    """Whether ``after`` may follow ``before``. The same state is allowed again: a record may be read twice."""
    return before == after or after in TRANSITIONS[before]


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition of one incarnation of a topic."""

    topic_id: UUID
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """The id of one attempt to copy a segment."""

    partition: TopicIdPartition
    id: UUID


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentUpdate:
    """A later state of a segment. ``custom_metadata`` replaces the existing one."""

    segment_id: RemoteLogSegmentId
    broker_id: NodeId
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    leader_epoch: LeaderEpoch = UNFENCED
    """The leader epoch of the broker that published the update."""
    republishes: bool = False
    """Whether a new leader withdraws a former leader's DELETE_SEGMENT_STARTED. The former leader may still delete the
    segment, so the new one will publish it again under another id."""
    first_dirty: Offset | None = None
    """Only in a leader epoch fence: its author has cleaned the tier up to this offset (exclusive)."""

    @property
    def is_fence(self) -> bool:
        """Whether it is a leader epoch fence: it names no segment, only the author's leader epoch, and perhaps
        ``first_dirty``."""
        return self.segment_id.id == ZERO_UUID and self.leader_epoch != UNFENCED


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """A segment in the tier. Offsets are inclusive, times in ms, ``size`` is that of the log file in bytes.

    ``epochs`` are those of its own records, oldest first; the start offset of the first may be the start of the epoch,
    before the segment. Raises ValueError if the offsets are impossible or the epochs are missing or not in order.
    """

    segment_id: RemoteLogSegmentId
    start_offset: Offset
    end_offset: Offset
    broker_id: NodeId
    max_timestamp_ms: int
    event_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    size: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_index_empty: bool
    leader_epoch: LeaderEpoch = UNFENCED
    """The leader epoch of the broker that published its last event."""
    cleaned: CleanerOffsets = NOT_CLEANED
    """The cleaner-offset map of the cleaning that wrote this segment."""
    replaces: tuple[UUID, ...] = ()
    """The segments that the cleaning merged into this one."""
    copied: bool = False
    """Whether its copy was finished before the present state."""
    at_risk: bool = False
    """Whether a former leader may still delete it: a new leader has withdrawn the former one's deletion."""

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise ValueError(f"a remote segment cannot hold offsets {self.start_offset} to {self.end_offset}")
        if not self.epochs:
            raise ValueError("a remote segment must have leader epochs")
        if any(first.epoch >= second.epoch for first, second in pairwise(self.epochs)):
            raise ValueError(f"the leader epochs of a remote segment are not in order: {self.epochs}")
        if any(first.epoch >= second.epoch for first, second in pairwise(self.cleaned)):
            raise ValueError(f"the leader epochs of cleaner offsets are not in order: {self.cleaned}")

    @property
    def id(self) -> UUID:
        return self.segment_id.id

    @property
    def partition(self) -> TopicIdPartition:
        return self.segment_id.partition

    @property
    def was_copied(self) -> bool:
        """Whether its copy was ever finished."""
        return self.copied or self.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    def updated(self, update: RemoteLogSegmentUpdate) -> RemoteLogSegmentMetadata:
        """Return this segment after ``update``. Raises ValueError if the update is for another segment."""
        if update.segment_id != self.segment_id:
            raise ValueError(f"{update.segment_id} is not {self.segment_id}")
        return RemoteLogSegmentMetadata(
            self.segment_id,
            self.start_offset,
            self.end_offset,
            update.broker_id,
            self.max_timestamp_ms,
            update.event_timestamp_ms,
            self.epochs,
            self.size,
            update.custom_metadata,
            update.state,
            self.txn_index_empty,
            update.leader_epoch,
            self.cleaned,
            self.replaces,
            self.was_copied,
            self.at_risk or update.republishes,
        )

    def epoch_start(self, epoch: LeaderEpoch) -> Offset:
        """Return the first offset of ``epoch`` in this segment. Raises KeyError if the segment has no record of it."""
        return max(self.epochs[self._index(epoch)].start, self.start_offset)

    def epoch_end(self, epoch: LeaderEpoch) -> Offset:
        """Return the last offset of ``epoch`` in this segment; it is lower than ``epoch_start`` if the segment has no
        record of the epoch. Raises KeyError if the segment does not have the epoch."""
        after = self._index(epoch) + 1
        return Offset(self.epochs[after].start - 1) if after < len(self.epochs) else self.end_offset

    def _index(self, epoch: LeaderEpoch) -> int:
        index = bisect_left(self.epochs, epoch, key=_EPOCH)
        if index == len(self.epochs) or self.epochs[index].epoch != epoch:
            raise KeyError(epoch)
        return index
