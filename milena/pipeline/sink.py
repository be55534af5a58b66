"""Writes DataFrames to topics, at least once.

Each task has an idempotent producer, so its retries write each record once; but a task, or a micro-batch, that Spark
runs again writes its records again. Columns, as in Spark's Kafka sink: ``value``, and optionally ``key``, ``topic``
(option ``topic`` overrides it), ``headers`` and ``partition``; also ``timestamp``, which Spark's sink does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from milena.client.batches import Produced
from milena.client.cluster import Cluster
from milena.client.producer import OutcomeUnknown, Producer
from milena.pipeline.errors import PipelineError
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SinkOptions
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.record_cursor import Header
from milena.runtime.context import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

BYTES: Final = frozenset({"binary", "string"})
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "key": BYTES,
    "value": BYTES,
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "timestamp": frozenset({"timestamp"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
}
MOST_WAITING: Final = 20_000
"""The maximum number of unacknowledged records of a task."""


@dataclass
class Written(WriterCommitMessage):
    """The result of a task: the number of records written."""

    records: int


class MilenaWriter(DataSourceArrowWriter):
    """Writes a batch. Written records stay even if the job fails."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns. Raises PipelineError."""
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


class MilenaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query. A micro-batch that is run again is written again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns. Raises PipelineError."""
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


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


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Produce all records and wait until all in-sync replicas have acknowledged them. Returns the number of records.
    Raises PipelineError."""
    with LoopThread() as loop:
        try:
            sending = loop.run(_Sending.begun(loop.runtime, options))
            loop.at_end(sending.close)
            for batch in batches:
                for start in range(0, batch.num_rows, MOST_WAITING):
                    loop.run(sending.send(batch.slice(start, MOST_WAITING)))
            return Written(loop.run(sending.finish()))
        except (KafkaError, OSError) as error:
            raise PipelineError(f"option kafka.bootstrap.servers: {error}") from None


class _Sending:
    """The producer of a task and its unacknowledged records. All methods run on the loop."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._cluster = cluster
        self._producer = Producer(cluster)
        self._topic = options.topic
        self._there: dict[str, Container[int]] = {}
        """The partitions of the topics whose records have a partition."""
        self._waiting: list[tuple[str, asyncio.Future[Produced]]] = []
        """The unacknowledged records, with their topics."""
        self._count = 0

    @classmethod
    async def begun(cls, runtime: Runtime, options: SinkOptions) -> _Sending:
        return cls(Cluster(runtime, options.bootstrap, "milena-spark"), options)

    async def send(self, batch: pa.RecordBatch) -> None:
        columns = {name: _values(name, batch) for name in batch.schema.names}
        for row in range(batch.num_rows):
            topic = self._topic or columns["topic"][row]
            if topic is None:
                raise PipelineError("column topic is null in a row: use option topic for setting a topic")
            partition = columns["partition"][row] if "partition" in columns else None
            if partition is not None and partition not in self._there.get(topic, ()):
                await self._check(topic, partition)
            future = await self._enqueue(
                topic,
                columns["value"][row],
                key=columns["key"][row] if "key" in columns else None,
                partition=partition,
                headers=(columns["headers"][row] if "headers" in columns else None) or (),
                timestamp=columns["timestamp"][row] if "timestamp" in columns else None,
            )
            self._waiting.append((topic, future))
        if len(self._waiting) >= MOST_WAITING:
            await self.finish()

    async def _enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
        timestamp: int | None,
    ) -> asyncio.Future[Produced]:
        """Send one record. Raises PipelineError for a topic that does not exist, KafkaError if no broker answers."""
        try:
            return await self._producer.enqueue(
                topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
            )
        except KafkaError as error:
            raise _refused(topic, error) from None

    async def _check(self, topic: str, partition: int) -> None:
        """Raise PipelineError for a partition that does not exist: the producer would wait for it."""
        if partition < 0:
            raise PipelineError(f"column partition: {partition} is no partition of {topic}: they are numbered from 0")
        view = (await self._cluster.metadata([topic], allow_auto_create=True)).topics.get(topic)
        if view is None or not view.partitions:
            return  # the topic is being created; if not, the producer will fail with the reason
        if partition not in view.partitions:
            raise PipelineError(
                f"column partition: there is no {topic}-{partition}, the topic has {len(view.partitions)} partitions"
            )
        self._there[topic] = view.partitions

    async def finish(self) -> int:
        """Wait for all acknowledgements; return the number of records. Raises PipelineError, KafkaError."""
        await self._producer.flush()
        for topic, future in self._waiting:
            try:
                await future
            except KafkaError as error:
                raise _refused(topic, error) from None
        self._count += len(self._waiting)
        self._waiting = []
        return self._count

    async def close(self) -> None:
        await self._producer.close(flush=False)
        for _, future in self._waiting:  # asyncio warns of exceptions that are never retrieved
            if future.done():
                future.exception()
        self._cluster.close()


def _refused(topic: str, error: KafkaError) -> Exception:
    """Return an error that names the topic, and the partition if it is known."""
    if error.code is ErrorCode.NETWORK_EXCEPTION and not isinstance(error, OutcomeUnknown):
        return error
    if isinstance(error, OutcomeUnknown):
        return PipelineError(f"it is not known whether all records were written: {error}")
    return PipelineError(f"records for {next(iter(getattr(error, '__notes__', ())), topic)} were refused: {error}")


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
