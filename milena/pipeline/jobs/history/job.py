"""The job ``history``: a file is split by parts into buckets on disk, and then the parts of one bucket after the other
are judged. In a task's memory is what one part's judge keeps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StructField, StructType

from milena.pipeline.jobs.history.lines import LINES, PIECES, VERDICTS, Judging, Splitting, pieces, size_of
from milena.pipeline.jobs.history.rules import Found, HistoryRules, PartName
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.results import Results
from milena.pipeline.jobs.rows import frame_of
from milena.report.contents import Cell, Facts, Section, Table
from milena.report.page import page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET: Final = 512 << 20
"""Bytes of the file that are one unit."""
MOST: Final = 500
"""Anomalies on the page, and in the answer; Parquet has all of them."""
BUCKETS: Final = StructType([*LINES.fields, StructField("bucket", IntegerType())])
TABLES: Final = ("lines", "verdicts", "parts", "anomalies")
ORDER: Final = ("kind", "name", "number", "place")


@dataclass(frozen=True, slots=True)
class Judged:
    """``anomalies``: how many, of which ``first`` are the first ones in order. ``events`` without those that all parts
    share. ``page``: its path."""

    events: int
    anomalies: int
    first: list[Found]
    page: str


def history(
    spark: SparkSession,
    path: str,
    rules: HistoryRules,
    folder: str,
    *,
    about: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Judged:
    """Judge a history into ``folder``: tables ``parts`` and ``anomalies``, and a page. ``about``: the settings of the
    rules; a job goes on only with the same.

    Raises PipelineError, also for a line that is no event."""
    size = size_of(path)
    settings = {"file": os.path.abspath(path), "bytes": size, "changed": os.stat(path).st_mtime_ns, **(about or {})}
    with Results.begun(folder, "history", settings, TABLES) as results:
        return _history(spark, path, rules, size, results, progress)


def _history(
    spark: SparkSession, path: str, rules: HistoryRules, size: int, results: Results, progress: Progress
) -> Judged:
    count = max(1, -(-size // BUCKET))
    progress("judged", 0, size, "bytes")
    if not results.is_done(0):
        results.write("lines", 0, split(spark, path, size, rules, count), by="bucket")
        results.done(0)
    lines = results.path("lines", "unit=0")
    every = spark.read.schema(BUCKETS).parquet(lines)
    common = [
        (None if row.kind is None else PartName(row.kind, row.name, row.number), bytes(row.line))
        for row in every.where("shared").orderBy("at").toLocalIterator()
    ]
    for bucket in range(count):
        if not results.is_done(bucket + 1):
            own = every.where((f.col("bucket") == bucket) & f.col("kind").isNotNull()).drop("bucket")
            results.write("verdicts", bucket + 1, judged(own, Judging(path, rules, common)))
            results.done(bucket + 1)
        progress("judged", size * (bucket + 1) // count, size, "bytes")
    verdicts = results.read(spark, "verdicts", VERDICTS)
    verdicts.where("place < 0").drop("place", "anomaly", "where", "text").write.mode("overwrite").parquet(
        results.path("parts")
    )
    anomalies = verdicts.where("place >= 0").drop("events")
    anomalies.write.mode("overwrite").parquet(results.path("anomalies"))
    ended = _ended(results, spark, path)
    shutil.rmtree(results.path("lines"), ignore_errors=True)  # a job that is killed before reads them again
    return ended


def split(spark: SparkSession, path: str, size: int, rules: HistoryRules, buckets: int) -> DataFrame:
    """LINES of a file, with their ``bucket``."""
    rows = [{"begin": begin, "end": end} for begin, end in pieces(size)]
    frame = frame_of(spark, rows, PIECES).repartition(max(1, len(rows)))
    lines = frame.mapInArrow(Splitting(os.path.abspath(path), rules), LINES)
    return lines.withColumn("bucket", f.abs(f.hash("kind", "name", "number")) % buckets)


def judged(lines: DataFrame, judging: Judging) -> DataFrame:
    """LINES to VERDICTS."""
    part = ("kind", "name", "number")
    return lines.repartition(*part).sortWithinPartitions(*part, "at").mapInArrow(judging, VERDICTS)


def _ended(results: Results, spark: SparkSession, path: str) -> Judged:
    parts, anomalies = spark.read.parquet(results.path("parts")), spark.read.parquet(results.path("anomalies"))
    events = parts.agg(f.coalesce(f.sum("events"), f.lit(0)).alias("events")).collect()[0].events
    kinds = anomalies.groupBy("anomaly").agg(f.count("*").alias("count")).orderBy("anomaly").collect()
    found = sum(one["count"] for one in kinds)
    first = [Found(one.anomaly, one["where"], one.text) for one in anomalies.orderBy(*ORDER).limit(MOST).collect()]
    rows: list[list[Cell]] = [list(one) for one in first]
    largest = parts.orderBy("events", ascending=False).limit(MOST).collect()
    of_parts: list[list[Cell]] = [[one.name or "topics", one.number, one.events] for one in largest]
    bad = frozenset(range(len(rows)))
    sections: list[Section] = [
        Facts("What was judged", {"file": path, "events": f"{events:,}", "parts": f"{parts.count():,}"}),
        Table("Anomalies by kind", ["anomaly", "how many"], [[one.anomaly, one["count"]] for one in kinds]),
        Table("Anomalies", ["anomaly", "where", "what"], rows, f"The first {MOST} at most.", bad),
        Table("Parts", ["topic or group", "partition", "events"], of_parts, folded=True),
    ]
    verdict = f"{found or 'No'} anomal{'y' if found == 1 else 'ies'} in {events:,} events."
    return Judged(events, found, first, results.finish(page("A history, judged", verdict, sections, good=not found)))
