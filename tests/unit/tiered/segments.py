"""Segments for tests, written as the scenarios write them: offsets, and epoch to first offset."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.cleaner_offsets import CleanerOffset, CleanerOffsets
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

PARTITION = TopicIdPartition(UUID(int=77), "t", 0)


def epochs(starts: Mapping[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in starts.items())


def segment(
    number: int,
    start: int,
    end: int,
    starts: Mapping[int, int],
    *,
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    partition: TopicIdPartition = PARTITION,
    max_timestamp_ms: int = 1000,
    txn_index_empty: bool = True,
) -> RemoteLogSegmentMetadata:
    """Segment ``uuid-<number>`` with the offsets ``start`` to ``end``."""
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, UUID(int=number)),
        Offset(start),
        Offset(end),
        NodeId(1),
        max_timestamp_ms,
        2000,
        epochs(starts),
        100 * (end - start + 1),
        None,
        state,
        txn_index_empty,
    )


def update(of: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> RemoteLogSegmentUpdate:
    return RemoteLogSegmentUpdate(of.segment_id, NodeId(2), 3000, of.custom_metadata, state)


def fence(epoch: int, partition: TopicIdPartition = PARTITION) -> RemoteLogSegmentUpdate:
    """What the leader of ``epoch`` publishes before its first work."""
    state = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    return RemoteLogSegmentUpdate(
        RemoteLogSegmentId(partition, ZERO_UUID), NodeId(1), 3000, None, state, LeaderEpoch(epoch)
    )


def offsets(entries: Mapping[int, int | None]) -> CleanerOffsets:
    return tuple(
        CleanerOffset(LeaderEpoch(epoch), None if offset is None else Offset(offset))
        for epoch, offset in entries.items()
    )


UUID_1_OF_KIP405_3 = segment(1, 0, 1, {0: 0})
UUID_2_OF_KIP405_3 = segment(2, 1, 1, {1: 1})
KIP405_3 = (UUID_1_OF_KIP405_3, UUID_2_OF_KIP405_3)
EPOCHS_OF_KIP405_3 = epochs({0: 0, 1: 1, 2: 2})
"""A's and B's at the end; the log ends at 3."""

UUID_1_OF_KIP405_5 = segment(1, 0, 3, {0: 0})
UUID_2_OF_KIP405_5 = segment(2, 0, 3, {0: 0, 1: 2})
UUID_3_OF_KIP405_5 = segment(3, 4, 5, {0: 4, 2: 5})
KIP405_5 = (UUID_1_OF_KIP405_5, UUID_2_OF_KIP405_5, UUID_3_OF_KIP405_5)
EPOCHS_OF_KIP405_5 = epochs({0: 0, 2: 5})
"""A's at the end; the log ends at 7."""


def copied(*segments: RemoteLogSegmentMetadata) -> RemoteLogMetadataCache:
    """Return a cache with finished copies."""
    cache = RemoteLogMetadataCache()
    for one in segments:
        assert cache.apply(one)
        assert cache.apply(update(one, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    return cache
