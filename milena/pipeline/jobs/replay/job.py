"""The job ``replay``: writes the records of topics to another cluster. A partition's records are written by one task,
in their order. Before a unit is written, the ends of the target's logs are stored: a replay that was interrupted within
a unit knows how many of its records were written, and continues after them. This requires that no other client writes
to the target's topics.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milena.pipeline.brokers import Brokers
from milena.pipeline.errors import PipelineError, recreated
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.results import Results, shown, topics_of
from milena.pipeline.jobs.units import Unit, planned, records_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SourceOptions, offsets_of, source_options
from milena.pipeline.position import Position
from milena.protocol.types import ZERO_UUID, TopicPartition
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNIT_BYTES: Final = 64 << 20
"""The approximate size of a unit in bytes."""
MAX_OFFSETS: Final = 500_000
"""The maximum number of offsets of a unit."""
UNIT_SECONDS: Final = 5
"""With a limited rate, a unit has at most the records that may be written in this number of seconds."""
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
BEGUN: Final = "begun"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a run: number of ``offsets`` of the source, and of ``records`` that were written."""

    offsets: int
    records: int


def replay(
    spark: SparkSession,
    place: Mapping[str, str],
    chosen: Mapping[str, str],
    to: str,
    folder: str,
    *,
    rate: int = 0,
    pace: Callable[[int], None] = lambda _: None,
    progress: Progress = silent,
) -> Replayed:
    """Write the records of topics to the topics with the same names at ``to`` (HOST:PORT,...). The progress is stored
    in ``folder``: another run with the same folder writes the records that were added since. ``rate``: records per
    second, 0 for no limit; ``pace`` is called with the number of records written, and waits to limit the rate.

    ``place``: the source's options for the location of the records; ``chosen``: those for the topics. The session
    should have ``spark.task.maxFailures`` 1: a task that Spark runs again writes its records again.
    Raises PipelineError, DataLoss."""
    options = source_options({**place, **chosen})
    settings = {**shown(place), "topics": topics_of(options.chosen), "to": to}
    with Results.begun(folder, "replay", settings, [BEGUN], goes_on_when_finished=True) as results:
        return _replayed(spark, place, options, to, results, rate, pace, progress)


def _replayed(
    spark: SparkSession,
    place: Mapping[str, str],
    options: SourceOptions,
    to: str,
    results: Results,
    rate: int,
    pace: Callable[[int], None],
    progress: Progress,
) -> Replayed:
    units = _units(results.plan)
    if results.units_done() == len(units):
        most = min(MAX_OFFSETS, rate * UNIT_SECONDS) if rate else MAX_OFFSETS
        units += [part for unit in planned(options, _position(units), UNIT_BYTES) for part in split_unit(unit, most)]
        results.plan = [unit.plain() for unit in units]
    left = units[results.units_done() :]
    whole, done, records = sum(unit.offsets for unit in left), 0, 0
    progress("replayed", 0, whole, "offsets")
    for number, unit in enumerate(left, results.units_done()):
        there = ends_of(to, unit.ranges)
        before = _before(results, number, there, to)
        written = {place: end - before.ends[place] for place, end in there.ends.items()}
        frame = ordered(records_of(spark, {**place, "includeHeaders": "true"}, unit, COLUMNS))
        rows = without_written(frame, written).drop("offset")
        rows.write.format("milena").option("kafka.bootstrap.servers", to).mode("append").save()
        new = sum(ends_of(to, unit.ranges).ends.values()) - sum(there.ends.values())
        results.done(number)
        done, records = done + unit.offsets, records + new
        progress("replayed", done, whole, "offsets")
        pace(new)
    results.finish(f"<!doctype html><title>Replay</title><p>{done} offsets replayed to {to}.</p>\n")
    return Replayed(done, records)


