"""Decides which task reads which offsets: pure functions of the segments' metadata.

A stretch is a range of offsets of one topic partition that one segment, or the brokers, serve. Large stretches are cut,
and the stretches are distributed to tasks in order. So the rows of a topic partition are in the order of their offsets,
within each task and from task to task.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.cleaner_offsets import NOT_CLEANED, CleanerOffsets
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

SLACK: Final = 1.25
"""A stretch is cut if it is larger than this many times the bytes that a task should read."""


class Aborted(NamedTuple):
    """An aborted transaction's offsets (inclusive) in one partition."""

    producer_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets ``first`` to ``last`` (inclusive) of a partition, about ``size`` bytes.

    ``segment``: the segment that serves them, None for the brokers. ``aborted``: transactions whose records are left
    out. ``committed``: whether brokers are requested to return committed records only.
    """

    partition: TopicIdPartition
    first: int
    last: int
    size: int
    segment: RemoteLogSegmentMetadata | None = None
    aborted: tuple[Aborted, ...] = ()
    committed: bool = False

    def part(self, first: int, last: int, size: int) -> Stretch:
        aborted = tuple(one for one in self.aborted if one.last >= first and one.first <= last)
        return replace(self, first=first, last=last, size=size, aborted=aborted)

    def __reduce__(self) -> tuple[Callable[..., Stretch], tuple[object, ...]]:
        """Pickle plain values: Spark pickles each task separately, and pickling plain values takes a fifth of the
        time."""
        of, one = self.partition, self.segment
        stored: _Stored | None = None
        if one is not None:
            epochs = tuple([(epoch, start) for epoch, start in one.epochs])
            stored = (
                one.id.bytes,
                one.start_offset,
                one.end_offset,
                one.broker_id,
                one.max_timestamp_ms,
                one.event_timestamp_ms,
                epochs,
                one.size,
                one.custom_metadata,
                int(one.state),
                one.txn_index_empty,
                one.leader_epoch,
                one.cleaned,
                one.replaces,
                one.copied,
                one.at_risk,
            )
        rest = self.first, self.last, self.size, self.aborted, self.committed
        return _unpickled, (of.topic_id.bytes, of.topic, of.partition, stored, *rest)


_Stored = tuple[
    bytes,
    Offset,
    Offset,
    NodeId,
    int,
    int,
    tuple[tuple[LeaderEpoch, Offset], ...],
    int,
    bytes | None,
    int,
    bool,
    LeaderEpoch,
    CleanerOffsets,
    tuple[UUID, ...],
    bool,
    bool,
]
"""The fields of a segment without its partition."""


def _unpickled(
    topic_id: bytes,
    topic: str,
    number: int,
    stored: _Stored | None,
    first: int,
    last: int,
    size: int,
    aborted: tuple[Aborted, ...],
    committed: bool,
) -> Stretch:
    partition, segment = TopicIdPartition(UUID(bytes=topic_id), topic, number), None
    if stored is not None:
        id_bytes, start, end, broker, newest, event_ms, epochs, log_size, custom, state = stored[:10]
        segment = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(partition, UUID(bytes=id_bytes)),
            start,
            end,
            broker,
            newest,
            event_ms,
            tuple([EpochEntry(epoch, at) for epoch, at in epochs]),
            log_size,
            custom,
            RemoteLogSegmentState(state),
            *stored[10:],
        )
    return Stretch(partition, first, last, size, segment, aborted, committed)


_LAST: Final = attrgetter("last")


class Gap(NamedTuple):
    """Offsets (inclusive) that no segment serves."""

    first: int
    last: int


Cuts = Callable[[Stretch, int], Sequence[tuple[int, int]]]
"""A function that cuts a stretch into parts of about the given size (bytes). It returns the first offset and the size
of each part."""


def resolved(
    partition: TopicIdPartition,
    cache: RemoteLogMetadataCache,
    epochs: Sequence[EpochEntry],
    log_end: int,
    first: int = 0,
) -> list[Stretch]:
    """Return the stretches that the tier has of a log with these leader epochs, from offset ``first`` on, in order."""
    return [
        Stretch(partition, at, last, _share(segment, at, last), _light(segment))
        for segment, at, last in cache.all_served(Offset(first), leader_epochs=epochs, log_end=Offset(log_end))
    ]


def clipped(parts: Sequence[Stretch], first: int, end: int) -> Iterator[Stretch | Gap]:
    """Yield the parts of ``parts`` with offsets ``first`` to ``end`` (exclusive), and the gaps between them. ``parts``
    are in order."""
    at = first
    for index in range(bisect_left(parts, first, key=_LAST), len(parts)):
        one = parts[index]
        if one.first >= end:
            break
        if one.first > at:
            yield Gap(at, one.first - 1)
        if one.first < at or one.last >= end:
            assert one.segment is not None
            low, high = max(one.first, at), min(one.last, end - 1)
            one = replace(one, first=low, last=high, size=_share(one.segment, low, high))
        yield one
        at = one.last + 1
    if at < end:
        yield Gap(at, end - 1)


def served(
    partition: TopicIdPartition,
    cache: RemoteLogMetadataCache,
    epochs: Sequence[EpochEntry],
    log_end: int,
    first: int,
    end: int,
) -> Iterator[Stretch | Gap]:
    """Yield, in order, the stretches that the tier has of the offsets ``first`` to ``end`` (exclusive) of a log with
    these leader epochs, and the gaps between them."""
    return clipped(resolved(partition, cache, epochs, min(log_end, end), first), first, end)


def _share(segment: RemoteLogSegmentMetadata, first: int, last: int) -> int:
    whole = segment.end_offset - segment.start_offset + 1
    return max(1, segment.size * (last - first + 1) // whole)


def _light(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Return the segment without its cleaner-offset map and replaced segments: they may be large, and tasks do not need
    them."""
    return replace(segment, cleaned=NOT_CLEANED, replaces=()) if segment.cleaned or segment.replaces else segment


