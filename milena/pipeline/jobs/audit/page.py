"""The HTML page of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Final

from milena.pipeline.jobs.audit.tables import by_kind
from milena.pipeline.jobs.units_text import bytes_text, remaining_text, time_text
from milena.pipeline.options import SourceOptions
from milena.report.contents import Cell, Facts, Plot, Plots, Section, Series, Table
from milena.report.page import page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST: Final = 200
"""The maximum number of rows of a table on the page; the Parquet files have all of them."""
MAX_PLOTTED_TOPICS: Final = 12
"""The maximum number of topics in a plot."""


def page_of(
    options: SourceOptions,
    tables: Mapping[str, DataFrame],
    findings: DataFrame,
    price: float,
    not_in_tier: Mapping[str, int] | None,
) -> str:
    """Return the page. ``tables``: the tables ``topics``, ``epochs`` and ``days`` by name; ``findings``: FINDINGS.
    ``price``: of a GiB per month. ``not_in_tier``: for each topic, the offsets that are not in the tier; None if that
    is unknown."""
    topics = tables["topics"].orderBy("bytes", ascending=False).limit(MOST).collect()
    kinds = by_kind(findings).orderBy("harmless", "kind").collect()
    bad = sum(one["count"] for one in kinds if not one.harmless)
    sums = ("segments", "bytes", "unreadBytes", "unreadCost")
    whole = tables["topics"].selectExpr(*(f"coalesce(sum({name}), 0)" for name in sums)).collect()[0]
    segments, size, unread, cost = whole
    verdict = f"{bad or 'No'} finding{'' if bad == 1 else 's'} in {segments:,} segments, {bytes_text(size)}."
    sections: list[Section] = [
        Facts(
            "What was audited",
            {
                "tier": options.tier,
                "metadata": list(options.metadata) or "none, only the files of the tier",
                "segments": f"{segments:,}",
                "size": bytes_text(size),
                "not in the tier": remaining_text(not_in_tier),
                "never read": bytes_text(unread) + (f", {cost:.2f} in a month" if price else ""),
            },
        )
    ]
    if kinds:
        rows: list[list[Cell]] = [[one.kind, "harmless" if one.harmless else "", one["count"]] for one in kinds]
        marked = frozenset(at for at, one in enumerate(kinds) if not one.harmless)
        sections.append(Table("Findings by kind", ["kind", "", "how many"], rows, bad=marked))
        sections.append(_found(findings))
    sections.append(_topics(topics, price))
    sections.append(_ages(tables["days"], [one.topic for one in topics]))
    epochs = tables["epochs"].orderBy("topic", "partition", "epoch").limit(MOST).collect()
    lines: list[list[Cell]] = [
        [f"{one.topic}-{one.partition}", one.epoch, one.segments, one.firstSegment, one.lastOffset] for one in epochs
    ]
    columns = ["partition", "leader epoch", "segments", "from the segment at", "up to"]
    sections.append(Table("Leader epochs", columns, lines, folded=True))
    return page("Audit of a tier", verdict, sections, good=not bad, coloured=[one.topic for one in topics])


def _found(findings: DataFrame) -> Table:
    first = findings.orderBy("harmless", "topic", "partition", "kind").limit(MOST).collect()
    rows: list[list[Cell]] = [
        [one.kind, "" if one.topic is None else f"{one.topic}-{one.partition}", one.segmentId or "", one.what]
        for one in first
    ]
    marked = frozenset(at for at, one in enumerate(first) if not one.harmless)
    return Table("Findings", ["kind", "partition", "segment", "what"], rows, f"At most the first {MOST} rows.", marked)


def _topics(topics: list[Row], price: float) -> Table:
    rows: list[list[Cell]] = []
    for one in topics:
        named = one.asDict()
        row: list[Cell] = [named[name] for name in ("topic", "partitions", "segments", "records", "bytes")]
        row += [time_text(named["oldest"]), time_text(named["newest"]), named["unreadBytes"]]
        rows.append([*row, named["unreadCost"]] if price else row)
    columns = ["topic", "partitions", "segments", "records", "bytes", "oldest", "newest", "bytes never read"]
    note = "Oldest: the lowest timestamp of a batch's first record. Newest: the highest timestamp of a record."
    return Table("Topics", [*columns, "cost in a month"] if price else columns, rows, note)


def _ages(days: DataFrame, topics: list[str]) -> Plots:
    found: dict[str, dict[date, int]] = {}
    for one in days.orderBy("day").collect():
        name = one.topic if one.topic in topics[:MAX_PLOTTED_TOPICS] else "others"
        of_day = found.setdefault(name, {})
        of_day[one.day] = of_day.get(one.day, 0) + one.bytes
    series = [
        Series(name, [str(day) for day in sorted(sizes)], [sizes[day] / (1 << 20) for day in sorted(sizes)], "bars")
        for name, sizes in found.items()
    ]
    note = "By the day of a segment's newest record."
    return Plots("Age of the data", "day", [Plot("size", "MiB", series)], note=note)
