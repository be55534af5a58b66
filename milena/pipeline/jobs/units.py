"""Units of work on records: ranges of offsets. They are planned once when a job starts, so that a job that continues
reads the same offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from milena.pipeline.errors import PipelineError, TopicGone, loss, recreated
from milena.pipeline.live import plan_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SourceOptions, offsets_of, source_options
from milena.pipeline.planning import Stretch, cuts_by_offset, packed
from milena.pipeline.plans import Ranges, ranges_of
from milena.pipeline.position import Position, ids_of
from milena.protocol.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNIT_BYTES: Final = 1 << 30
"""The approximate size of a unit in bytes."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work: ranges of offsets by partition, with exclusive ends. ``size``: approximate bytes; ``ids``: the
    ids of the topics, as far as they are known."""

    ranges: Mapping[TopicPartition, tuple[int, int]]
    size: int
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        return sum(end - first for first, end in self.ranges.values())

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {place: end for place, (_, end) in self.ranges.items()}

    def plain(self) -> dict[str, object]:
        """Return the unit for JSON."""
        return {
            "starting": Position({place: first for place, (first, _) in self.ranges.items()}, self.ids).plain(),
            "ending": Position(self.ends).plain(),
            "size": self.size,
        }

    @classmethod
    def of(cls, plain: Mapping[str, object]) -> Unit:
        """Parse a unit from JSON."""
        first, ids = offsets_of("starting", json.dumps(plain["starting"]))
        end, _ = offsets_of("ending", json.dumps(plain["ending"]))
        size = plain["size"]
        assert isinstance(size, int)
        return cls({place: (at, end[place]) for place, at in first.items()}, size, ids)


def check_topics(given: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise PipelineError if a topic does not exist. ``given``: the options of the source; ``names``: the topics that
    the user named."""
    options = source_options(given)
    with LoopThread() as loop:
        there = sorted({one.topic for one in plan_of(loop, options).partitions()})
    for name in names:
        if name not in there:
            raise PipelineError(f"there is no topic {name}" + (f", but {', '.join(there)}" if there else ""))


def not_in_tier(options: SourceOptions) -> dict[str, int] | None:
    """Return, for each topic, how many offsets are not in the tier yet; None if no replica was found. Raises
    PipelineError."""
    found: dict[str, int] = {}
    with LoopThread() as loop:
        plan = plan_of(loop, options)
        for one in plan.partitions():
            known = plan.known(one)
            if known.log_end is not None:
                found[one.topic] = found.get(one.topic, 0) + max(0, known.log_end - known.end)
    return found or None


def planned(options: SourceOptions, begun: Position, target: int) -> list[Unit]:
    """Return units for all records that exist now, in the order of offsets. ``begun``: the position after the units of
    earlier runs; partitions that it lacks start at their first offset. ``target``: the approximate bytes of a unit.

    Raises DataLoss, PipelineError."""
    with LoopThread() as loop:
        plan = plan_of(loop, options)
        every = plan.partitions()
        now = ids_of(every)
        for topic in begun.recreated(now):
            raise TopicGone(f"{recreated(topic, begun.ids[topic], now[topic])}: name another folder")
        ranges = ranges_of(plan, every, every)
        stretches: list[Stretch] = []
        for one in every:
            first, end = ranges[one.topic, one.partition]
            next_one = begun.ends.get((one.topic, one.partition), first)
            if not first <= next_one <= end:
                what = f"{one.topic}-{one.partition}: offset {next_one} comes next, and {first} to {end - 1} are there"
                loss(what, options.fail_on_data_loss)
            first = max(first, next_one)
            for stretch in plan.stretches(one, first, end) if end > first else ():
                if isinstance(stretch, Stretch):
                    stretches.append(stretch)
                else:
                    what = f"{one.topic}-{one.partition}: nothing has the offsets {stretch.first} to {stretch.last}"
                    loss(what, options.fail_on_data_loss)
    return [_unit(one) for one in packed(stretches, target, cuts_by_offset)]


def _unit(stretches: Sequence[Stretch]) -> Unit:
    ranges: Ranges = {}
    size = 0
    for one in stretches:
        place = one.partition.topic, one.partition.partition
        first, _ = ranges.get(place, (one.first, 0))
        ranges[place] = first, one.last + 1
        size += one.size
    return Unit(ranges, size, ids_of(one.partition for one in stretches))


def records_of(spark: SparkSession, place: Mapping[str, str], unit: Unit, columns: Sequence[str]) -> DataFrame:
    """Return the records of a unit. ``place``: the options of the source with the location of the records."""
    plain = unit.plain()
    topics: dict[str, list[int]] = {}
    for topic, number in unit.ranges:
        topics.setdefault(topic, []).append(number)
    reading = spark.read.format("milena").options(**place).option("assign", json.dumps(topics))
    reading = reading.option("startingOffsets", json.dumps(plain["starting"]))
    reading = reading.option("endingOffsets", json.dumps(plain["ending"]))
    return reading.option("columns", ",".join(columns)).load()
