"""Small tables as rows of plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Row = dict[str, Any]


LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999 in ms, the last year that Python's datetime supports."""


def microseconds(milliseconds: int) -> int:
    """Convert a timestamp from ms to the microseconds of a row. A time before 1970 becomes 1970, and one after LAST_MS
    becomes LAST_MS: producers may write any timestamp."""
    return min(max(milliseconds, 0), LAST_MS) * 1000


def as_arrow(rows: list[Row], schema: StructType) -> pa.RecordBatch:
    """Return rows of ``schema`` as Arrow."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(schema, timezone="UTC"))


def frame_of(spark: SparkSession, rows: list[Row], schema: StructType) -> DataFrame:
    """Return a DataFrame of rows on the driver."""
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_batches([as_arrow(rows, schema)]), schema)
