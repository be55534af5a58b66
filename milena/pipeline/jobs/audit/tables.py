"""The tables of an audit, computed from the checked segments: functions from DataFrame to DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milena.tiered.offline.findings import (
    LEFTOVER,
    ORPHAN,
    REJECTED,
    REPLACED,
    UNDELETED,
    UNFINISHED,
    UNREFERENCED,
)

UNREAD: Final = (ORPHAN, UNDELETED, UNFINISHED, UNREFERENCED, REPLACED, REJECTED)
"""The kinds of findings about segments that no reader uses: they only cost storage."""
GIB: Final = 1 << 30


def of_segments(checked: DataFrame) -> DataFrame:
    """Return the FINDINGS about single segments in CHECKED."""
    every = checked.select("topic", "topicId", "partition", "segmentId", f.explode("found").alias("one"))
    return every.select("one.kind", "topic", "topicId", "partition", "segmentId", "one.what", "one.harmless")


def referenced(checked: DataFrame, findings: DataFrame) -> DataFrame:
    """Return CHECKED with a column ``unread``: the reason why the segment is never read, or null. ``findings``:
    FINDINGS."""
    whole = findings.where(f.col("kind") == LEFTOVER).select("topicId", "partition").distinct()
    why = findings.where(f.col("kind").isin(*UNREAD)).groupBy("segmentId").agg(f.min("kind").alias("kind"))
    left = checked.join(f.broadcast(whole.withColumn("left", f.lit(LEFTOVER))), ["topicId", "partition"], "left")
    return (
        left.join(why, "segmentId", "left")
        .withColumn("unread", f.coalesce("kind", "left"))
        .drop("kind", "left")
        .select(*checked.columns, "unread")
    )


def by_topic(segments: DataFrame, price: float) -> DataFrame:
    """Return one row per topic from ``referenced``: sizes, ages, and the cost of the unread segments per month at
    ``price`` per GiB. ``oldest`` is the lowest timestamp of a batch's first record, ``newest`` the highest one."""
    unread = f.when(f.col("unread").isNotNull(), f.col("size")).otherwise(0)
    return (
        segments.groupBy("topic")
        .agg(
            f.countDistinct("topicId", "partition").alias("partitions"),
            f.count("*").alias("segments"),
            f.sum("records").alias("records"),
            f.sum("batches").alias("batches"),
            f.sum("size").alias("bytes"),
            f.min("oldest").alias("oldest"),
            f.max("newest").alias("newest"),
            f.sum(unread).alias("unreadBytes"),
            f.count("unread").alias("unreadSegments"),
        )
        .withColumn("unreadCost", f.col("unreadBytes") / GIB * price)
    )


def by_day(segments: DataFrame) -> DataFrame:
    """Return the bytes by topic and by day of the segments' newest record. ``segments``: the result of
    ``referenced``."""
    day = f.to_date(f.coalesce("newest", "modified")).alias("day")
    return segments.groupBy("topic", day).agg(f.sum("size").alias("bytes"), f.count("*").alias("segments"))


def by_epoch(checked: DataFrame) -> DataFrame:
    """Return the leader epochs of each partition: in how many segments of CHECKED they have batches, and the offsets of
    these batches."""
    return (
        checked.select("topic", "topicId", "partition", "startOffset", "endOffset", f.explode("epochs").alias("epoch"))
        .groupBy("topic", "topicId", "partition", "epoch")
        .agg(
            f.count("*").alias("segments"),
            f.min("startOffset").alias("firstSegment"),
            f.max("endOffset").alias("lastOffset"),
        )
    )


def by_kind(findings: DataFrame) -> DataFrame:
    """Return the number of FINDINGS of each kind."""
    return findings.groupBy("kind", "harmless").agg(f.count("*").alias("count"))
