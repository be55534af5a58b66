"""The last offset of each key, as functions on DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from milena.pipeline.jobs.compact.reading import NONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def records(scanned: DataFrame) -> DataFrame:
    """``group``, ``offset``, ``hash`` of the records that count. ``scanned``: rows of SCANNED."""
    return scanned.where(f.col("offset") != NONE).select("group", "offset", "hash")


def summaries(scanned: DataFrame) -> DataFrame:
    """The last rows of sources: few, however large those are."""
    return scanned.where(f.col("offset") == NONE).select("source", "open", "ended", "epoch")


def with_winners(rows: DataFrame, parts: int) -> DataFrame:
    """``rows``: of ``records``; with ``winner``, the last offset of the hash."""
    together = rows.repartition(parts, "hash")
    return together.withColumn("winner", f.max("offset").over(Window.partitionBy("hash")))


def in_groups(rows: DataFrame, groups: DataFrame, parts: int) -> DataFrame:
    """``group``, ``offset``, ``winner``: a group's together and in order. Each begins with a row that has the offset
    NONE, so that one without records is there, too. ``groups``: those that are wanted."""
    first = groups.select("group", f.lit(NONE).cast("long").alias("offset"), f.lit(NONE).cast("long").alias("winner"))
    every = rows.select("group", "offset", "winner").join(groups, "group", "left_semi").unionByName(first)
    return every.repartition(parts, "group").sortWithinPartitions("group", "offset")


def sorted_keys(rows: DataFrame, parts: int) -> DataFrame:
    """``hash`` and ``offset``, by hash, the last offset of each first; from part to part, too."""
    order = f.col("hash").asc(), f.col("offset").desc()
    return rows.select("hash", "offset").repartitionByRange(parts, *order).sortWithinPartitions(*order)
