"""``spark.readStream.format("milena")``: micro-batches from tier and brokers.

The checkpoint has the offsets (``milena.pipeline.position``): a query that was killed continues where it stopped, and a
micro-batch that is run again reads the same offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from milena.pipeline.errors import loss, recreated
from milena.pipeline.live import plan_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import LATEST, Bound, SourceOptions
from milena.pipeline.plans import NoSuchTopic, Ranges, TierPlan, check_bound, start_of, tasks_of, within, without
from milena.pipeline.position import Ends, Json, Position, ids_of
from milena.pipeline.reading import Task, read
from milena.pipeline.triggers import Delay, limited, unread
from milena.protocol.types import TopicPartition
from milena.tiered.segments.segment_metadata import TopicIdPartition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class _Now:
    """The present state of the selected partitions: the first offset of each partition and the offset after the last,
    and the ids of topics."""

    bounds: Ranges
    ids: Mapping[str, str]

    @property
    def ends(self) -> Ends:
        return {place: end for place, (_, end) in self.bounds.items()}


class MilenaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of a query on the driver; tasks have copies of it."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._schema = schema
        self._delay = Delay(options.longest_delay, clock)
        self._target: Position | None = None
        """The position at which a query with Trigger.AvailableNow ends."""

    def initialOffset(self) -> Json:
        """Return the position at which a new query starts. Raises PipelineError."""
        with LoopThread() as loop:
            plan = plan_of(loop, self._options)
            every = plan.partitions()
            check_bound(self._options, self._options.starting, every)
            return Position(
                {(one.topic, one.partition): self._first(plan, one) for one in every}, ids_of(every)
            ).plain()

    def _first(self, plan: TierPlan, one: TopicIdPartition) -> int:
        first, end = plan.bounds(one)
        if self._target is not None:  # the target was determined when the trigger began; the log has more records now
            end = self._target.ends.get((one.topic, one.partition), end)
        return start_of(plan, self._options.starting, one, first, end)

    def getDefaultReadLimit(self) -> ReadLimit:
        least, most = self._options.least_per_trigger, self._options.per_trigger
        if least is not None:
            return ReadMinRows(least)  # latestOffset applies both: PySpark 4.2 has no limit with both
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        now = self._now(())
        self._target = Position(now.ends, now.ids)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the position at which the next micro-batch ends. Raises DataLoss, PipelineError."""
        begun, strict = Position.of(start), self._options.fail_on_data_loss
        now = self._now({topic for topic, _ in begun.ends})
        ends, ids = now.ends, dict(now.ids)
        for topic in begun.recreated(now.ids):
            loss(recreated(topic, begun.ids[topic], now.ids[topic]), strict)
        if self._target is not None:
            ends = self._up_to_target(ends, begun, now)
            ids |= {topic: one for topic, one in begun.ids.items() if topic in self._target.recreated(now.ids)}
        recreated_topics = set(begun.recreated(ids))
        before = {place: end for place, end in begun.ends.items() if place[0] not in recreated_topics}
        for place in before.keys() - now.bounds.keys():
            loss(f"{place[0]}-{place[1]} does not exist any more", strict)
        for place in before.keys() & ends.keys():
            if ends[place] < before[place]:
                what = f"{place[0]}-{place[1]} was read up to offset {before[place]}, and ends at {ends[place]} now"
                loss(what, strict)
                ends[place] = before[place]
        # A new partition is read from its first offset on, as in Spark.
        starts = {place: before.get(place, now.bounds[place][0]) for place in ends}
        # With Trigger.AvailableNow a query that waited for more records would never end.
        waits = isinstance(limit, ReadMinRows) and self._target is None
        if waits and not self._delay.is_due(unread(starts, ends), self._options.least_per_trigger or 0):
            return start
        most = self._options.per_trigger
        if most is not None and not isinstance(limit, ReadAllAvailable):
            ends = limited(starts, ends, most)
        return Position(ends, ids).plain()

    def _up_to_target(self, ends: Ends, begun: Position, now: _Now) -> Ends:
        """Return the end offsets that the logs had when the trigger began. Partitions that were added since then are
        left to the next trigger."""
        assert self._target is not None
        found = {place: min(end, self._target.ends[place]) for place, end in ends.items() if place in self._target.ends}
        later = set(self._target.recreated(now.ids))
        found = {place: end for place, end in found.items() if place[0] not in later}
        return found | {place: end for place, end in begun.ends.items() if place in ends and place not in found}

    def reportLatestOffset(self) -> Json:
        now = self._now(())
        return Position(now.ends, now.ids).plain()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch. Raises DataLoss, PipelineError."""
        begun, ended, strict = Position.of(start), Position.of(end), self._options.fail_on_data_loss
        if begun.ends == ended.ends and not begun.recreated(ended.ids):
            return []
        with LoopThread() as loop:
            plan, every = self._planned(loop, {topic for topic, _ in ended.ends})
            gone = ended.ends.keys() - {(one.topic, one.partition) for one in every}
            for topic, number in sorted(gone):
                loss(f"{topic}-{number} does not exist any more", strict)
            ids = ids_of(every)
            for topic in ended.recreated(ids):
                loss(recreated(topic, ended.ids[topic], ids[topic]), strict)
            recreated_topics = {*begun.recreated(ended.ids)}
            ranges: dict[TopicIdPartition, tuple[int, int]] = {}
            for one in every:
                place = one.topic, one.partition
                if place in ended.ends and place[0] not in ended.recreated(ids):
                    first, last = plan.bounds(one)
                    begin = first if place[0] in recreated_topics else begun.ends.get(place)
                    if begin is None:
                        begin = self._of_new(place, first)
                    ranges[one] = within(place, begin, ended.ends[place], (first, max(last, begin)), strict)
            return [Task(stretches) for stretches in tasks_of(plan, ranges, None)]

    def _of_new(self, place: TopicPartition, first: int) -> int:
        """Return the first offset of a new partition. Raises DataLoss if that is not 0."""
        if first:
            loss(
                f"added partition {place[0]}-{place[1]} starts from {first} instead of 0",
                self._options.fail_on_data_loss,
            )
        return first

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read(self._options, self._schema, partition)

    def _now(self, begun: Collection[str]) -> _Now:
        with LoopThread() as loop:
            plan, every = self._planned(loop, begun)
            return _Now({(one.topic, one.partition): plan.bounds(one) for one in every}, ids_of(every))

    def _planned(self, loop: LoopThread, begun: Collection[str]) -> tuple[TierPlan, list[TopicIdPartition]]:
        """Return a plan, and the selected partitions. A topic that was read before (``begun``) and is missing now is a
        data loss, not a wrong option. Raises DataLoss, PipelineError."""
        options = self._options
        while True:
            try:
                plan = plan_of(loop, options)
                return plan, plan.partitions()
            except NoSuchTopic as error:
                if options.fail_on_data_loss and error.topic not in begun:
                    raise
                loss(f"topic {error.topic} does not exist any more", options.fail_on_data_loss)
                options = without(options, error.topic)


def stream_reader(options: SourceOptions, schema: StructType) -> MilenaStreamReader:
    """Return the reader of a stream, which has no end."""
    return MilenaStreamReader(replace(options, ending=Bound(place=LATEST)), schema)
