"""The source without Spark's JVM: it plans and reads in this process."""

from __future__ import annotations

from typing import Any

from milena.pipeline.reading import Task
from milena.pipeline.source import MilenaDataSource, MilenaReader

Row = dict[str, Any]


def reader_of(**options: object) -> MilenaReader:
    """Return a reader of the source with these options, whose names may have ``__`` for a dot."""
    source = MilenaDataSource({name.replace("__", "."): str(value) for name, value in options.items()})
    reader = source.reader(source.schema())
    assert isinstance(reader, MilenaReader)
    return reader


def tasks(reader: MilenaReader) -> list[Task]:
    found = list(reader.partitions())
    assert all(isinstance(one, Task) for one in found)
    return found  # type: ignore[return-value]


def rows_of(reader: MilenaReader) -> list[Row]:
    return [row for task in tasks(reader) for made in reader.read(task) for row in made.to_pylist()]


def rows(**options: object) -> list[Row]:
    """Read the topic ``orders``."""
    return rows_of(reader_of(**{"subscribe": "orders", **options}))


def offsets(**options: object) -> list[int]:
    return [row["offset"] for row in rows(**options)]
