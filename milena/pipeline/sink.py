"""Writes DataFrames to topics, at least once or, micro-batches of streams, exactly once.

At least once: each task has an idempotent producer, so its retries write each record once; but a task, or a
micro-batch, that Spark runs again writes its records again. Exactly once: ``milena.pipeline.exactly_once``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.pipeline.errors import PipelineError
from milena.pipeline.exactly_once import ExactlyOnce, StreamTask, WrittenOnce, check_tasks
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import SinkOptions
from milena.pipeline.sending import MOST_WAITING, Sending
from milena.pipeline.sink_rows import check_columns, records_of, whole
from milena.protocol.errors import KafkaError
from milena.runtime.context import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

W = TypeVar("W", covariant=True)


@dataclass
class Written(WriterCommitMessage):
    """The result of a task: the number of records written."""

    records: int


class MilenaWriter(DataSourceArrowWriter):
    """Writes a batch. Written records stay even if the job fails."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns. Raises PipelineError."""
        check_columns(options, schema)
        if options.exactly_once:
            raise PipelineError("option deliveryGuarantee=exactly-once is for streams: a batch query has no batch ids")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


class MilenaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query. At least once, a micro-batch that is run again is written again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns. Raises PipelineError."""
        check_columns(options, schema)
        if options.exactly_once and not options.topic:
            raise PipelineError(
                "option deliveryGuarantee=exactly-once requires option topic: all records go to one topic"
            )
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return (
            write_once(self._options, whole(iterator), StreamTask.current())
            if self._options.exactly_once
            else write(self._options, iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises PipelineError if an earlier run of the query wrote a part of the batch in other tasks."""
        if self._options.exactly_once:
            with LoopThread() as loop, _named_errors():
                loop.run(check_tasks(loop.runtime, self._options, messages, batchId))


def write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Produce all records and wait until all in-sync replicas have acknowledged them. Returns the number of records.
    Raises PipelineError."""
    return _written(lambda runtime: _AtLeastOnce(runtime, options), batches)


def write_once(options: SinkOptions, batches: Iterator[pa.RecordBatch], task: StreamTask) -> WrittenOnce:
    """Write the rows of a task of a micro-batch, unless an earlier attempt has. Raises PipelineError."""
    return _written(lambda runtime: ExactlyOnce(runtime, options, task), batches)


def _written(writer: Callable[[Runtime], _Writer[W]], batches: Iterator[pa.RecordBatch]) -> W:
    """Return the result of a task that writes all rows. Raises PipelineError."""
    with _named_errors(), LoopThread() as loop:
        writing = writer(loop.runtime)
        loop.at_end(writing.close)
        loop.run(writing.begin())
        for batch in batches:
            for start in range(0, batch.num_rows, MOST_WAITING):
                loop.run(writing.send(batch.slice(start, MOST_WAITING)))
        return loop.run(writing.finish())


@contextmanager
def _named_errors() -> Iterator[None]:
    """Raise errors of the cluster as PipelineError."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise PipelineError(f"option kafka.bootstrap.servers: {error}") from None


class _Writer(Protocol[W]):
    """Writes the rows of a task. All methods run on the loop; ``close`` is called even if ``begin`` has failed."""

    async def begin(self) -> None: ...

    async def send(self, batch: pa.RecordBatch) -> None: ...

    async def finish(self) -> W: ...

    async def close(self) -> None: ...


class _AtLeastOnce:
    """Writes with an idempotent producer."""

    def __init__(self, runtime: Runtime, options: SinkOptions) -> None:
        self._topic = options.topic
        self._cluster = Cluster(runtime, options.bootstrap, "milena-spark")
        self._producer = Producer(self._cluster)
        self._sending = Sending(self._cluster, self._producer)

    async def begin(self) -> None:
        pass

    async def send(self, batch: pa.RecordBatch) -> None:
        await self._sending.send(records_of(self._topic, batch))

    async def finish(self) -> Written:
        return Written(await self._sending.finish())

    async def close(self) -> None:
        await self._producer.close(flush=False)
        self._sending.forget()
        self._cluster.close()
