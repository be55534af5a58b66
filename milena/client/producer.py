"""A producer: batches records by partition, retries retriable errors, and reports unknown outcomes.

One batch of a partition is in flight at a time, so the order of the records is the order of the calls. An idempotent
producer (the default) numbers its batches; after a batch with an unknown outcome it requests a new producer id, since
the broker may expect other sequence numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypedDict, Unpack

from milena.client.batches import Lane, PendingBatch, Produced
from milena.client.cluster import Cluster
from milena.client.identities import REFUSED_SEQUENCE, IdempotentIdentities, Identities
from milena.node.links.outgoing import ChannelError, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.records.batch import Codec
from milena.protocol.records.hashing import partition_for_key
from milena.protocol.records.record_cursor import Header
from milena.protocol.requests.produce import (
    ProducedPartition,
    ProduceRequest,
    decode_produce_response,
    encode_produce_request,
)
from milena.protocol.types import ProducerIdAndEpoch

BATCH_BYTES: Final = 256 << 10
BUFFER_BYTES: Final = 32 << 20
MAX_SEQUENCE: Final = 2**31
NEWEST_BY_NAME: Final = 12
"""The last version of Produce that has the names of topics instead of their ids (KIP-516)."""
MAYBE_WRITTEN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # also when the leadership is lost while the records wait to be committed
        ErrorCode.KAFKA_STORAGE_ERROR,  # also when the sync fails that follows the write
    }
)


class RecordFields(TypedDict, total=False):
    """What a record may have beside its topic and value. Without a partition, that of its key, or any; without a
    timestamp (ms), that of the call."""

    key: bytes | None
    partition: int | None
    headers: Sequence[Header]
    timestamp: int | None


class OutcomeUnknown(KafkaError):
    """The records may or may not be in the log: the last attempts were not answered, and the delivery time-out has
    passed. ``identity`` is the producer id and epoch that they were sent with; the producer continues with a new
    one."""

    identity: ProducerIdAndEpoch | None = None


class Producer:
    """Uses a cluster; ``close`` sends what is queued. ``delivery_timeout`` is the maximum of seconds per record.
    ``identities``: those of a transactional producer."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        idempotent: bool = True,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        request_timeout: float = 30.0,
        delivery_timeout: float = 120.0,
        identities: Identities | None = None,
    ) -> None:
        if idempotent and acks != -1:
            raise ValueError(f"an idempotent producer needs acks=all, not acks={acks}")
        self._cluster = cluster
        self._clock = cluster.runtime.clock
        self._acks = acks
        self._identities = identities or (IdempotentIdentities(cluster) if idempotent else None)
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._request_timeout = request_timeout
        self._delivery_timeout = delivery_timeout
        self._tasks = cluster.runtime.new_tasks("producer")
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._sticky: dict[str, int] = {}
        self._buffered = 0
        self._progress = asyncio.Event()

    async def send(self, topic: str, value: bytes | None, **fields: Unpack[RecordFields]) -> Produced:
        """Send one record and wait for it. Raises KafkaError, for example OutcomeUnknown."""
        return await (await self.enqueue(topic, value, **fields))

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
    ) -> asyncio.Future[Produced]:
        """Queue one record; the future has its result. Waits while 32 MiB are queued. Raises KafkaError if the topic is
        unknown."""
        while self._buffered > BUFFER_BYTES:
            await self._wait_for_progress()
        if partition is None:
            partition = await self._partition_for(topic, key)
        lane = self._lanes.setdefault((topic, partition), Lane(topic, partition))
        before = sum(batch.size for batch in lane.batches)
        future, begun = lane.add(
            key=key,
            value=value,
            headers=headers,
            timestamp=self._clock.time_ms() if timestamp is None else timestamp,
            limit=self._batch_bytes,
            deadline=self._clock.monotonic() + self._delivery_timeout,
        )
        self._buffered += sum(batch.size for batch in lane.batches) - before
        if begun:
            self._sticky.pop(topic, None)
        if not lane.sending:
            lane.sending = True
            self._tasks.attempt(self._drain(lane), name=f"send {topic}-{partition}")
        return future

    async def flush(self) -> None:
        """Wait until the queue is empty."""
        while any(lane.batches for lane in self._lanes.values()):
            await self._wait_for_progress()

    async def discard(self, error: KafkaError) -> None:
        """Fail the queued records with ``error``, and wait until those that were sent have an outcome."""
        for lane in self._lanes.values():
            while len(lane.batches) > (1 if lane.sending else 0):
                batch = lane.batches.pop()
                self._buffered -= batch.size
                batch.fail(error)
        await self.flush()

    async def close(self, *, flush: bool = True) -> None:
        """Send what is queued, then stop. Without ``flush`` queued records end with OutcomeUnknown."""
        if flush:
            await self.flush()
        await self._tasks.stop()
        for lane in self._lanes.values():
            for batch in lane.batches:
                batch.fail(OutcomeUnknown(ErrorCode.NETWORK_EXCEPTION, "the producer was closed"))

    async def _wait_for_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    async def _partition_for(self, topic: str, key: bytes | None) -> int:
        view = await self._known_topic(topic)
        if key is not None:
            return partition_for_key(key, view)
        chosen = self._sticky.get(topic)
        if chosen is None or chosen >= view:
            chosen = self._sticky[topic] = self._cluster.runtime.random.below(view)
        return chosen

    async def _known_topic(self, topic: str) -> int:
        """The number of partitions; retries while the topic is being created."""
        deadline = self._clock.monotonic() + self._request_timeout
        attempt = 0
        while True:
            try:
                view = await self._cluster.topic(topic, allow_auto_create=True)
                if view.partitions:
                    return len(view.partitions)
            except KafkaError as error:
                if not retriable(error.code) or self._clock.monotonic() > deadline:
                    raise
            except ChannelError as error:
                if self._clock.monotonic() > deadline:
                    raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
            await self._cluster.pause(attempt)
            attempt += 1

    async def _drain(self, lane: Lane) -> None:
        """Send a lane's batches one after the other until none is left."""
        while lane.batches:
            batch = lane.batches[0]
            split = False
            try:
                split = await self._deliver(lane, batch)
            except Exception as error:
                self._cluster.runtime.contained.note("delivery of a batch", error, topic=lane.topic)
                batch.uncertain = True
                self._give_up(lane, batch, error)
            lane.batches.popleft()
            self._buffered -= batch.size
            if split:
                halves = batch.halves()
                lane.batches.extendleft(reversed(halves))
                self._buffered += sum(half.size for half in halves)
            self._progress.set()
        lane.sending = False

    async def _deliver(self, lane: Lane, batch: PendingBatch) -> bool:
        """Retry until it is in the log, rejected for good, or out of time. Never raises an error of the batch.

        True if nothing of it is in the log since it is too large: then it is to be split."""
        attempt = 0
        data: bytes | None = None
        while True:
            error: Exception
            try:
                if data is None:
                    data = await self._encode(lane, batch)
                result = await self._attempt(lane, data)
            except Unreachable as unreachable:
                error = unreachable
            except ChannelError as broken:
                batch.uncertain = True
                error = broken
            except KafkaError as refused:
                batch.uncertain = batch.uncertain or refused.code is ErrorCode.REQUEST_TIMED_OUT
                error = refused
            else:
                code = ErrorCode(result.error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    lane.sequence = (lane.sequence + batch.builder.count) % MAX_SEQUENCE
                    batch.succeed(lane.topic, lane.partition, result.base_offset, result.log_append_time_ms)
                    return False
                if code is ErrorCode.MESSAGE_TOO_LARGE and batch.builder.count > 1 and not batch.uncertain:
                    return True
                batch.uncertain = batch.uncertain or code in MAYBE_WRITTEN
                error = KafkaError(code, result.error_message)
            if not self._may_retry(error) or self._clock.monotonic() >= batch.deadline:
                self._give_up(lane, batch, error)
                return False
            self._cluster.forget_topic(lane.topic)
            await self._cluster.pause(attempt)
            attempt += 1

    def _may_retry(self, error: Exception) -> bool:
        return not isinstance(error, KafkaError) or retriable(error.code)

    def _give_up(self, lane: Lane, batch: PendingBatch, error: Exception) -> None:
        refused = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        if self._identities is not None and self._identities.failed(lane.identity, refused, uncertain=batch.uncertain):
            # The broker's state of this lane is unknown: sequence numbers start again under another producer id.
            lane.identity = None
        if batch.uncertain and refused.code not in REFUSED_SEQUENCE:
            unknown = OutcomeUnknown(refused.code, f"{lane.topic}-{lane.partition}: {error}")
            unknown.identity = batch.identity
            batch.fail(unknown)
        else:
            refused.add_note(f"{lane.topic}-{lane.partition}")  # for those who tell it of many records
            batch.fail(refused)

    async def _encode(self, lane: Lane, batch: PendingBatch) -> bytes:
        identities = self._identities
        if identities is None:
            return batch.encode(self._codec, None, 0)
        identity = await identities.for_batch(lane.topic, lane.partition)
        if lane.identity != identity:
            lane.identity, lane.sequence = identity, 0
        return batch.encode(self._codec, identity, lane.sequence, transactional=identities.transactional_id is not None)

    async def _attempt(self, lane: Lane, data: bytes) -> ProducedPartition:
        """Send one batch in one request. Raises ChannelError, KafkaError."""
        channel, _, topic = await self._cluster.leader(lane.topic, lane.partition)
        await channel.connect()
        newest = None if self._identities is None else self._identities.newest_produce
        if topic.id is None:
            newest = min(NEWEST_BY_NAME, newest or NEWEST_BY_NAME)
        version = channel.choose(ApiKey.PRODUCE, at_most=newest)
        request = ProduceRequest(
            None if self._identities is None else self._identities.transactional_id,
            self._acks,
            int(self._request_timeout * 1000),
            [(lane.topic, topic.id, [(lane.partition, memoryview(data))])],
        )
        body = [encode_produce_request(version, request)]
        if self._acks == 0:
            await channel.send_only(ApiKey.PRODUCE, version, body)
            return ProducedPartition(lane.partition)
        response = await channel.request_raw(
            ApiKey.PRODUCE,
            version,
            body,
            lambda answer: decode_produce_response(version, answer),
            timeout=self._request_timeout,
        )
        for _, _, partitions in response.topics:
            for result in partitions:
                if result.partition == lane.partition:
                    return result
        raise ChannelError(f"the answer does not contain {lane.topic}-{lane.partition}")
