"""Converts a DataFrame of records to a DataFrame with the rows of the exported table."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.export.formats import BYTES, STRING, Form

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


def decoded(records: DataFrame, key: Form, value: Form) -> DataFrame:
    """Return the rows: ``key`` and ``value`` in the given formats, and ``date``, the day of the timestamp. A key or
    value that does not have its format is null there, and stays complete in ``keyBytes`` or ``valueBytes``. Raises
    PipelineError for a schema that Spark does not read."""
    rows = records
    for name, form in (("key", key), ("value", value)):
        if form.kind != BYTES:
            made = _made(records, name, form)
            bad = f.when(made.isNull() & f.col(name).isNotNull(), f.col(name))
            rows = rows.withColumn(f"{name}Bytes", bad).withColumn(name, made)
    more = [f"{name}Bytes" for name, form in (("key", key), ("value", value)) if form.kind != BYTES]
    return rows.withColumn("date", f.to_date("timestamp")).select(*COLUMNS, *more, "date")


def _made(records: DataFrame, name: str, form: Form) -> Column:
    text = f.try_validate_utf8(f.col(name).cast("string"))
    if form.kind == STRING:
        return text
    from pyspark.errors import PySparkException

    # In the mode PERMISSIVE, invalid JSON becomes a row of nulls: this column distinguishes the two.
    odd = "_milena_odd"
    try:
        read = f.from_json(text, f"{form.schema}, {odd} STRING", {"columnNameOfCorruptRecord": odd})
        records.select(read)
    except PySparkException as error:
        raise PipelineError(f"json:{form.schema}: {str(error).strip().splitlines()[0]}") from None
    return f.when(read[odd].isNull(), read.dropFields(odd))
