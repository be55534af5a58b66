"""Splits a history by parts, and judges them: what tasks do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.history.rules import HistoryRules, PartName
from milena.pipeline.jobs.rows import Row, as_arrow, as_columns

if TYPE_CHECKING:
    import pyarrow as pa

LineRow = tuple[int | None, str | None, int | None, int, bool, bytes]
SPLIT: Final = 32 << 20
"""Bytes of the file that a task reads."""
ROWS: Final = 5_000
PIECES: Final = StructType([StructField("begin", LongType()), StructField("end", LongType())])
"""Bytes of the file: ``end`` exclusive."""
LINES: Final = StructType(
    [
        StructField("kind", IntegerType()),
        StructField("name", StringType()),
        StructField("number", IntegerType()),
        StructField("at", LongType()),
        StructField("shared", BooleanType()),
        StructField("line", BinaryType()),
    ]
)
"""``kind`` to ``number``: the part, null for a line that is only shared; ``at``: its place in the file."""
VERDICTS: Final = StructType(
    [
        StructField("kind", IntegerType()),
        StructField("name", StringType()),
        StructField("number", IntegerType()),
        StructField("events", LongType()),
        StructField("place", IntegerType()),
        StructField("anomaly", StringType()),
        StructField("where", StringType()),
        StructField("text", StringType()),
    ]
)
"""A part with ``events`` has one row with ``place`` -1, and one for each anomaly, in order."""


def pieces(size: int) -> list[tuple[int, int]]:
    """Of a file of so many bytes: rows of PIECES."""
    return [(at, min(size, at + SPLIT)) for at in range(0, size, SPLIT)]


@dataclass(frozen=True, slots=True)
class Splitting:
    """For ``mapInArrow``: PIECES become LINES. A last line that was not written to its end counts for nothing."""

    path: str
    rules: HistoryRules

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                rows = self.rows(piece["begin"], piece["end"])
                while held := list(islice(rows, ROWS)):
                    yield as_columns(zip(*held, strict=True), LINES)

    def rows(self, begin: int, end: int) -> Iterator[LineRow]:
        """The lines that begin in these bytes."""
        with open(self.path, "rb") as file:
            if begin:
                file.seek(begin - 1)
                at = begin - 1 + len(file.readline())
            else:
                at = 0
            while at < end and (line := file.readline()):
                row = self._row(at, line)
                at += len(line)
                if row is not None:
                    yield row

    def _row(self, at: int, line: bytes) -> LineRow | None:
        if line.isspace():
            return None
        try:
            part, shared = self.rules.place(line)
        except (ValueError, RecursionError) as error:
            if not line.endswith(b"\n"):
                return None
            raise bad_line(self.path, at, error) from None
        if part is None:
            return (None, None, None, at, True, line) if shared else None
        return part.kind, part.name, part.number, at, shared, line


def bad_line(path: str, at: int, error: Exception) -> PipelineError:
    """Which line of the file it is that begins at a byte, and what is wrong with it."""
    number = 1
    with open(path, "rb") as file:
        while at > 0:
            data = file.read(min(at, 1 << 20))
            number += data.count(b"\n")
            at -= len(data)
    return PipelineError(f"{path}, line {number}: {error}")


@dataclass(frozen=True, slots=True)
class Judging:
    """For ``mapInArrow``: LINES, those of a part together and in order, become VERDICTS."""

    path: str
    rules: HistoryRules
    shared: Sequence[tuple[PartName | None, bytes]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part, lines in groupby(_lines(batches), key=itemgetter(0)):
            counted = _Counted(lines)
            try:
                found = self.rules.judge(part, counted, self.shared)
            except (ValueError, RecursionError) as error:
                raise bad_line(self.path, counted.at, error) from None
            rows: list[Row] = [{**part._asdict(), "events": counted.count, "place": -1}]
            rows += [{**part._asdict(), "place": at, **one._asdict()} for at, one in enumerate(found)]
            names = VERDICTS.fieldNames()
            yield as_arrow([{name: row.get(name) for name in names} for row in rows], VERDICTS)


class _Counted:
    """Lines, how many there were, and where the last one begins."""

    def __init__(self, lines: Iterator[tuple[PartName, int, bytes]]) -> None:
        self._lines = lines
        self.count = 0
        self.at = 0

    def __iter__(self) -> Iterator[bytes]:
        for _, at, line in self._lines:
            self.at = at
            self.count += 1
            yield line


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[PartName, int, bytes]]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("kind", "name", "number", "at", "line")]
        for kind, name, number, at, line in zip(*columns, strict=True):
            yield PartName(kind, name, number), at, line


def size_of(path: str) -> int:
    """Of a history. Raises PipelineError, also for a pipe, whose size nobody knows."""
    try:
        size = os.path.getsize(path)
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from None
    if not os.path.isfile(path):
        raise PipelineError(f"{path} is no file: tasks read the parts of one side by side")
    return size