def cuts_by_offset(stretch: Stretch, target: int) -> list[tuple[int, int]]:
    """Cut a stretch into parts with equally many offsets."""
    span = stretch.last - stretch.first + 1
    parts = min(span, -(-stretch.size // target))
    return [(stretch.first + span * at // parts, stretch.size // parts) for at in range(parts)]


def cuts_by_index(stretch: Stretch, target: int, entries: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cut a stretch into parts of about equally many bytes, at entries of the segment's offset index. ``entries``: the
    last offset of a batch and its position, for each entry."""
    assert stretch.segment is not None
    offsets = [offset for offset, _ in entries]
    low = bisect_right(offsets, stretch.first)
    high = bisect_right(offsets, stretch.last)
    begin = entries[low - 1][1] if low else 0
    finish = entries[high][1] if high < len(entries) else stretch.segment.size
    parts = max(1, -(-(finish - begin) // target))
    positions = [position for _, position in entries]
    found = [(stretch.first, begin)]
    for at in range(1, parts):
        slot = bisect_right(positions, begin + (finish - begin) * at // parts) - 1
        # An entry has the last offset of its batch, so the next batch begins at the offset after it.
        if slot >= 0 and found[-1][0] < offsets[slot] + 1 <= stretch.last:
            found.append((offsets[slot] + 1, positions[slot]))
    ends = [position for _, position in found[1:]] + [finish]
    return [(first, max(1, past - position)) for (first, position), past in zip(found, ends, strict=True)]


def packed(stretches: Iterable[Stretch], target: int, cuts: Cuts, most: int | None = None) -> list[tuple[Stretch, ...]]:
    """Return the stretches of each task. A task reads about ``target`` bytes, and at most ``most`` offsets."""
    tasks: list[tuple[Stretch, ...]] = []
    held: list[Stretch] = []
    size = offsets = 0
    for part in _cut(stretches, target, cuts, most):
        span = part.last - part.first + 1
        if held and (size + part.size > target or (most is not None and offsets + span > most)):
            tasks.append(tuple(held))
            held, size, offsets = [], 0, 0
        held.append(part)
        size += part.size
        offsets += span
    return [*tasks, tuple(held)] if held else tasks


_Placed = tuple[int, tuple[int, ...], tuple[Stretch, ...]]
"""The negative size of a task, its place in the order of tasks, and the task."""


def divided(tasks: Sequence[tuple[Stretch, ...]], least: int) -> list[tuple[Stretch, ...]]:
    """Divide the largest tasks by two until there are ``least`` tasks, or each task has a single offset."""
    largest: list[_Placed] = [(-_size(task), (at,), task) for at, task in enumerate(tasks)]
    heapify(largest)
    done: list[_Placed] = []
    while largest and len(largest) + len(done) < least:
        size, place, task = heappop(largest)
        halves = _halves(task)
        if len(halves) == 1:
            done.append((size, place, task))
            continue
        for at, half in enumerate(halves):
            heappush(largest, (-_size(half), (*place, at), half))
    return [task for _, _, task in sorted([*largest, *done], key=itemgetter(1))]


def _size(task: tuple[Stretch, ...]) -> int:
    return sum(one.size for one in task)


def _halves(task: tuple[Stretch, ...]) -> list[tuple[Stretch, ...]]:
    """Return two tasks of about the same size with the stretches of ``task``; the task itself if it has one offset."""
    if len(task) > 1:
        sums = list(accumulate(one.size for one in task[:-1]))
        index = min(bisect_left(sums, _size(task) / 2), len(sums) - 1) + 1
        return [task[:index], task[index:]]
    (one,) = task
    span = one.last - one.first + 1
    if span == 1:
        return [task]
    middle, half = one.first + span // 2, max(1, one.size // 2)
    return [(one.part(one.first, middle - 1, half),), (one.part(middle, one.last, half),)]


def _cut(stretches: Iterable[Stretch], target: int, cuts: Cuts, most: int | None) -> Iterator[Stretch]:
    for stretch in stretches:
        if stretch.size <= target * SLACK:
            yield from _shortened(stretch, most)
            continue
        parts = cuts(stretch, target)
        ends = [first - 1 for first, _ in parts[1:]] + [stretch.last]
        for (first, size), last in zip(parts, ends, strict=True):
            yield from _shortened(stretch.part(first, last, size), most)


def _shortened(stretch: Stretch, most: int | None) -> Iterator[Stretch]:
    """Yield the stretch in parts of at most ``most`` offsets."""
    span = stretch.last - stretch.first + 1
    parts = 1 if most is None else -(-span // most)
    if parts == 1:
        yield stretch
        return
    starts = [stretch.first + span * at // parts for at in range(parts + 1)]
    for first, past in pairwise(starts):
        yield stretch.part(first, past - 1, max(1, stretch.size // parts))
