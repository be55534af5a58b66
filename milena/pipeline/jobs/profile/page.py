"""The HTML page of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from milena.pipeline.jobs.profile.tables import STEP
from milena.pipeline.jobs.units_text import bytes_text, time_text
from milena.report.contents import Cell, Facts, Plot, Plots, Section, Series, Table
from milena.report.gaps import with_gaps
from milena.report.page import page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MAX_ROWS: Final = 100
"""The maximum number of rows of a table on the page; the Parquet files have all of them."""
MAX_PLOTTED_TOPICS: Final = 12
"""The maximum number of topics in a plot; the largest ones are shown."""
MAX_POINTS: Final = 1500
"""The maximum number of points of a topic in a plot."""


def page_of(place: Mapping[str, str], tables: Mapping[str, DataFrame]) -> str:
    """Return the page. ``tables``: the tables ``topics``, ``partitions``, ``rates`` and ``keys`` by name."""
    topics = tables["topics"].orderBy("records", ascending=False).limit(MAX_ROWS).collect()
    names = [one.topic for one in topics[:MAX_PLOTTED_TOPICS]]
    sums = ("count(*)", "coalesce(sum(records), 0)", "coalesce(sum(keyBytes + valueBytes), 0)")
    count, records, size = tables["topics"].selectExpr(*sums).collect()[0]
    verdict = f"{records:,} records in {count:,} topic{'' if count == 1 else 's'}, {bytes_text(size)}."
    partitions = tables["partitions"].orderBy("topic", "partition").limit(MAX_ROWS).collect()
    sections: list[Section] = [
        Facts("What was read", {name: value for name, value in place.items() if value}),
        _topics(topics),
        _rates(tables["rates"], names),
        _keys(tables["keys"]),
        _skew(tables["keys"], names),
        _partitions(partitions),
        _lateness(topics),
    ]
    return page("Profile of topics", verdict, sections, coloured=[one.topic for one in topics])


def _topics(topics: list[Row]) -> Table:
    columns = [
        *("topic", "partitions", "records", "bytes", "size p50", "size p99", "largest", "distinct keys"),
        *("without key", "tombstones", "skew of partitions", "first", "last"),
    ]
    rows: list[list[Cell]] = [
        [
            *(one.topic, one.partitions, one.records, one.keyBytes + one.valueBytes),
            *(one.sizes50, one.sizes99, one.largest, one.distinctKeys, one.nullKeys, one.nullValues, one.skew),
            *(time_text(one.first), time_text(one.last)),
        ]
        for one in topics
    ]
    note = (
        "Sizes are bytes of key and value without headers, uncompressed. Quantiles and distinct keys are estimates by "
        "sketches. Skew: records of the largest partition, to the mean of those that have any."
    )
    return Table("Topics", columns, rows, note)


def _rates(rates: DataFrame, names: list[str]) -> Plots:
    from pyspark.sql import functions as f

    kept = rates.where(f.col("topic").isin(names))
    span = kept.agg(f.min(f.unix_seconds("time")), f.max(f.unix_seconds("time"))).first()
    assert span is not None
    begin, end = span[0] or 0, span[1] or 0
    step = STEP * max(1, -(-(end - begin) // (STEP * MAX_POINTS)))
    time = f.timestamp_seconds(f.floor(f.unix_seconds("time") / step) * step).alias("time")
    merged = kept.groupBy("topic", time).agg(f.sum("records").alias("records"), f.sum("bytes").alias("bytes"))
    of_topic: dict[str, list[Row]] = {}
    for one in merged.orderBy("time").collect():
        of_topic.setdefault(one.topic, []).append(one)
    plots = []
    for title, unit, column, scale in (("records", "per second", "records", 1), ("bytes", "KiB/s", "bytes", 1024)):
        series = []
        for name, rows in of_topic.items():
            times = [row.time for row in rows]
            xs, ys = with_gaps(times, [row[column] / step / scale for row in rows], timedelta(seconds=step))
            series.append(Series(name, [f"{time:%Y-%m-%d %H:%M:%S}" for time in xs], ys))
        plots.append(Plot(title, unit, series))
    note = f"Means over {step} s. Intervals without records are gaps."
    return Plots("Rates", "timestamp of the records (UTC)", plots, note=note)


def _keys(keys: DataFrame) -> Table:
    top = keys.where("place <= 10").orderBy("topic", "place").limit(MAX_ROWS).collect()
    rows: list[list[Cell]] = [
        [one.topic, shown_key(bytes(one.key), one.length), one.records, one.bytes, one.missed] for one in top
    ]
    note = (
        "The ten most frequent ones of each topic. What was counted may be too low by so many as the last column says."
    )
    return Table("Keys", ["topic", "key", "records", "bytes", "missed at most"], rows, note)


def shown_key(key: bytes, length: int) -> str:
    """Return a key for people: as text if it is UTF-8, otherwise in hexadecimal digits. ``length``: the key's length in
    bytes; dots show that ``key`` is only its beginning."""
    text = key.decode(errors="replace")
    shown = text if text.isprintable() and "�" not in text else key.hex()
    return shown + ("…" if length > len(key) else "")


def _skew(keys: DataFrame, names: list[str]) -> Plots:
    series = []
    for name in names:
        counts = [one.records for one in keys.where(keys.topic == name).orderBy("place").limit(200).collect()]
        if counts:
            series.append(Series(name, [float(at) for at in range(1, len(counts) + 1)], [float(one) for one in counts]))
    return Plots("Skew of keys", "rank of the key", [Plot("records of a key", "count", series, logarithmic=True)])


def _partitions(partitions: list[Row]) -> Table:
    columns = ["partition", "records", "bytes", "offsets", "distinct keys", "size p50", "size p99"]
    rows: list[list[Cell]] = [
        [
            f"{one.topic}-{one.partition}",
            one.records,
            one.keyBytes + one.valueBytes,
            f"{one.firstOffset:,} to {one.lastOffset:,}",
            one.distinctKeys,
            one.sizes50,
            one.sizes99,
        ]
        for one in partitions
    ]
    return Table("Partitions", columns, rows, folded=len(rows) > 30)


def _lateness(topics: list[Row]) -> Table:
    rows: list[list[Cell]] = [[one.topic, one.backwards, one.lateness50, one.lateness99, one.latest] for one in topics]
    note = (
        "How far a record's timestamp lies behind the highest one before it in its partition: what a window over event "
        "times has to wait for."
    )
    return Table("Lateness", ["topic", "late records", "p50 (ms)", "p99 (ms)", "most (ms)"], rows, note)
