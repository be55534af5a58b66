"""Plans, made on the driver: options determine ranges of offsets, and a plan determines the stretches of these ranges,
which tasks then read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final

from milena.pipeline.catalogue import (
    Catalogue,
    KnownPartition,
    catalogue_of_files,
    catalogue_of_folders,
    incarnation,
    looked_up,
)
from milena.pipeline.errors import PipelineError, loss, recreated
from milena.pipeline.locations import storage_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.open_tier import OpenTier
from milena.pipeline.options import EARLIEST, LATEST, STRATEGY, Bound, Chosen, SourceOptions
from milena.pipeline.planning import Aborted, Gap, Stretch, clipped, cuts_by_index, cuts_by_offset, divided, packed
from milena.pipeline.position import Position, ids_of
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.types import TopicPartition
from milena.runtime.logging import get_logger
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.store.remote_storage import RemoteStorageError

MOST_INDEXES: Final = 200
"""The maximum number of large segments for which indexes are read to cut them evenly. If there are more, all are cut by
their offsets."""
NOT_COPIED: Final = "nothing of it is in the tier yet"
"""The message for a topic that exists but has never been copied to the tier."""
Ranges = dict[TopicPartition, tuple[int, int]]
"""For each partition, the first offset that is read, and the offset after the last."""


class NoSuchTopic(PipelineError):
    """The topic ``topic``, which the options name, does not exist."""

    def __init__(self, topic: str, sentence: str) -> None:
        super().__init__(sentence)
        self.topic = topic


class TierPlan:
    """A plan that reads from a tier only, for the segments that the tier has when the plan is made."""

    def __init__(self, loop: LoopThread, options: SourceOptions) -> None:
        """Raises PipelineError."""
        self.options = options
        self._loop = loop
        self._known: dict[TopicPartition, KnownPartition] = {}
        self._tier: OpenTier | None = None
        try:
            if options.tier:
                self._tier = OpenTier(loop, storage_of(loop.runtime, options.tier, options.storage_options))
                loop.at_end(self._tier.storage.close)
            self.catalogue = self._open()
        except RemoteStorageError as error:
            raise PipelineError(f"option tier={options.tier}: {error}") from None
        except OSError as error:
            raise PipelineError(f"option metadata={','.join(options.metadata)}: {error}") from None

    @property
    def tier(self) -> OpenTier:
        assert self._tier is not None
        return self._tier

    def _open(self) -> Catalogue:
        if self.options.metadata:
            options, place = self.options, (self.options.tier, self.options.storage_options)
            return self._loop.run(catalogue_of_folders(self._loop, options.metadata, options.chosen, place))
        return self._loop.run(catalogue_of_files(self.tier.storage))

    def partitions(self) -> list[TopicIdPartition]:
        """Return the chosen partitions, in order. Raises PipelineError if a topic does not exist."""
        every = self.catalogue.partitions()
        hint = NOT_COPIED + (", and no directory of option metadata has a replica of it" * bool(self.options.metadata))
        names = chosen_topics(self.options.chosen, sorted({one.topic for one in every}), f"; if it exists, {hint}")
        found = only_assigned(self.options.chosen, [one for name in names for one in incarnation(every, name)])
        copied = {one.topic for one in found if self.catalogue.was_copied(one)}
        for name in sorted({one.topic for one in found} - copied):
            _warn_of_new(self.options.tier, name)
        return found

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self.catalogue.partitions()

    def known(self, partition: TopicIdPartition) -> KnownPartition:
        """Raises PipelineError."""
        place = partition.topic, partition.partition
        if place not in self._known:
            try:
                found = self._look_up(partition)
            except RemoteStorageError as error:
                raise PipelineError(f"{place[0]}-{place[1]} in {self.options.tier}: {error}") from None
            if self.options.committed and found.end > found.first:
                found.end = self._stable_end(found)
            self._known[place] = found
        return self._known[place]

    def _look_up(self, partition: TopicIdPartition) -> KnownPartition:
        strict, runtime = self.options.fail_on_data_loss, self._loop.runtime
        now_ms = runtime.clock.time_ms() if "://" in self.options.tier else None
        work = looked_up(self.catalogue, runtime.disk, self.tier.storage, partition, strict=strict, now_ms=now_ms)
        return self._loop.run(work)

    def bounds(self, partition: TopicIdPartition) -> tuple[int, int]:
        """Return the first offset of the partition that can be read, and the offset after the last. Raises
        PipelineError."""
        known = self.known(partition)
        return known.first, known.end

    def _stable_end(self, known: KnownPartition) -> int:
        """Return the last stable offset according to the tier: all transactions that begin before it have ended."""
        every = clipped(known.parts, known.first, known.end)
        newest = [one for one in every if isinstance(one, Stretch)][-2:]
        last = newest[-1].segment
        assert last is not None
        if newest[-1].last < last.end_offset:  # its end and its snapshot are on another chain
            newest, known.end = newest[:-1], newest[-1].first
        if not newest or newest[-1].segment is None:
            return known.end
        first_open = self.tier.first_open(newest[-1].segment)
        return known.end if first_open is None else max(known.first, min(known.end, first_open))

    def offset_at(self, partition: TopicIdPartition, timestamp: int) -> int | None:
        """Return the first offset whose record has this timestamp (ms) or a later one. Raises PipelineError."""
        known = self.known(partition)
        for one in clipped(known.parts, known.first, known.end):
            if isinstance(one, Gap) or one.segment is None or one.segment.max_timestamp_ms < timestamp:
                continue
            for batch in self.tier.batches(one, since=timestamp):
                if batch.is_control or batch.max_timestamp < timestamp:
                    continue
                for record in iter_records(batch):
                    offset = offset_of(batch, record)
                    if one.first <= offset <= one.last and timestamp_of(batch, record) >= timestamp:
                        return offset
        return None

    def stretches(
        self, partition: TopicIdPartition, first: int, end: int, since: int | None = None
    ) -> Iterator[Stretch | Gap]:
        """Yield the stretches in the tier with offsets ``first`` to ``end`` (exclusive), and the gaps between them.
        ``since`` (ms): segments whose records are all earlier are left out."""
        known = self.known(partition)
        every = clipped(known.parts, first, end)
        aborted = self._aborted(known, first) if self.options.committed else []
        for one in every:
            if isinstance(one, Stretch):
                assert one.segment is not None
                if since is not None and one.segment.max_timestamp_ms < since:
                    continue
                if aborted:
                    one = replace(one, aborted=tuple(aborted)).part(one.first, one.last, one.size)
            yield one

    def _aborted(self, known: KnownPartition, first: int) -> list[Aborted]:
        """Return the aborted transactions of all segments from ``first`` on: the marker of a transaction may be in any
        later segment than its records."""
        found: list[Aborted] = []
        for one in known.parts:
            if one.last >= first:
                assert one.segment is not None
                found += self.tier.aborted(one.segment, max(first, one.first), one.last)
        return found


@cache
def _warn_of_new(tier: str, topic: str) -> None:
    """Warn, once in each process, that a topic exists of which the tier has, and has had, nothing."""
    get_logger("pipeline").warning(NOT_COPIED, topic=topic, tier=tier)


def chosen_topics(chosen: Chosen, names: Sequence[str], hint: str = "") -> list[str]:
    """Return the chosen topics among ``names``. Raises NoSuchTopic, whose message ends in ``hint``."""
    if chosen.pattern:
        return [name for name in names if re.fullmatch(chosen.pattern, name)]
    wanted = chosen.topics or tuple(dict.fromkeys(topic for topic, _ in chosen.partitions))
    option = "subscribe" if chosen.topics else "assign"
    for name in wanted:
        if name not in names:
            there = f"there are {', '.join(names[:10])}" if names else "there is none at all"
            raise NoSuchTopic(name, f"option {option}: there is no topic {name}; {there}{hint}")
    return list(wanted)


def without(options: SourceOptions, topic: str) -> SourceOptions:
    """Return the options without ``topic``, which was chosen by name."""
    chosen = options.chosen
    topics = tuple(name for name in chosen.topics if name != topic)
    partitions = tuple(one for one in chosen.partitions if one[0] != topic)
    return replace(options, chosen=Chosen(topics, chosen.pattern, partitions))


def only_assigned(chosen: Chosen, found: Sequence[TopicIdPartition]) -> list[TopicIdPartition]:
    """Return the partitions of option ``assign``, or all without it. Raises PipelineError for a partition that does not
    exist."""
    if not chosen.partitions:
        return list(found)
    by_place = {(one.topic, one.partition): one for one in found}
    for topic, number in chosen.partitions:
        if (topic, number) not in by_place:
            raise PipelineError(f"option assign: there is no partition {number} of {topic}")
    return [by_place[place] for place in chosen.partitions]


def ranges_of(plan: TierPlan, every: Sequence[TopicIdPartition], wanted: Iterable[TopicIdPartition]) -> Ranges:
    """Return the ranges of offsets of the partitions ``wanted``. ``every``: all selected partitions; if the options
    have offsets, they must have one for each of these. Raises DataLoss, PipelineError."""
    options, found = plan.options, {}
    for bound in (options.starting, options.ending):
        check_bound(options, bound, every)
    for one in wanted:
        place = one.topic, one.partition
        first, end = plan.bounds(one)
        begin = start_of(plan, options.starting, one, first, end)
        finish = _bound(plan, options.ending, one, first, end)
        if finish is not None and begin > finish and _says(options.starting, place) and _says(options.ending, place):
            raise PipelineError(
                f"options {options.starting.option} and {options.ending.option} contradict each other: "
                f"{place[0]}-{place[1]} would be read from offset {begin} up to offset {finish - 1}"
            )
        found[place] = within(place, begin, end if finish is None else finish, (first, end), options.fail_on_data_loss)
    return found


def start_of(plan: TierPlan, bound: Bound, partition: TopicIdPartition, first: int, end: int) -> int:
    """Return the offset at which reading starts. ``first``, ``end``: the partition's first offset and the offset after
    its last one. Raises PipelineError."""
    found = _bound(plan, bound, partition, first, end)
    if found is not None:
        return found
    if bound.latest_if_none:
        return end
    place = partition.topic, partition.partition
    raise PipelineError(
        f"option {bound.option}={bound.time_of(place)}: {place[0]}-{place[1]} has no record of this time or later "
        f"(with {STRATEGY}=latest it is read from its end)"
    )


def check_bound(options: SourceOptions, bound: Bound, every: Sequence[TopicIdPartition]) -> None:
    """Check as Spark does that offsets are given for exactly the partitions that are read. If ids of topics are given,
    they must be the present ones. Raises DataLoss, PipelineError."""
    named = bound.offsets or bound.timestamps
    if named:
        odd = sorted(named.keys() ^ {(one.topic, one.partition) for one in every})
        if odd:
            raise PipelineError(
                f"option {bound.option} must name all partitions that are read and no others, which "
                f"{odd[0][0]}-{odd[0][1]} contradicts"
                + ("; -2 is the earliest offset, -1 the latest" if bound.offsets else "")
            )
        before, now = bound.ids, ids_of(every)
        for topic in Position(ids=before).recreated(now):
            loss(recreated(topic, before[topic], now[topic]), options.fail_on_data_loss)


def _bound(plan: TierPlan, bound: Bound, partition: TopicIdPartition, first: int, end: int) -> int | None:
    """Return the offset of a bound; None if no record has its time or a later one."""
    timestamp = bound.time_of((partition.topic, partition.partition))
    if timestamp is not None:
        return plan.offset_at(partition, timestamp)
    place = bound.offsets.get((partition.topic, partition.partition), bound.place)
    return {EARLIEST: first, LATEST: end}.get(place, place)


def _says(bound: Bound, place: TopicPartition) -> bool:
    """Whether ``bound`` has an offset or a timestamp for the partition, not only EARLIEST or LATEST."""
    return bound.time_of(place) is not None or bound.offsets.get(place, EARLIEST) >= 0


def within(
    place: TopicPartition, begin: int, finish: int, bounds: tuple[int, int], fail_on_data_loss: bool
) -> tuple[int, int]:
    """Return the part of ``begin`` to ``finish`` (exclusive) that exists. ``bounds``: the existing offsets. Raises
    DataLoss if a part of the range does not exist and ``fail_on_data_loss`` is set."""
    first, end = bounds
    if first <= begin <= finish <= end:
        return begin, finish
    what = f"{place[0]}-{place[1]}: offsets {begin} to {finish - 1} are asked for"
    lost = f"{what}, and {f'{first} to {end - 1} are there' if end > first else 'none is there'}"
    loss(lost, fail_on_data_loss)
    begin = min(max(begin, first), end)
    return begin, max(begin, min(finish, end))


def tasks_of(
    plan: TierPlan, ranges: Mapping[TopicIdPartition, tuple[int, int]], since: int | None
) -> list[tuple[Stretch, ...]]:
    """Return the stretches of each task. Raises DataLoss, PipelineError."""
    found: list[Stretch] = []
    for one, (first, end) in ranges.items():
        for stretch in plan.stretches(one, first, end, since) if end > first else ():
            if isinstance(stretch, Gap):
                what = f"{one.topic}-{one.partition}: nothing has the offsets {stretch.first} to {stretch.last}"
                loss(what, plan.options.fail_on_data_loss)
            else:
                found.append(stretch)
    target = plan.options.partition_bytes
    large = sum(one.size > target for one in found)
    cuts = partial(_cuts, plan) if large <= MOST_INDEXES else cuts_by_offset
    tasks = packed(found, target, cuts, plan.options.records_per_task)
    return divided(tasks, plan.options.least_tasks or 0)


def _cuts(plan: TierPlan, stretch: Stretch, target: int) -> Sequence[tuple[int, int]]:
    entries = plan.tier.entries(stretch.segment) if stretch.segment is not None else ()
    return cuts_by_index(stretch, target, entries) if entries else cuts_by_offset(stretch, target)
