"""``spark.read.format("milena")``: the topics of a tier as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from milena.pipeline.columns import check_schema, schema_of
from milena.pipeline.filters import Pushed
from milena.pipeline.live import plan_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SourceOptions, source_options
from milena.pipeline.planning import Stretch
from milena.pipeline.plans import ranges_of, tasks_of
from milena.pipeline.reading import StretchReader

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, stretches: tuple[Stretch, ...], since: int | None = None) -> None:
        super().__init__(None)
        self.stretches = stretches
        self.since = since


class MilenaDataSource(DataSource):
    """See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "milena"

    def schema(self) -> StructType:
        """Raises PipelineError."""
        options = source_options(self.options, streaming=None)
        return schema_of(options.columns, headers=options.headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises PipelineError."""
        check_schema(schema)
        return MilenaReader(source_options(self.options), schema)


class MilenaReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return list(self._pushed.push(filters))

    def partitions(self) -> Sequence[InputPartition]:
        """Raises PipelineError."""
        pushed = self._pushed
        with LoopThread() as loop:
            plan = plan_of(loop, self._options)
            every = plan.partitions()
            wanted = [one for one in every if pushed.wants((one.topic, one.partition))]
            ranges = ranges_of(plan, every, wanted)
            bounded = {}
            for one in wanted:
                first, end = ranges[one.topic, one.partition]
                bounded[one] = max(first, pushed.first), end if pushed.end is None else min(end, pushed.end)
            tasks = tasks_of(plan, bounded, pushed.since)
        return [Task(stretches, pushed.since) for stretches in tasks] or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read(self._options, self._schema, partition)


def read(options: SourceOptions, schema: StructType, task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Raises PipelineError."""
    with StretchReader(options, schema, task.since) as reader:
        for stretch in task.stretches:
            yield from reader.arrow(stretch)
