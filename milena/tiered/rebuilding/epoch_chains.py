"""The leader epochs of a log and its bounds, and the offsets that segments of a tier serve under them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from milena.protocol.types import Offset
from milena.storage.state.epoch_cache import EpochEntry, LeaderEpochCache
from milena.tiered.segments.lineage import servable
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState


@dataclass(frozen=True, slots=True)
class Lineage:
    """The leader epochs of a log, oldest first, and its bounds (``log_end`` exclusive)."""

    epochs: tuple[EpochEntry, ...]
    log_end: Offset
    source: str
    """The source of this knowledge, for messages."""
    log_start: Offset | None = None
    """None if no file records it."""


def readable(segments: Iterable[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
    return [segment for segment in segments if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]


def served_runs(lineage: Lineage, segments: Iterable[RemoteLogSegmentMetadata]) -> list[tuple[Offset, Offset]]:
    """Return the ranges of offsets (inclusive, ascending) that ``segments`` serve together."""
    runs = sorted(
        run for segment in segments for run in servable(segment, log_end=lineage.log_end, leader_epochs=lineage.epochs)
    )
    merged: list[tuple[Offset, Offset]] = []
    for first, last in runs:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def wrong_epochs(known: LeaderEpochCache, written: Sequence[EpochEntry]) -> Iterator[EpochEntry]:
    """Yield the epochs of a log's batches that contradict ``known``. ``written``: the epochs of the batches, oldest
    first. Records below the log start at the time of the copy, for example after DeleteRecords, have no known epoch."""
    earliest = known.earliest
    for index, (epoch, start) in enumerate(written):
        if earliest is not None and start < earliest.start:
            if index + 1 < len(written) and written[index + 1].start <= earliest.start:
                continue
            start = earliest.start
        if known.epoch_for_offset(start) != epoch:
            yield EpochEntry(epoch, start)


def epochs_within(known: LeaderEpochCache, start: Offset, end: Offset) -> list[EpochEntry]:
    """Return the epochs of the offsets ``start`` to ``end`` (inclusive), each with its first offset in that range."""
    found = known.entries_in_range(start, Offset(end + 1))
    return [EpochEntry(epoch, max(first, start)) for epoch, first in found]
