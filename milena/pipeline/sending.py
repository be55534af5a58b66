"""The records that a task of the sink has sent, until all are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import Final, Protocol

from milena.client.batches import Produced
from milena.client.cluster import Cluster
from milena.client.producer import OutcomeUnknown
from milena.client.transactional import FENCED
from milena.pipeline.errors import PipelineError
from milena.pipeline.sink_rows import SinkRecord
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.record_cursor import Header

MOST_WAITING: Final = 20_000
"""The maximum number of unacknowledged records of a task."""


class SendingProducer(Protocol):
    """``Producer`` or ``TransactionalProducer``."""

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
        timestamp: int | None,
    ) -> asyncio.Future[Produced]: ...

    async def flush(self) -> None: ...


class Sending:
    """Sends records, and keeps those without an acknowledgement. All methods run on the loop."""

    def __init__(self, cluster: Cluster, producer: SendingProducer) -> None:
        self._cluster = cluster
        self._producer = producer
        self._there: dict[str, Container[int]] = {}
        """The partitions of the topics whose records have a partition."""
        self._waiting: list[tuple[str, asyncio.Future[Produced]]] = []
        """The unacknowledged records, with their topics."""
        self._count = 0

    async def send(self, records: Iterable[SinkRecord]) -> None:
        """Raises PipelineError for a record that cannot be written, KafkaError if no broker answers."""
        for record in records:
            topic, partition = record.topic, record.partition
            if partition is not None and partition not in self._there.get(topic, ()):
                await self._check(topic, partition)
            self._waiting.append((topic, await self._enqueue(record)))
        if len(self._waiting) >= MOST_WAITING:
            await self.finish()

    async def finish(self) -> int:
        """Wait for all acknowledgements; return the number of records. Raises PipelineError, KafkaError."""
        await self._producer.flush()
        for topic, future in self._waiting:
            try:
                await future
            except KafkaError as error:
                raise refused(topic, error) from None
        self._count += len(self._waiting)
        self._waiting = []
        return self._count

    def forget(self) -> None:
        """Call after the producer was closed: asyncio warns of exceptions that are never retrieved."""
        for _, future in self._waiting:
            if future.done():
                future.exception()

    async def _enqueue(self, record: SinkRecord) -> asyncio.Future[Produced]:
        """Send one record. Raises PipelineError for a topic that does not exist, KafkaError if no broker answers."""
        try:
            return await self._producer.enqueue(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp=record.timestamp,
            )
        except KafkaError as error:
            raise refused(record.topic, error) from None

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


def refused(topic: str, error: KafkaError) -> Exception:
    """Return an error that names the topic, and the partition if it is known."""
    if error.code in FENCED:
        return error
    if error.code is ErrorCode.NETWORK_EXCEPTION and not isinstance(error, OutcomeUnknown):
        return error
    if isinstance(error, OutcomeUnknown):
        return PipelineError(f"it is not known whether all records were written: {error}")
    return PipelineError(f"records for {next(iter(getattr(error, '__notes__', ())), topic)} were refused: {error}")
