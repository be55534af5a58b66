"""The auxiliary state that a follower builds from the tier to start at its leader's first local record (KIP-405;
docs/kafka-semantics.md: Followers that begin in the tier).

The leader epochs come from the checkpoint of the segment that contains that record if the tier has that record,
otherwise from the checkpoint of the segment before it (KIP-405; Kafka always uses the latter). The producers are those
at the end of the segment before it. Both are validated: a follower with wrong epochs would agree with its leader at
offsets where the logs differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.aux_state.aux_producers import producers_at
from milena.tiered.segments.lineage import epoch_at
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import IndexType, RemoteResourceNotFound, RemoteStorageError


class LocalStart(NamedTuple):
    """The start of a leader's local log. ``epoch`` is that of its first record, None if the leader does not know it."""

    offset: Offset
    epoch: LeaderEpoch | None
    log_start: Offset
    """The log start offset, which is in the tier."""


class EndOfEpoch(NamedTuple):
    """A leader's answer to OffsetForLeaderEpoch: an epoch and its end offset; both None if the leader does not know the
    requested epoch."""

    epoch: LeaderEpoch | None
    offset: Offset | None


AskEndOfEpoch: TypeAlias = Callable[[LeaderEpoch], Awaitable[EndOfEpoch]]


class AuxState(NamedTuple):
    """The state before the follower's first record. ``epochs`` may extend beyond it, to the end of the segment that
    they come from."""

    epochs: Sequence[EpochEntry]
    producers: bytes
    """A producer snapshot."""
    source: RemoteLogSegmentMetadata
    """The segment that the epochs come from."""


class CorruptAuxState(RemoteStorageError):
    """An object in the tier contradicts the metadata."""


async def build_aux_state(tier: Tier, partition: TopicIdPartition, start: LocalStart, ask: AskEndOfEpoch) -> AuxState:
    """Build the auxiliary state. ``ask`` requests the end offset of an epoch from the leader; it is called if the tier
    does not contain the leader's first local record. Raises MetadataNotReady, RemoteStorageError, CorruptBatch,
    OSError, and the errors of ``ask``."""
    cache = tier.metadata.cache(partition)
    before = Offset(start.offset - 1)
    source = newest(() if start.epoch is None else cache.find(start.epoch, start.offset))
    if source is not None:
        epochs = await _epochs_of(tier, source)
    else:
        epoch = await epoch_before(start, ask)
        source = newest(cache.find(epoch, before), ending_at=before)
        if source is None:
            raise RemoteResourceNotFound(f"the tier has no segment with offset {before} in leader epoch {epoch}")
        # Such a segment's later records may differ from the leader's.
        epochs = [entry for entry in await _epochs_of(tier, source) if entry.start <= before]
    return AuxState(epochs, await producers_at(tier.storage, cache, start.offset, epochs, start.log_start), source)


def newest(
    segments: Iterable[RemoteLogSegmentMetadata], *, ending_at: Offset | None = None
) -> RemoteLogSegmentMetadata | None:
    """Select one of several segments that contain an offset in the same epoch, and therefore have the same records up
    to it: a segment that ends at ``ending_at`` or, if there is none, the segment with the most epochs."""
    return max(
        segments,
        key=lambda segment: (segment.end_offset == ending_at, segment.epochs[-1], segment.end_offset, segment.id.int),
        default=None,
    )


async def epoch_before(start: LocalStart, ask: AskEndOfEpoch) -> LeaderEpoch:
    """Return the epoch of the record before the leader's first local one (docs/kafka-semantics.md: Followers that begin
    in the tier).

    An unknown epoch is not treated as epoch 0 (KAFKA-20770): raises RemoteResourceNotFound.
    """
    if start.epoch is None:
        raise RemoteResourceNotFound(f"the leader does not know the epoch of its first local offset {start.offset}: -1")
    if start.epoch == 0:
        return start.epoch
    found = await ask(LeaderEpoch(start.epoch - 1))
    if found.epoch is not None and found.offset is not None and found.offset >= start.offset:
        return found.epoch
    return start.epoch


async def _epochs_of(tier: Tier, segment: RemoteLogSegmentMetadata) -> list[EpochEntry]:
    """Return the epochs from the start of the log to the end of the segment."""
    data = await tier.storage.fetch_index(segment, IndexType.LEADER_EPOCH)
    try:
        epochs = decode_epochs(data)
    except CorruptCheckpoint as error:
        raise CorruptAuxState(f"leader epochs of the segment at {segment.start_offset}: {error}") from error
    if not _are_of(segment, epochs):
        raise CorruptAuxState(
            f"leader epochs of the segment at {segment.start_offset}: {epochs} do not end with {segment.epochs}"
        )
    return epochs


def _are_of(segment: RemoteLogSegmentMetadata, epochs: Sequence[EpochEntry]) -> bool:
    """Return whether these epochs end with the epochs in the segment's metadata. (In the metadata the first epoch may
    begin at the segment's start. Both may begin after the segment's start, if the log start was inside the segment.)"""
    if any(one.epoch >= other.epoch or one.start >= other.start for one, other in pairwise(epochs)):
        return False
    own = segment.epochs
    first = epoch_at(max(segment.start_offset, own[0].start), epochs)
    return first is not None and epochs[first].epoch == own[0].epoch and tuple(epochs[first + 1 :]) == own[1:]
