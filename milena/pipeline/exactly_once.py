"""Writes each micro-batch of a query once: each task writes its rows in a transaction, with the number of the batch.

A task's transactional id is that of the query and the task's number. The batch id is committed in the same
transaction, as the offset of a group with the same name. A task that is run again first fences earlier attempts, then
reads that offset: if it is that of its batch, the rows are in the topic. This is right only if they are the same rows,
so the offset's metadata has their number and a sum of their hashes.

::

    init --(the offset is that of an earlier batch)--> rows are sent --> commit
      `--(the offset is that of this batch)--> rows are compared --> skip, or refuse
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from milena.client.admin import CommittedOffset, group_commits, group_listings
from milena.client.cluster import Cluster
from milena.client.membership import GroupMetadata
from milena.client.transactional import FENCED, State, TransactionalProducer
from milena.pipeline.errors import PipelineError
from milena.pipeline.options import SinkOptions
from milena.pipeline.sending import Sending
from milena.pipeline.sink_rows import SinkRecord, records_of
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
RUN_PROPERTY: Final = "spark.jobGroup.id"
"""The local properties of a task in which Spark passes the ids of the query, of the micro-batch and of the query's run
(StreamExecution, MicroBatchExecution)."""
PREFIX: Final = "milena-spark-"


class StreamTask(NamedTuple):
    """A task of a micro-batch. ``query``, ``run``: ids of the query and of its run, which changes when it is started
    again; ``batch``: the number of the micro-batch; ``number``: that of the task's partition."""

    query: str
    run: str
    batch: int
    number: int

    @classmethod
    def current(cls) -> StreamTask:
        """Return the running task. Raises PipelineError outside of the task of a stream."""
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if context is None or query is None or batch is None:
            raise PipelineError("option deliveryGuarantee=exactly-once is for streams, and this task belongs to none")
        return cls(query, context.getLocalProperty(RUN_PROPERTY) or "", int(batch), context.partitionId())

    @property
    def name(self) -> str:
        """The transactional id, and the group with the task's last batch."""
        return f"{prefix_of(self.query)}{self.number}"


def prefix_of(query: str) -> str:
    return f"{PREFIX}{query}-"


@dataclass
class WrittenOnce(WriterCommitMessage):
    """The result of a task. ``records``: 0 if an earlier attempt wrote them; ``first``: it is the first batch with rows
    that this run of the query writes in this task, so earlier runs may have written a part of the batch."""

    records: int
    query: str
    first: bool


