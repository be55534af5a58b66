"""The rows of DataFrames as records to write.

Columns, as in Spark's Kafka sink: ``value``, and optionally ``key``, ``topic`` (option ``topic`` overrides it),
``headers`` and ``partition``; also ``timestamp``, which Spark's sink does not have.
"""

from __future__ import annotations

import os
import socket
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar

from pyspark.sql.types import StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.options import SinkOptions
from milena.protocol.records.record_cursor import Header

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
MOST_DESCRIPTORS: Final = 1024
"""Spark's worker opens its connection when it starts, so its descriptors are low."""
BYTES: Final = frozenset({"binary", "string"})
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "key": BYTES,
    "value": BYTES,
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "timestamp": frozenset({"timestamp"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
}


class SinkRecord(NamedTuple):
    """A record to write. ``partition``: None if the producer chooses it; ``timestamp``: ms, None for the time at which
    it is sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int | None
    headers: Sequence[Header]


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Check the columns of the DataFrame. Raises PipelineError for columns that cannot be written."""
    names = schema.fieldNames()
    for one in schema.fields:
        if names.count(one.name) > 1:
            raise PipelineError(f"column {one.name} occurs {names.count(one.name)} times: use select()")
        kind = one.dataType.simpleString()
        if one.name not in KINDS:
            raise PipelineError(f"column {one.name} cannot be written; there are {', '.join(KINDS)}: use select()")
        if kind not in KINDS[one.name]:
            wanted = " or ".join(sorted(KINDS[one.name]))
            raise PipelineError(f"column {one.name} is of type {kind}, not {wanted}: use cast()")
    if "value" not in schema.fieldNames():
        raise PipelineError("there is no column value to write")
    if not options.topic and "topic" not in schema.fieldNames():
        raise PipelineError("specify the topic to write to, by option topic or a column topic")


def records_of(topic: str, batch: pa.RecordBatch) -> Iterator[SinkRecord]:
    """Yield the records of rows. ``topic``: the option; if it is empty, the column determines the topic. Raises
    PipelineError for a row that cannot be written."""
    count, names = batch.num_rows, set(batch.schema.names)

    def column(name: str) -> Sequence[Any]:
        return _values(name, batch) if name in names else list(repeat(None, count))

    topics = [topic] * count if topic else column("topic")
    columns = (column("key"), column("value"), column("partition"), column("timestamp"), column("headers"))
    for name, key, value, partition, timestamp, headers in zip(topics, *columns, strict=True):
        if name is None:
            raise PipelineError("column topic is null in a row: use option topic for setting a topic")
        yield SinkRecord(name, key, value, partition, timestamp, headers or ())


def _times(column: pa.Array) -> list[int | None]:
    """Return the times in ms. Raises PipelineError for one before 1970."""
    import pyarrow as pa

    times = [None if time is None else time // 1000 for time in column.cast(pa.int64()).to_pylist()]
    early = next((time for time in times if time is not None and time < 0), None)
    if early is not None:
        raise PipelineError(f"column timestamp: a record has {early} ms; it must be non-negative or null")
    return times


class _Pair(TypedDict):
    key: str | None
    value: bytes | None


def _headers(pairs: Sequence[_Pair | None]) -> tuple[Header, ...]:
    """Return the headers of a record. Raises PipelineError for a header without a key."""
    found: list[Header] = []
    for pair in pairs:
        if pair is None or pair["key"] is None:
            raise PipelineError("column headers has a header without a key")
        found.append((pair["key"], pair["value"]))
    return tuple(found)


def _values(name: str, batch: pa.RecordBatch) -> Sequence[Any]:
    if name == "timestamp":
        return _times(batch.column(name))
    values: list[Any] = batch.column(name).to_pylist()
    made = _MADE.get(name)
    return values if made is None else [None if value is None else made(value) for value in values]


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


_MADE: Final[Mapping[str, Callable[[Any], object]]] = {
    "key": _bytes,
    "value": _bytes,
    "headers": _headers,
}


def whole(rows: Iterator[T]) -> Iterator[T]:
    """Yield all rows of a task in a worker of Spark. Raises PipelineError at their end if the connection to Spark has
    ended.

    The rows come as an Arrow stream. If the JVM is killed between two record batches, pyarrow takes the end of the
    connection for the end of the stream, so that a part of the rows looks like all of them. The connection then stays
    at its end.
    """
    connections = worker_connections()
    yield from rows
    if any(map(_has_ended, connections)):
        raise PipelineError("Spark has ended, or has cancelled this task, before it sent all rows of the task")


def worker_connections() -> list[int]:
    """Return descriptors of the sockets that this process has open more than once, one for each: Spark's worker reads
    and writes its connection through copies of one descriptor (``pyspark.daemon``)."""
    found = defaultdict(list)
    for descriptor in range(MOST_DESCRIPTORS):
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISSOCK(status.st_mode):
                found[status.st_dev, status.st_ino].append(descriptor)
    return [descriptors[0] for descriptors in found.values() if len(descriptors) > 1]


def _has_ended(descriptor: int) -> bool:
    """Return whether the peer of a socket has closed it and all of its bytes are read."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        try:
            return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:  # reset by the peer; not connected
            return True
