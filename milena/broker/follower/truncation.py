"""Where a follower truncates its log, given the end of an epoch in the leader's log (docs/kafka-semantics.md:
Truncation by followers; KIP-101, 279; AbstractFetcherThread.getOffsetTruncationState)."""

from __future__ import annotations

from typing import NamedTuple

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache


class Truncation(NamedTuple):
    """The offset to truncate to. ``agreed`` is False if this log lacks the leader's epoch: the end of this log's latest
    epoch after the truncation must then be requested from the leader."""

    offset: Offset
    agreed: bool


def truncation_for(
    epochs: LeaderEpochCache,
    *,
    log_end: Offset,
    fallback: Offset,
    leader_epoch: LeaderEpoch | None,
    end_offset: Offset | None,
) -> Truncation:
    """Return where to truncate. ``leader_epoch``: the largest epoch of the leader's log up to the requested one, which
    ends there at ``end_offset``.

    ``end_offset`` is None if the leader's log has no such epoch: the log is then truncated to ``fallback`` (the high
    watermark). ``leader_epoch`` is None if the response has none, as before KIP-279.
    """
    if end_offset is None:
        return Truncation(min(fallback, log_end), agreed=True)
    if leader_epoch is None:
        return Truncation(min(end_offset, log_end), agreed=True)
    own = epochs.end_offset_for(leader_epoch, log_end=log_end)
    if own is None:
        return Truncation(min(end_offset, log_end), agreed=True)
    if own.epoch != leader_epoch:
        return Truncation(min(own.offset, log_end), agreed=False)
    return Truncation(min(own.offset, end_offset, log_end), agreed=True)
