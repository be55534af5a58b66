"""Where a follower truncates its log, given the leader's end of an epoch (docs/kafka-semantics.md: Truncation by
followers; KIP-101, 279). Pure."""

from __future__ import annotations

from typing import NamedTuple

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import LeaderEpochCache


class Cut(NamedTuple):
    """Where to truncate. ``agreed`` is False if the leader must be asked again, for the newest epoch that is left: its
    response named an epoch that is not known here."""

    offset: Offset
    agreed: bool


def cut_for(
    epochs: LeaderEpochCache,
    *,
    log_end: Offset,
    fallback: Offset,
    leader_epoch: LeaderEpoch | None,
    end_offset: Offset | None,
) -> Cut:
    """The cut, given that ``leader_epoch``, the largest epoch known to the leader up to the requested one, ends at
    ``end_offset``.

    ``end_offset`` is None if the leader knows no such epoch: the log is then cut to ``fallback`` (the high watermark).
    ``leader_epoch`` is None if the leader names none, as before KIP-279.
    """
    if end_offset is None:
        return Cut(min(fallback, log_end), agreed=True)
    if leader_epoch is None:
        return Cut(min(end_offset, log_end), agreed=True)
    own = epochs.end_offset_for(leader_epoch, log_end=log_end)
    if own is None:
        return Cut(min(end_offset, log_end), agreed=True)
    if own.epoch != leader_epoch:
        return Cut(min(own.offset, log_end), agreed=False)
    return Cut(min(own.offset, end_offset, log_end), agreed=True)
