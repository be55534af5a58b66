"""Writing DataFrames into topics: at least once.

Each task has an idempotent producer, so what it tries again is written once; but a task, or a micro-batch, that Spark
runs again writes its records again. Columns, as in Spark's Kafka sink: ``value``, and if there are such ``key``,
``topic`` (or option ``topic``, which goes before it), ``headers``, ``partition``; ``timestamp`` beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from milena.node.client.batches import Produced
from milena.node.client.cluster import Cluster
from milena.node.client.producer import Producer
from milena.pipeline.errors import PipelineError
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SinkOptions
from milena.protocol.errors import KafkaError
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
"""Records of a task that are not answered yet."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass
class Written(WriterCommitMessage):
    """How many records a task has written."""

    records: int


class MilenaWriter(DataSourceArrowWriter):
    """Of a batch. What it has written stays, also if the job fails."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises PipelineError."""
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


class MilenaStreamWriter(DataSourceStreamArrowWriter):
    """Of a query: a micro-batch that is run again is written again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises PipelineError."""
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Raises PipelineError for columns that cannot be written."""
    for one in schema.fields:
        kind = one.dataType.simpleString()
        if one.name not in KINDS:
            raise PipelineError(f"column {one.name} cannot be written; there are {', '.join(KINDS)}: use select()")
        if kind not in KINDS[one.name]:
            wanted = " or ".join(sorted(KINDS[one.name]))
            raise PipelineError(f"column {one.name} is of type {kind}, not {wanted}: use cast()")
    if "value" not in schema.fieldNames():
        raise PipelineError("there is no column value to write")
    if not options.topic and "topic" not in schema.fieldNames():
        raise PipelineError("say which topic is written: by option topic or a column topic")


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Produce all records; they are acknowledged by all in-sync replicas at the end. Raises PipelineError."""
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
    """On the loop."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._cluster = cluster
        self._producer = Producer(cluster)
        self._topic = options.topic
        self._waiting: list[asyncio.Future[Produced]] = []
        self._count = 0

    @classmethod
    async def begun(cls, runtime: Runtime, options: SinkOptions) -> _Sending:
        return cls(Cluster(runtime, options.bootstrap, "milena-spark"), options)

    async def send(self, batch: pa.RecordBatch) -> None:
        columns = {name: _values(name, batch) for name in batch.schema.names}
        for row in range(batch.num_rows):
            topic = self._topic or columns["topic"][row]
            if topic is None:
                raise PipelineError("column topic is null, and there is no option topic")
            future = await self._producer.enqueue(
                topic,
                columns["value"][row],
                key=columns["key"][row] if "key" in columns else None,
                partition=columns["partition"][row] if "partition" in columns else None,
                headers=(columns["headers"][row] if "headers" in columns else None) or (),
                timestamp=columns["timestamp"][row] if "timestamp" in columns else None,
            )
            self._waiting.append(future)
        if len(self._waiting) >= MOST_WAITING:
            await self.finish()

    async def finish(self) -> int:
        """Wait for the answers; how many there were. Raises KafkaError."""
        waiting, self._waiting = self._waiting, []
        await self._producer.flush()
        for future in waiting:
            await future
        self._count += len(waiting)
        return self._count

    async def close(self) -> None:
        await self._producer.close(flush=False)
        for future in self._waiting:  # they have failed, and nobody else asks
            if future.done():
                future.exception()
        self._cluster.close()


def _values(name: str, batch: pa.RecordBatch) -> Sequence[Any]:
    values: list[Any] = batch.column(name).to_pylist()
    made = _MADE.get(name)
    return values if made is None else [None if value is None else made(value) for value in values]


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


_MADE: Final[Mapping[str, Callable[[Any], object]]] = {
    "key": _bytes,
    "value": _bytes,
    "timestamp": lambda time: (time - _EPOCH) // _MILLISECOND,
    "headers": lambda pairs: tuple((pair["key"] or "", pair["value"]) for pair in pairs),
}
