"""The job ``export``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milena.pipeline.jobs.export.commits import DATA, SETTINGS, STAGING, Export
from milena.pipeline.jobs.export.decoding import COLUMNS, decoded
from milena.pipeline.jobs.export.formats import Form
from milena.pipeline.jobs.lock import held
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.units import UNIT, planned, records_of
from milena.pipeline.options import SourceOptions, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET: Final = "parquet"
DELTA: Final = "delta"
PARTITIONED: Final = ("topic", "date")
"""The table's folders."""
AS_IT_IS: Final = Form()


@dataclass(frozen=True, slots=True)
class Exported:
    """``offsets``: exported by this run; ``commits``: of all runs; ``table``: its path."""

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
    """Append what is new in topics to the table in ``folder``/data, each record once. ``form``: PARQUET, or DELTA in a
    session that has Delta Lake.

    ``place``: the source's options that say where the records are; ``chosen``: those that say which. Raises
    PipelineError, DataLoss if offsets that should come next are not there any more."""
    options = source_options({**place, **chosen})
    settings = {"key": f"{key.kind}:{key.schema}", "value": f"{value.kind}:{value.schema}", "format": form}
    with held(folder, SETTINGS, "export"):
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
    begun = table.position if noted is None else table.position.behind(noted.ends, noted.ids)
    units = ([] if noted is None else [noted]) + planned(options, begun, UNIT)
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