def ordered(records: DataFrame) -> DataFrame:
    """Return the records with those of a partition together, in the order of their offsets."""
    return records.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def without_written(records: DataFrame, written: Mapping[TopicPartition, int]) -> DataFrame:
    """Return the records of ``ordered`` that have not been written yet. ``written``: for each partition, how many of
    its first records an interrupted run has written."""
    skipped = {place: count for place, count in written.items() if count}
    if not skipped:
        return records
    place = f.expr("row_number() over (partition by topic, partition order by offset)")
    count = f.lit(0)
    for (topic, number), most in skipped.items():
        count = f.when((f.col("topic") == topic) & (f.col("partition") == number), most).otherwise(count)
    kept = records.withColumn("_place", place).where(f.col("_place") > count).drop("_place")
    return ordered(kept)


def split_unit(unit: Unit, most: int) -> Iterator[Unit]:
    """Split a unit into units of at most ``most`` offsets."""
    step = max(1, most // max(1, len(unit.ranges)))
    left = dict(unit.ranges)
    while left:
        ranges = {place: (first, min(end, first + step)) for place, (first, end) in left.items()}
        part = sum(end - first for first, end in ranges.values())
        yield Unit(ranges, max(1, unit.size * part // unit.offsets), unit.ids)
        left = {place: (ranges[place][1], end) for place, (_, end) in left.items() if ranges[place][1] < end}


def _units(plan: object) -> list[Unit]:
    return [Unit.of(one) for one in plan] if isinstance(plan, list) else []


def _position(units: list[Unit]) -> Position:
    """Return the position after all units."""
    found = Position()
    for unit in units:
        found = found.advanced(unit.ends, unit.ids)
    return found


def _before(results: Results, number: int, now: Position, to: str) -> Position:
    """Return the end offsets of the target's logs before the unit was started for the first time. ``now``: their
    present end offsets, stored for a unit that is started for the first time. Raises PipelineError."""
    kept = _kept(results, number)
    last = kept or _kept(results, number - 1) or now
    for topic in last.recreated(now.ids):
        raise PipelineError(f"at {to}, {recreated(topic, last.ids[topic], now.ids[topic])}: name another folder")
    if kept is None:
        results.keep(os.path.join(BEGUN, str(number)), json.dumps(now.plain()).encode())
        return now
    if kept.ends.keys() != now.ends.keys():
        raise PipelineError(f"{results.path(BEGUN, str(number))} was not written by this job")
    for (topic, partition), end in now.ends.items():
        if end < kept.ends[topic, partition]:
            raise PipelineError(
                f"at {to}, {topic}-{partition} ended at {kept.ends[topic, partition]}, and now ends at {end}: it has "
                "lost records"
            )
    return kept


def _kept(results: Results, number: int) -> Position | None:
    """Return the position of the target that was stored when the unit was started for the first time; None if it was
    not started. Raises PipelineError."""
    path = results.path(BEGUN, str(number))
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return Position(*offsets_of(path, file.read()))


def ends_of(bootstrap: str, places: Iterable[TopicPartition]) -> Position:
    """Return the end offsets of the logs of these partitions, and the ids of their topics. Raises PipelineError, also
    if a partition does not exist."""
    wanted = sorted(places)
    with LoopThread() as loop:
        brokers = Brokers(loop, source_options({"kafka.bootstrap.servers": bootstrap, "subscribePattern": ".*"}))
        topics = brokers.topics()
        for topic, number in wanted:
            view = topics.get(topic)
            if view is None or view.error:
                raise PipelineError(
                    f"there is no topic {topic} at {bootstrap}: create it with as many partitions as its source"
                )
            if number not in view.partitions:
                raise PipelineError(
                    f"topic {topic} at {bootstrap} has {len(view.partitions)} partitions, but there are records of "
                    f"partition {number}"
                )
        ids = {topic: to_text(topics[topic].id or ZERO_UUID) for topic, _ in wanted}
        return Position({place: brokers.bounds(*place)[1] for place in wanted}, ids)
