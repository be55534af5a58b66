"""``spark.read.format("milena")``: the topics of a tier as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from milena.pipeline.client_options import warn_of_ignored
from milena.pipeline.columns import check_schema, schema_of
from milena.pipeline.errors import PipelineError
from milena.pipeline.filters import PushedFilters
from milena.pipeline.live import plan_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SourceOptions, sink_options, source_options
from milena.pipeline.plans import ranges_of, tasks_of
from milena.pipeline.reading import Task, read
from milena.pipeline.sink import MilenaStreamWriter, MilenaWriter
from milena.pipeline.sql_tables import keep_options, kept_options, options_of_new_table
from milena.pipeline.streaming import stream_reader

if TYPE_CHECKING:
    import pyarrow as pa


class MilenaDataSource(DataSource):
    """The data source ``milena`` for ``spark.read`` and ``spark.readStream`` (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        return "milena"

    def schema(self) -> StructType:
        """Return the columns that the options select. Raises PipelineError."""
        of_table = options_of_new_table(self.options)
        options = source_options(self.options if of_table is None else of_table, streaming=None)
        schema = schema_of(options.columns, headers=options.headers, only_kafkas=not options.tier)
        return schema if of_table is None else keep_options(schema, of_table)

    def _given(self, schema: StructType) -> dict[str, str]:
        """Return the options of a query; those of a table are in its schema. Raises PipelineError."""
        given = {**kept_options(schema), **{name.lower(): value for name, value in self.options.items()}}
        if not given:
            raise PipelineError(
                "no options: Spark keeps none of a table that was created with a list of columns: leave the list out, "
                "option columns chooses columns"
            )
        return given

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises PipelineError."""
        check_schema(schema)
        options = source_options(self._given(schema))
        warn_of_ignored(options.ignored)
        return FilteringReader(options, schema) if options.push_filters else MilenaReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises PipelineError."""
        check_schema(schema)
        options = source_options(self._given(schema), streaming=True)
        warn_of_ignored(options.ignored)
        return stream_reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises PipelineError."""
        if overwrite:
            raise PipelineError("a topic cannot be overwritten: use mode append")
        options = sink_options(self.options)
        warn_of_ignored(options.ignored)
        return MilenaWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raises PipelineError."""
        if overwrite:
            raise PipelineError("a topic cannot be overwritten: use output mode append")
        options = sink_options(self.options)
        warn_of_ignored(options.ignored)
        return MilenaStreamWriter(options, schema)


class MilenaReader(DataSourceReader):
    """The reader of a batch query: it plans on the driver and reads in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks. Raises PipelineError."""
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


class FilteringReader(MilenaReader):
    """Accepts filters from Spark. It may be used for one query only: Spark 4.2 uses the plan with the filters of one
    query for all queries of the same ``load()``, which then lack rows."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return list(self._pushed.push(filters))
