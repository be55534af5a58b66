"""The data pipeline: Spark reads what the brokers keep, and writes to them.

``register`` needs the extra ``spark``; nothing of it is imported before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Spark refuses to read from a Python source that takes filters where this is not true."""


def register(spark: SparkSession) -> SparkSession:
    """Let ``spark`` know the format ``milena``, for reading and writing, batch and streaming; returns it.

    It may be called again. The pushdown of filters (PUSHDOWN) stays as it is: only option ``pushFilters`` needs it.
    """
    from pyspark.errors import AnalysisException

    from milena.pipeline.source import MilenaDataSource

    # Spark looks for a namesake in the active session, and registers in this one: make this one the active one.
    spark.createDataFrame([], "a int")
    try:
        spark.dataSource.register(MilenaDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark
