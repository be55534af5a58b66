"""Decides which segments are deleted from the tier (docs/kafka-semantics.md: Expiration): for all of a partition at
once; the deletion follows.

The log start moves first, then the segments below it are deleted; after a crash in between, the next leader finds those
segments below the log start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.lineage import filtered, is_within_leader_epochs
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.segments.tiered_offsets import Listing

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_SIZED = (_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)


@dataclass(frozen=True, slots=True)
class LogView:
    """The leader's log at the moment of a decision. Sizes are bytes, times ms."""

    epochs: Sequence[EpochEntry]
    log_start: Offset
    log_end: Offset
    local_only_size: int
    """Size of the local segments after the last copied offset."""
    retention_ms: int
    """-1 for unlimited."""
    retention_bytes: int
    """-1 for unlimited."""
    copied: Offset | None = None
    """The last copied offset. Segments in the tier after it, which will be deleted, do not count: the local ones do.
    None: no limit."""


def limits(config: TopicConfig) -> tuple[int, int]:
    """Return ``retention.ms`` and ``retention.bytes``, -1 for unlimited. A log whose only policy is ``compact`` does
    not expire."""
    if config.compacted and "delete" not in config.cleanup_policy:
        return -1, -1
    return config.retention_ms, config.retention_bytes


@dataclass(slots=True)
class Expiration:
    """The decision. ``log_start``: the new log start; None if it stays."""

    delete: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    log_start: Offset | None = None
    dangling: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    """Segments whose epochs all end before the log's first epoch."""
    remote_size: int = 0
    """Bytes in the tier, including segments that are being deleted."""
    retained_size: int = 0
    """Bytes that count for ``retention.bytes``; 0 if that is unlimited."""


