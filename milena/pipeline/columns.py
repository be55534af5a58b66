"""The columns of the source, and their conversion to Arrow. Columns that Spark's Kafka source also has have the same
names and types there."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from milena.pipeline.errors import PipelineError
from milena.protocol.records.batch import NO_SEQUENCE, BatchView
from milena.protocol.records.record_columns import BinaryColumn, RecordColumns

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
    "leaderEpoch": IntegerType(),
    "segmentId": StringType(),
    "producerId": LongType(),
    "producerEpoch": IntegerType(),
    "sequence": IntegerType(),
}
"""The names and types of all columns. ``segmentId`` is null for records that a broker served."""
OF_KAFKA: Final = frozenset({"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"})
"""The columns of Spark's Kafka source."""


def schema_of(columns: Sequence[str], *, headers: bool, only_kafkas: bool = False) -> StructType:
    """Return the schema of the given columns, or of all. ``headers``, ``only_kafkas``: whether the column ``headers``
    is included, and only the columns of Spark's Kafka source are, if ``columns`` is empty. Raises PipelineError."""
    if headers and columns and "headers" not in columns:
        raise PipelineError("option includeHeaders=true contradicts option columns, which lacks headers")
    all_names = [name for name in TYPES if name in OF_KAFKA or not only_kafkas]
    names = columns or [name for name in all_names if headers or name != "headers"]
    unknown = [name for name in names if name not in TYPES]
    if unknown:
        raise PipelineError(f"option columns: there is no column {unknown[0]}, but {', '.join(TYPES)}")
    return StructType([StructField(name, TYPES[name]) for name in names])


def check_schema(schema: StructType) -> None:
    """Raise PipelineError for a column that the source does not have, or that has another type."""
    for one in schema.fields:
        known = TYPES.get(one.name)
        if known is None:
            raise PipelineError(f"there is no column {one.name}, but {', '.join(TYPES)}")
        if one.dataType.simpleString() != known.simpleString():
            raise PipelineError(
                f"column {one.name} is of type {known.simpleString()}, not {one.dataType.simpleString()}: use cast()"
            )


class Assembler:
    """Collects records of one partition, all from the same segment or all from brokers, and converts them to an Arrow
    batch (``take``)."""

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._names = schema.fieldNames()
        self._wanted = frozenset(self._names)
        self._renew()

    def _renew(self) -> None:
        wanted = self._wanted
        self._columns = RecordColumns(keys="key" in wanted, values="value" in wanted, headers="headers" in wanted)
        self._repeated = {name: array(kind) for name, (kind, _) in _OF_BATCH.items() if name in wanted}
        self._sequences = array("i")

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def size(self) -> int:
        return self._columns.size

    def add(self, batch: BatchView, first: int, last: int) -> None:
        """Add the records with offsets from ``first`` to ``last``. Raises CorruptBatch."""
        columns = self._columns
        before = len(columns)
        try:
            columns.add(batch, first=first, last=last)
        finally:
            self._fill(batch, before)

    def _fill(self, batch: BatchView, before: int) -> None:
        """For the columns whose value is the same in all records of ``batch``, append the value until each column is as
        long as the number of records collected; ``before`` records were collected before this batch."""
        columns = self._columns
        count = len(columns) - before
        for name, values in self._repeated.items():
            kind, of = _OF_BATCH[name]
            values.extend(array(kind, (of(batch),)) * count)
        if "sequence" in self._wanted:
            start, base = batch.base_sequence, batch.base_offset
            if start == NO_SEQUENCE:
                self._sequences.extend(array("i", (NO_SEQUENCE,)) * count)
            else:
                self._sequences.extend(start + at - base & 0x7FFF_FFFF for at in columns.offsets[before:])

    def take(self, topic: str, partition: int, segment: str | None) -> pa.RecordBatch:
        """Return the collected records as an Arrow batch, and start with an empty collection. ``segment``: the id of
        the segment of all these records, None if brokers served them."""
        columns, count = self._columns, len(self._columns)
        constants: dict[str, pa.Scalar] = {
            "topic": pa.scalar(topic, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
            "segmentId": pa.scalar(segment, pa.string()),
        }
        made: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: _binary(columns.keys, pa.binary()),
            "value": lambda: _binary(columns.values, pa.binary()),
            "offset": lambda: _numbers(columns.offsets, pa.int64()),
            "timestamp": lambda: _times(columns, f"{topic}-{partition}"),
            "headers": lambda: _headers(columns),
            "sequence": lambda: _numbers(self._sequences, pa.int32()),
        }
        arrays = []
        for name in self._names:
            if name in constants:
                arrays.append(pa.repeat(constants[name], count))
            elif name in made:
                arrays.append(made[name]())
            else:
                values = self._repeated[name]
                arrays.append(_numbers(values, pa.int32() if values.typecode == "i" else pa.int64()))
        self._renew()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_OF_BATCH: Final[Mapping[str, tuple[str, Callable[[BatchView], int]]]] = {
    "timestampType": ("i", lambda batch: int(batch.timestamp_type)),
    "leaderEpoch": ("i", lambda batch: batch.leader_epoch),
    "producerId": ("q", lambda batch: batch.producer_id),
    "producerEpoch": ("i", lambda batch: batch.producer_epoch),
}


def _numbers(values: array[int], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _times(columns: RecordColumns, partition: str) -> pa.Array:
    """Return the timestamps in microseconds. Raises PipelineError for a timestamp whose microseconds do not fit in 64
    bits."""
    of_records = _numbers(columns.timestamps, pa.timestamp("ms", tz="UTC"))
    try:
        return of_records.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        time = max(columns.timestamps, key=abs)
        where = f"{partition}, offset {columns.offsets[columns.timestamps.index(time)]}"
        raise PipelineError(
            f"{where}: a timestamp of {time} ms is too large for Spark; option columns may leave timestamps out"
        ) from None


def _binary(column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    count = len(column.present)
    valid = None
    if 0 in column.present:
        present = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(column.present)])
        valid = present.cast(pa.bool_()).buffers()[1]
    large = pa.large_binary() if kind == pa.binary() else pa.large_string()
    buffers = [valid, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(large, count, buffers).cast(kind)


def _headers(columns: RecordColumns) -> pa.Array:
    """Return the column ``headers``. A record without headers has null there, as in Spark."""
    headers = columns.headers
    pairs = pa.StructArray.from_arrays(
        [_binary(headers.names, pa.string()), _binary(headers.values, pa.binary())], names=["key", "value"]
    )
    ends = headers.ends
    there = pa.array([ends[at] == ends[at + 1] for at in range(len(columns))], pa.bool_())
    offsets = _numbers(ends, pa.int64()).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, mask=there)
