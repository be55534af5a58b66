"""``spark.readStream.format("milena")``: micro-batches over tier and tail.

The checkpoint has the offsets, ``{"topic": {"0": 23}}``, as that of Spark's Kafka source; so a query that was killed
goes on where it stopped, and a micro-batch that is run again reads the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.live import plan_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import EARLIEST, LATEST, Bound, SourceOptions, TopicPartition, as_json
from milena.pipeline.plans import Ranges, TierPlan, check_complete, loss, tasks_of, within
from milena.pipeline.reading import Task, read
from milena.tiered.segments.segment_metadata import TopicIdPartition

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, dict[str, int]]
Ends = dict[TopicPartition, int]


class MilenaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One object serves a query on the driver; tasks have copies of it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Ends | None = None
        """Where a query with Trigger.AvailableNow ends."""

    def initialOffset(self) -> Json:
        """Raises PipelineError."""
        with LoopThread() as loop:
            plan = plan_of(loop, self._options)
            every = plan.partitions()
            check_complete(self._options.starting, [(one.topic, one.partition) for one in every])
            return as_json({(one.topic, one.partition): self._first(plan, one) for one in every})

    def _first(self, plan: TierPlan, one: TopicIdPartition) -> int:
        starting = self._options.starting
        place = one.topic, one.partition
        first, end = plan.bounds(one)
        if starting.timestamp is not None:
            found = plan.offset_at(one, starting.timestamp)
            if found is None:
                raise PipelineError(
                    f"option startingTimestamp={starting.timestamp}: {place[0]}-{place[1]} has no record of this time "
                    "or later"
                )
            return found
        named = dict(starting.offsets).get(place, starting.place)
        return {EARLIEST: first, LATEST: end}.get(named, named)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {place: end for place, (_, end) in self._bounds().items()}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Raises DataLoss, PipelineError."""
        begun = _ends(start)
        bounds = self._bounds()
        ends = {place: end for place, (_, end) in bounds.items()}
        if self._target is not None:
            ends = {place: min(end, self._target.get(place, begun.get(place, 0))) for place, end in ends.items()}
        for place in begun.keys() - ends.keys():
            loss(f"{place[0]}-{place[1]} is not there any more", self._options.fail_on_data_loss)
        for place in begun.keys() & ends.keys():
            if ends[place] < begun[place] and (self._target is None or self._target.get(place, 0) < begun[place]):
                what = f"{place[0]}-{place[1]} was read up to offset {begun[place]}, and ends at {ends[place]} now"
                loss(what, self._options.fail_on_data_loss)
                ends[place] = begun[place]
        # A partition that is new is read from its first offset on, as in Spark.
        starts = {place: begun.get(place, bounds[place][0]) for place in ends}
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return as_json(ends)

    def reportLatestOffset(self) -> Json:
        return as_json({place: end for place, (_, end) in self._bounds().items()})

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Raises DataLoss, PipelineError."""
        begun, ends = _ends(start), _ends(end)
        if begun == ends:
            return []
        with LoopThread() as loop:
            plan = plan_of(loop, self._options)
            found: dict[TopicIdPartition, tuple[int, int]] = {}
            for one in plan.partitions():
                place = one.topic, one.partition
                if place in ends:
                    first, last = plan.bounds(one)
                    begin = begun.get(place, first)
                    found[one] = within(
                        place, begin, ends[place], (first, max(last, begin)), self._options.fail_on_data_loss
                    )
            return [Task(stretches) for stretches in tasks_of(plan, found, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read(self._options, self._schema, partition)

    def _bounds(self) -> Ranges:
        with LoopThread() as loop:
            plan = plan_of(loop, self._options)
            return {(one.topic, one.partition): plan.bounds(one) for one in plan.partitions()}


def stream_reader(options: SourceOptions, schema: StructType) -> MilenaStreamReader:
    """A stream goes on: it has no end."""
    return MilenaStreamReader(replace(options, ending=Bound(place=LATEST)), schema)


def limited(starts: Mapping[TopicPartition, int], ends: Ends, most: int) -> Ends:
    """At most so many offsets, of each partition a share that is proportional to what it has left, as in Spark."""
    left = {place: max(0, end - starts[place]) for place, end in ends.items()}
    total = sum(left.values())
    if total <= most:
        return ends
    found = {place: starts[place] + most * count // total for place, count in left.items()}
    spare = most - sum(found[place] - starts[place] for place in found)
    for place in sorted(left, key=lambda one: (-left[one], one)):
        if spare and found[place] < ends[place]:
            found[place] += 1
            spare -= 1
    return found


def _ends(offsets: Json) -> Ends:
    return {(topic, int(number)): end for topic, every in offsets.items() for number, end in every.items()}
