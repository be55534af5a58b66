"""The data pipeline: a Spark source that reads topics from the tier and the brokers, a sink, and jobs.

``register`` needs the extra ``spark``, which is imported only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""The setting of Spark that must be true for a Python source that accepts filters; otherwise Spark refuses to read from
it."""


def register(spark: SparkSession) -> SparkSession:
    """Register the format ``milena`` with ``spark``, for reading and writing, batch and streaming; return ``spark``.

    Idempotent. The setting PUSHDOWN is not changed: only option ``pushFilters`` needs it.
    """
    from pyspark.errors import AnalysisException

    from milena.pipeline.source import MilenaDataSource

    # Spark looks for the name in the active session, but registers it in this one: make this session the active one.
    spark.createDataFrame([], "a int")
    try:
        spark.dataSource.register(MilenaDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark
