"""Rows of tasks that are not worth columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Row = dict[str, Any]


LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last that Python knows."""


def microseconds(milliseconds: int) -> int:
    """A time as rows have it. One before 1970 is that, one behind LAST_MS is this: a producer may write any."""
    return min(max(milliseconds, 0), LAST_MS) * 1000


def as_arrow(rows: list[Row], schema: StructType) -> pa.RecordBatch:
    """Rows of ``schema``."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(schema, timezone="UTC"))


def frame_of(spark: SparkSession, rows: list[Row], schema: StructType) -> DataFrame:
    """A DataFrame of rows that the driver has."""
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_batches([as_arrow(rows, schema)]), schema)