class Validity:
    """The segments that are known to be on the lineage, kept between the rounds of a leader: checking 10,000 of them
    takes 60 ms.

    A segment stays on the lineage while the log's epochs stay the same. The start offset of the first one may change.
    """

    __slots__ = ("_lineage", "_valid")

    def __init__(self) -> None:
        self._lineage: tuple[object, ...] = ()
        self._valid: set[UUID] = set()

    def renew(self, lineage: Sequence[EpochEntry], listed: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Start a round: forget the segments that are not listed, or all if the lineage has changed."""
        key = (lineage[0].epoch, *lineage[1:])
        if key != self._lineage:
            self._lineage = key
            self._valid.clear()
        elif len(self._valid) > len(listed):
            self._valid.intersection_update({segment.id for segment in listed})

    def holds(self, segment: RemoteLogSegmentMetadata, lineage: Sequence[EpochEntry], log_end: Offset) -> bool:
        if segment.id in self._valid:
            return True
        if not is_within_leader_epochs(segment, log_end=log_end, leader_epochs=lineage):
            return False
        self._valid.add(segment.id)
        return True


def decide(
    tier: Listing,
    log: LogView,
    *,
    now: int,
    copying: Collection[UUID] = (),
    validity: Validity | None = None,
) -> Expiration:
    """Return the segments that expire at ``now`` (ms). ``copying``: ids of segments that this broker is copying;
    neither they nor later ones expire. ``validity``: results of earlier rounds."""
    listed = tier.segments()
    expiration = Expiration(remote_size=sum(segment.size for segment in listed if segment.state in _SIZED))
    if not listed or not log.epochs:
        return expiration
    _Pass(tier, listed, log, expiration, now, copying, validity or Validity()).run()
    first = log.epochs[0]
    if first.start <= log.log_start:  # otherwise the log has lost its oldest epochs, and these segments may be needed
        expiration.dangling = [segment for segment in listed if _ended_before(segment, first.epoch, copying)]
    return expiration


def unfinished_copies(
    listed: Iterable[RemoteLogSegmentMetadata], *, copied: Offset, before_ms: int, copying: Collection[UUID]
) -> list[RemoteLogSegmentMetadata]:
    """Return the copies that were started before ``before_ms`` and never finished, and whose offsets are in the tier
    now (up to ``copied``). Kafka keeps them until their offsets expire: an outage of the store leaves one for each
    attempt."""
    return [
        segment
        for segment in listed
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        and segment.event_timestamp_ms < before_ms
        and segment.end_offset <= copied
        and segment.id not in copying
    ]


def _ended_before(segment: RemoteLogSegmentMetadata, epoch: LeaderEpoch, copying: Collection[UUID]) -> bool:
    """Whether all epochs of the segment end before ``epoch``, the log's first one: after an unclean election, or after
    old records were deleted."""
    return segment.epochs[-1].epoch < epoch and segment.id not in copying


class _Pass:
    """The decision about the segments of the log's epochs, oldest first."""

    def __init__(
        self,
        tier: Listing,
        listed: Sequence[RemoteLogSegmentMetadata],
        log: LogView,
        expiration: Expiration,
        now: int,
        copying: Collection[UUID],
        validity: Validity,
    ) -> None:
        self._tier = tier
        self._listed = listed
        self._log = log
        self._expiration = expiration
        self._copying = copying
        self._lineage = filtered(log.epochs)
        self._seen: set[UUID] = set()
        self._validity = validity
        validity.renew(self._lineage, listed)
        self._excess = self._size_excess()
        self._expired_before = now - log.retention_ms if -1 < log.retention_ms <= now else None

    def run(self) -> None:
        for entry in self._lineage:
            for segment in self._tier.segments_of_epoch(entry.epoch):
                if segment.id in self._seen:
                    continue
                self._seen.add(segment.id)
                if not self._judge(segment):
                    return

    def _is_valid(self, segment: RemoteLogSegmentMetadata) -> bool:
        return self._validity.holds(segment, self._lineage, self._log.log_end)

    def _size_excess(self) -> int:
        """Return the bytes above ``retention.bytes``. Each finished segment of the log counts once (KAFKA-15479,
        KAFKA-17062); segments below the log start do not count while they are being deleted, and segments copied by two
        leaders count once."""
        limit = self._log.retention_bytes
        if limit < 0:
            return 0
        total = self._log.local_only_size + sum(segment.size for segment in self._listed if self._is_served(segment))
        if total <= limit:
            self._expiration.retained_size = total
            return 0
        total, counted = self._log.local_only_size, -1
        copied = self._log.log_end if self._log.copied is None else self._log.copied
        for entry in self._lineage:
            for segment in self._tier.segments_of_epoch(entry.epoch):
                if not self._is_served(segment) or not counted < segment.end_offset <= copied:
                    continue
                if not self._is_below_log_start(segment) and self._is_valid(segment):
                    total += segment.size
                    counted = segment.end_offset
        self._expiration.retained_size = total
        return max(total - limit, 0)

    def _judge(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Decide about one segment; return whether later segments may expire, too."""
        if segment.id in self._copying:
            return bool(segment.cleaned)  # the segments that it replaces are decided about instead
        if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED or self._is_below_log_start(segment):
            self._expiration.delete.append(segment)
            return True
        if not self._tier.counts(segment) or (segment.cleaned and not segment.was_copied):
            return True  # superseded or unfinished: other segments have its records
        if not self._is_valid(segment):  # not on the lineage, so its size and age do not count
            return True
        start = self._expiration.log_start
        if start is not None and segment.end_offset < start:
            pass  # another copy of an expired segment
        elif self._expired_before is not None and segment.max_timestamp_ms < self._expired_before:
            self._excess = max(self._excess - segment.size, 0)
        elif 0 < self._excess >= segment.size:
            self._excess -= segment.size
        else:
            return False
        self._expiration.delete.append(segment)
        # Segments may overlap: the log begins after the highest end offset (KAFKA-16890).
        self._expiration.log_start = Offset(max(self._expiration.log_start or 0, segment.end_offset + 1))
        return True

    def _is_served(self, segment: RemoteLogSegmentMetadata) -> bool:
        return segment.state is _FINISHED and self._tier.counts(segment)

    def _is_below_log_start(self, segment: RemoteLogSegmentMetadata) -> bool:
        return segment.epochs[-1].epoch <= self._lineage[0].epoch and segment.end_offset < self._log.log_start
