"""The job ``audit``: checks all segments of a tier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.audit import tables
from milena.pipeline.jobs.audit.checks import CHECKED, FINDINGS, LineageChecks, SegmentChecks, rows_of
from milena.pipeline.jobs.audit.inventory import SEGMENTS, Inventory, NotTiered, inventory
from milena.pipeline.jobs.audit.page import page_of
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.results import Results, topics_of
from milena.pipeline.jobs.rows import Row, frame_of
from milena.pipeline.options import SourceOptions
from milena.tiered.store.remote_storage import RemoteStorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_BYTES: Final = 1 << 30
"""The maximum bytes of segments in a unit of work, unless it has only one segment."""
MAX_SEGMENTS: Final = 10_000
"""The maximum number of segments in a unit of work."""
TABLES: Final = ("checked", "segments", "findings", "topics", "epochs", "days")


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of an audit. ``segments``: the number of segments; ``findings``: the number of findings that are not
    harmless; ``page``: the path of the page."""

    segments: int
    findings: int
    page: str


def audit(
    spark: SparkSession,
    options: SourceOptions,
    folder: str,
    *,
    price: float = 0.0,
    not_tiered: NotTiered = lambda _: None,
    progress: Progress = silent,
) -> Audited:
    """Audit the tier in ``options``, and write the tables ``segments``, ``findings``, ``topics`` and ``epochs``, and a
    page to ``folder``. ``price``: of a GiB of storage per month. ``not_tiered``: returns the reason why a partition
    should have no segments in the tier, or None if it may have some.

    Raises PipelineError."""
    settings = {"tier": options.tier, "metadata": list(options.metadata), "topics": topics_of(options.chosen)}
    with Results.begun(folder, "audit", settings, TABLES) as results:
        return _audited(spark, options, results, price, not_tiered, progress)


def _audited(
    spark: SparkSession,
    options: SourceOptions,
    results: Results,
    price: float,
    not_tiered: NotTiered,
    progress: Progress,
) -> Audited:
    try:
        first = inventory(options, not_tiered)
        _check_all(spark, options, results, first, progress)
        again = inventory(options, not_tiered)
    except RemoteStorageError as error:
        raise PipelineError(f"option tier={options.tier}: {error}") from None
    checked = _still_there(spark, results.read(spark, "checked", CHECKED), first.rows)
    found = _findings(spark, options, first, checked)
    findings = with_resolved(found, _keys(spark, changed_rows(first.rows, again.rows)))
    findings.write.mode("overwrite").parquet(results.path("findings"))
    findings = spark.read.schema(FINDINGS).parquet(results.path("findings"))
    segments = tables.referenced(checked, findings)
    made = {
        "topics": tables.by_topic(segments, price),
        "epochs": tables.by_epoch(checked),
        "days": tables.by_day(segments),
    }
    segments.drop("found", "metadata").write.mode("overwrite").parquet(results.path("segments"))
    for name, frame in made.items():
        frame.coalesce(1).write.mode("overwrite").parquet(results.path(name))
    bad = findings.where("not harmless").count()
    page = page_of(
        options, {name: spark.read.parquet(results.path(name)) for name in made}, findings, price, first.not_in_tier
    )
    return Audited(len(first.rows), bad, results.finish(page))


def _check_all(
    spark: SparkSession, options: SourceOptions, results: Results, found: Inventory, progress: Progress
) -> None:
    """Read and check the segments unit by unit, except those that an earlier, interrupted run of the job has
    checked."""
    done = {_state(row) for row in results.read(spark, "checked", CHECKED).select(*STATE).toLocalIterator()}
    unchecked = [row for row in found.rows if (row["segmentId"], row["state"], row["size"]) not in done]
    total = sum(_size(row) for row in found.rows)
    read = total - sum(_size(row) for row in unchecked)
    checks = SegmentChecks(options.tier, options.storage_options, found.newest_ms)
    progress("read", read, total, "bytes")
    for number, rows in enumerate(units(unchecked), results.units_done()):
        size = sum(map(_size, rows))
        parts = min(len(rows), max(spark.sparkContext.defaultParallelism * 2, size // options.partition_bytes))
        frame = frame_of(spark, rows, SEGMENTS).repartition(max(1, parts), "segmentId")
        results.write("checked", number, frame.mapInArrow(checks, CHECKED))
        results.done(number)
        read += size
        progress("read", read, total, "bytes")


STATE: Final = ("segmentId", "state", "size")
"""The columns by which a segment is recognized: if all three are equal, the segment has not changed."""


def _state(row: object) -> tuple[object, object, object]:
    return row["segmentId"], row["state"], row["size"]  # type: ignore[index]


def _size(row: Row) -> int:
    size = row["size"]
    assert isinstance(size, int)
    return size


def units(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the segments of each unit of work."""
    unit_rows: list[Row] = []
    size = 0
    for row in rows:
        if unit_rows and (size + _size(row) > MAX_BYTES or len(unit_rows) >= MAX_SEGMENTS):
            yield unit_rows
            unit_rows, size = [], 0
        unit_rows.append(row)
        size += _size(row)
    if unit_rows:
        yield unit_rows


def _still_there(spark: SparkSession, checked: DataFrame, rows: list[Row]) -> DataFrame:
    """Return those rows of ``checked`` whose segment is in ``rows`` in the same state."""
    keys = frame_of(spark, rows, SEGMENTS).select(*STATE).distinct()
    joined = [keys[name].eqNullSafe(checked[name]) for name in STATE]
    return checked.join(keys, joined, "left_semi").dropDuplicates(["segmentId"])


def _findings(spark: SparkSession, options: SourceOptions, found: Inventory, checked: DataFrame) -> DataFrame:
    lineages = LineageChecks(options.tier, options.storage_options, found.facts)
    # Spark counts the parameters of the function, including self, so it gets a lambda with one.
    of_lineage = checked.groupBy("topicId", "partition").applyInArrow(lambda table: lineages(table), FINDINGS)
    return (
        tables.of_segments(checked)
        .unionByName(of_lineage)
        .unionByName(frame_of(spark, rows_of(found.findings), FINDINGS))
    )


def changed_rows(before: Iterable[Row], after: Iterable[Row]) -> list[Row]:
    """Return the segments that a running cluster has added, changed or removed between two inventories."""
    now = {row["segmentId"]: _state(row) for row in after}
    then = {row["segmentId"]: row for row in before}
    new = [row for row in after if row["segmentId"] not in then]
    return [row for one, row in then.items() if now.get(one) != _state(row)] + new


def _keys(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return frame_of(spark, rows, SEGMENTS).select("topicId", "partition", "segmentId")


def with_resolved(findings: DataFrame, changed: DataFrame) -> DataFrame:
    """Return ``findings``, with those marked as harmless that a running cluster may have resolved during the audit:
    findings about a segment in ``changed`` (``topicId``, ``partition``, ``segmentId``), and findings about a partition
    with such a segment."""
    segments = changed.select("segmentId").distinct().withColumn("changed", f.lit(True))
    partitions = changed.select("topicId", "partition").distinct().withColumn("touched", f.lit(True))
    both = findings.join(f.broadcast(segments), "segmentId", "left")
    both = both.join(f.broadcast(partitions), ["topicId", "partition"], "left")
    of_partition = f.col("segmentId").isNull() & f.col("touched").isNotNull()
    return both.withColumn("harmless", f.col("harmless") | f.col("changed").isNotNull() | of_partition).select(
        *FINDINGS.fieldNames()
    )
