"""The job ``profile``: computes statistics of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import IntegerType, StructField, StructType

from milena.pipeline.jobs.profile import tables
from milena.pipeline.jobs.profile.page import page_of
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.results import Results, shown, topics_of
from milena.pipeline.jobs.units import UNIT_BYTES, Unit, not_in_tier, planned, records_of
from milena.pipeline.jobs.units_text import remaining_text
from milena.pipeline.options import SourceOptions, source_options
from milena.pipeline.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: Final = ("partition-parts", "rate-parts", "key-parts", "topics", "partitions", "rates", "keys")


@dataclass(frozen=True, slots=True)
class Profiled:
    """The result of a profile. ``offsets``: the number of offsets read; ``page``: the path of the page."""

    offsets: int
    page: str


def profile(
    spark: SparkSession,
    place: Mapping[str, str],
    chosen: Mapping[str, str],
    folder: str,
    *,
    progress: Progress = silent,
) -> Profiled:
    """Profile topics, into ``folder``: tables ``topics``, ``partitions``, ``rates``, ``keys``, and a page.

    ``place``: the source's options for the location of the records; ``chosen``: those for the topics. Raises
    PipelineError."""
    options = source_options({**place, **chosen})
    with Results.begun(folder, "profile", {**shown(place), "topics": topics_of(options.chosen)}, TABLES) as results:
        return _profiled(spark, place, options, results, progress)


def _profiled(
    spark: SparkSession, place: Mapping[str, str], options: SourceOptions, results: Results, progress: Progress
) -> Profiled:
    if results.plan is None:
        results.plan = [unit.plain() for unit in planned(options, Position(), UNIT_BYTES)]
    units = units_of(results.plan)
    whole = sum(unit.size for unit in units)
    read = sum(unit.size for unit in units[: results.units_done()])
    progress("profiled", read, whole, "bytes")
    for number, unit in enumerate(units):
        if not results.is_done(number):
            _profile(spark, place, results, number, unit)
            read += unit.size
            progress("profiled", read, whole, "bytes")
    parts = results.read(spark, "partition-parts", tables.PARTITIONS)
    keys = StructType([*tables.KEYS.fields, StructField("unit", IntegerType())])
    made = {
        "topics": tables.topics(parts),
        "partitions": tables.partitions(parts),
        "rates": tables.rates(results.read(spark, "rate-parts", tables.RATES)),
        "keys": tables.keys(results.read(spark, "key-parts", keys)),
    }
    for name, frame in made.items():
        frame.coalesce(1).write.mode("overwrite").parquet(results.path(name))
    read_from = {**shown(place)}
    if not options.bootstrap:
        read_from["not in the tier"] = remaining_text(not_in_tier(options))
    page = page_of(read_from, {name: spark.read.parquet(results.path(name)) for name in made})
    return Profiled(sum(unit.offsets for unit in units), results.finish(page))


def _profile(spark: SparkSession, place: Mapping[str, str], results: Results, number: int, unit: Unit) -> None:
    """Write the three tables of a unit. Spark caches the unit's records in memory or on disk, so that they are read
    once."""
    from pyspark import StorageLevel
    from pyspark.sql.functions import lit

    records = tables.sized(records_of(spark, place, unit, tables.COLUMNS)).persist(StorageLevel.DISK_ONLY)
    try:
        results.write("partition-parts", number, tables.by_partition(tables.late(records)))
        results.write("rate-parts", number, tables.by_time(records))
        results.write("key-parts", number, tables.by_key(records).withColumn("unit", lit(number)))
        results.done(number)
    finally:
        records.unpersist()


def units_of(plan: object) -> list[Unit]:
    """Return the units of a stored plan."""
    assert isinstance(plan, list)
    return [Unit.of(one) for one in plan]
