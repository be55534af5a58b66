"""The job ``export``: appends new records of topics to a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milena.pipeline.jobs.export.commits import DATA, SETTINGS, STAGING, Export
from milena.pipeline.jobs.export.decoding import COLUMNS, decoded
from milena.pipeline.jobs.export.formats import Form
from milena.pipeline.jobs.lock import locked_folder
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.units import UNIT_BYTES, planned, records_of
from milena.pipeline.options import SourceOptions, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET: Final = "parquet"
DELTA: Final = "delta"
PARTITIONED: Final = ("topic", "date")
"""The columns by which the table is divided into folders."""
AS_IT_IS: Final = Form()


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of a run. ``offsets``: how many offsets this run exported; ``commits``: the number of commits of all
    runs; ``table``: the path of the table."""

    offsets: int
    commits: int
    table: str


def export(
    spark: SparkSession,
    place: Mapping[str, str],
    chosen: Mapping[str, str],
    folder: str,
    *,
    key: Form = AS_IT_IS,
    value: Form = AS_IT_IS,
    form: str = PARQUET,
    progress: Progress = silent,
) -> Exported:
    """Append the new records of topics to the table in ``folder``/data, each record once. ``form``: PARQUET, or DELTA
    in a session that has Delta Lake. ``place``: the source's options for the location of the records; ``chosen``: those
    for the topics. Raises PipelineError, DataLoss if offsets after the last exported ones no longer exist."""
    options = source_options({**place, **chosen})
    settings = {"key": f"{key.kind}:{key.schema}", "value": f"{value.kind}:{value.schema}", "format": form}
    with locked_folder(folder, SETTINGS, "export"):
        return _exported(spark, place, options, Export.opened(folder, settings), key, value, form, progress)


def _exported(
    spark: SparkSession,
    place: Mapping[str, str],
    options: SourceOptions,
    table: Export,
    key: Form,
    value: Form,
    form: str,
    progress: Progress,
) -> Exported:
    noted = table.noted()
    begun = table.position if noted is None else table.position.advanced(noted.ends, noted.ids)
    units = ([] if noted is None else [noted]) + planned(options, begun, UNIT_BYTES)
    whole, done = sum(unit.size for unit in units), 0
    progress("exported", 0, whole, "bytes")
    for unit in units:
        rows = decoded(records_of(spark, {**place, "includeHeaders": "true"}, unit, COLUMNS), key, value)
        if form == DELTA:
            table.note(unit)
            _append(rows, table)
        else:
            rows.write.mode("overwrite").partitionBy(*PARTITIONED).parquet(table.path(STAGING))
        table.commit(unit)
        done += unit.size
        progress("exported", done, whole, "bytes")
    return Exported(sum(unit.offsets for unit in units), table.commits, table.path(DATA))


def _append(rows: DataFrame, table: Export) -> None:
    """Append to a Delta table, which ignores a version number that it already has of the same application."""
    writer = rows.write.format(DELTA).mode("append").partitionBy(*PARTITIONED)
    writer.option("txnAppId", "milena-export").option("txnVersion", table.commits).save(table.path(DATA))