class RowSum:
    """The number of rows, and a sum of their hashes that does not depend on their order."""

    _LENGTHS: Final = Struct(">iqiii")
    _BITS: Final = 128

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, record: SinkRecord) -> None:
        topic = record.topic.encode()
        key, value = record.key, record.value
        parts = [
            self._LENGTHS.pack(
                -1 if record.partition is None else record.partition,
                -1 if record.timestamp is None else record.timestamp,
                len(topic),
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            ),
            topic,
            key or b"",
            value or b"",
        ]
        for name, content in record.headers:
            encoded = name.encode()
            parts += [b"%d %d " % (len(encoded), -1 if content is None else len(content)), encoded, content or b""]
        digest = blake2b(b"".join(parts), digest_size=self._BITS // 8).digest()
        self._sum = (self._sum + int.from_bytes(digest)) % (1 << self._BITS)
        self.rows += 1

    def plain(self) -> dict[str, object]:
        return {"rows": self.rows, "sum": f"{self._sum:0{self._BITS // 4}x}"}


class ExactlyOnce:
    """Writes the rows of a task. All methods run on the loop."""

    def __init__(self, runtime: Runtime, options: SinkOptions, task: StreamTask) -> None:
        self._cluster = Cluster(runtime, options.bootstrap, "milena-spark")
        self._options = options
        self._task = task
        self._producer = TransactionalProducer(
            self._cluster, task.name, transaction_timeout_ms=int(options.transaction_timeout * 1000)
        )
        self._sending = Sending(self._cluster, self._producer)
        self._sum = RowSum()
        self._before: CommittedOffset | None = None
        """The last batch that this task has committed."""

    async def begin(self) -> None:
        """Fence earlier attempts, and find out whether the batch is written. Raises PipelineError, KafkaError."""
        try:
            await self._producer.init()
        except KafkaError as error:
            raise self._explained(error) from None
        place = self._options.topic, 0
        found = await group_commits(self._cluster, self._task.name, [place], stable=True)
        self._before = found.get(place)
        if self._before is not None and self._before.offset > self._task.batch:
            self._changed(f"batch {self._before.offset} was written before")
        if self._writes:
            self._producer.begin()

    @property
    def _repeated(self) -> bool:
        return self._before is not None and self._before.offset == self._task.batch

    @property
    def _writes(self) -> bool:
        """Whether rows are sent. Those of a repeated batch are sent only if they are written again when they differ."""
        return not self._repeated or not self._options.fail_on_changed_batch

    async def send(self, batch: pa.RecordBatch) -> None:
        """Raises PipelineError, KafkaError."""
        records = list(records_of(self._options.topic, batch))
        for record in records:
            self._sum.add(record)
        if self._writes:
            try:
                await self._sending.send(records)
            except KafkaError as error:
                raise self._explained(error) from None

    async def finish(self) -> WrittenOnce:
        """Commit the transaction. Raises PipelineError, KafkaError."""
        now, before = self._sum.plain(), self._metadata()
        written = WrittenOnce(0, self._task.query, first=before.get("run") != self._task.run)
        same = self._repeated and all(before.get(name) == value for name, value in now.items())
        if self._repeated and not same:
            self._changed(f"it was written before with other rows: {before.get('rows')} then, {self._sum.rows} now")
        if not self._writes:
            return written
        try:
            written.records = await self._sending.finish()
            if same:
                written.records = 0
                await self._producer.abort()
                return written
            if self._sum.rows or self._repeated:
                await self._producer.send_offsets(
                    {(self._options.topic, 0): self._task.batch},
                    GroupMetadata(self._task.name),
                    json.dumps({**now, "run": self._task.run}),
                )
            await self._producer.commit()
        except KafkaError as error:
            raise self._explained(error) from None
        return written

    async def close(self) -> None:
        """Abort what is not committed. If that is not possible, the next attempt or the time-out does it."""
        try:
            if self._producer.state in (State.OPEN, State.MUST_ABORT):
                await self._producer.abort()
        except KafkaError as error:
            if error.code not in FENCED:  # a later attempt has aborted it
                get_logger("pipeline").warning("a transaction was left open", id=self._task.name, error=str(error))
        await self._producer.close()
        self._sending.forget()
        self._cluster.close()

    def _metadata(self) -> Mapping[str, object]:
        """What was committed with the last batch. Raises PipelineError."""
        if self._before is None:
            return {}
        try:
            found = json.loads(self._before.metadata)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise PipelineError(f"group {self._task.name} was committed by another program: {self._before.metadata!r}")
        return found

    def _explained(self, error: KafkaError) -> Exception:
        seconds = f"option transactionTimeout is {self._options.transaction_timeout:g} s"
        if error.code in FENCED:
            return PipelineError(f"another attempt of this task has begun, or it took too long ({seconds}): {error}")
        if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return PipelineError(f"{seconds}, more than transaction.max.timeout.ms of the brokers: {error}")
        return error

    def _changed(self, how: str) -> None:
        """Raise PipelineError, or log a warning, because a repeated batch has other rows."""
        changed(self._options, f"task {self._task.number} of batch {self._task.batch}: {how}")


def changed(options: SinkOptions, what: str) -> None:
    """Raise PipelineError, or log a warning, because a repeated batch differs from the written batch."""
    if options.fail_on_changed_batch:
        raise PipelineError(
            f"{what}. Rows of the batch may be in the topic twice, or would be. A query is exactly once only if a "
            "repeated batch has the same rows in the same tasks: see repartition() in docs/spark.md; with "
            "failOnChangedBatch=false such a batch is written again"
        )
    get_logger("pipeline").warning("a batch is written again", what=what)


async def check_tasks(
    runtime: Runtime, options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int
) -> None:
    """Check that an earlier run of the query did not write a part of the batch in a task that the batch has no more.
    ``messages``: those of all tasks. Raises PipelineError, KafkaError."""
    written = [one for one in messages if isinstance(one, WrittenOnce)]
    if not any(one.first for one in written):
        return  # this run of the query has written batches before, so no earlier run has begun this one
    cluster = Cluster(runtime, options.bootstrap, "milena-spark")
    try:
        prefix = prefix_of(written[0].query)
        groups = [name for name in await group_listings(cluster) if name.startswith(prefix)]
        place = options.topic, 0
        for name in groups:
            task = name.removeprefix(prefix)
            if not task.isdecimal() or int(task) < len(messages):
                continue
            found = (await group_commits(cluster, name, [place], stable=True)).get(place)
            if found is not None and found.offset == batch:
                changed(
                    options, f"batch {batch}: it was written before with a task {task}, and has {len(messages)} now"
                )
    finally:
        cluster.close()
