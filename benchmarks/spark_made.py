"""A source for Spark that reads nothing: its tasks send Arrow batches that are made already. What such a read takes is
Spark's own part in each read by a source in Python."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.spark_topics import RECORD
from milena.pipeline.columns import schema_of
from milena.pipeline.reading import BYTES

ROWS: Final = BYTES // RECORD
"""Of a batch, as those of our source."""
DIFFERENT: Final = 8
"""Batches, so that one is not in the processor's caches any more when its turn comes again."""
TASK: Final = 64 * ROWS


class MadeSource(DataSource):
    """Options: ``columns``, as of our source, and ``rows``."""

    @classmethod
    def name(cls) -> str:
        return "made"

    def schema(self) -> StructType:
        return schema_of(self.options["columns"].split(","), headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(tuple(self.options["columns"].split(",")), int(self.options["rows"]))


class _Reader(DataSourceReader):
    def __init__(self, columns: tuple[str, ...], rows: int) -> None:
        self._columns, self._rows = columns, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None) for _ in range(self._rows // TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        made = _made(self._columns)
        for number in range(TASK // ROWS):
            yield made[number % DIFFERENT]


@cache
def _made(columns: tuple[str, ...]) -> list[pa.RecordBatch]:
    """Once in each worker, which is kept from looking at its modules after each task, as by our source."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(schema_of(columns, headers=False), timezone="UTC")
    value = {"key": b"12345678", "value": bytes(RECORD), "topic": "made"}
    made = [
        pa.RecordBatch.from_arrays(
            [pa.array([value.get(field.name, 0)] * ROWS).cast(field.type) for field in schema], schema=schema
        )
        for _ in range(DIFFERENT)
    ]
    gc.freeze()
    return made
