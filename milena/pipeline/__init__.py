"""The data pipeline: Spark reads what the brokers keep, and writes to them.

``register`` needs the extra ``spark``; nothing of it is imported before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> SparkSession:
    """Let ``spark`` know the format ``milena``, for reading and writing, batch and streaming; returns it.

    It may be called again. It also enables the pushdown of filters to Python sources: Spark 4.2 refuses to read from
    one that takes filters where it is disabled.
    """
    from pyspark.errors import AnalysisException

    from milena.pipeline.source import MilenaDataSource

    spark.conf.set(PUSHDOWN, "true")
    # Spark looks for a namesake in the active session, and registers in this one: make this one the active one.
    spark.createDataFrame([], "a int")
    try:
        spark.dataSource.register(MilenaDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark
