"""aiokafka.

Outcomes of records:

====================================================  =======  ====================================================
``send`` raises                                       FAILED   it has not taken the record (too large, no such
                                                               partition, no metadata, no room, a fatal error before)
the future fails with a broker's error                by the code (``outcomes``)
the future fails with ``NotLeaderForPartitionError``  UNKNOWN  also if the batch has expired without a leader
or ``LeaderNotAvailableError``
the future fails with anything else                   UNKNOWN  the sender ended, or the producer was closed
====================================================  =======  ====================================================

An idempotent producer retries without a limit while the partition has a leader, and gives up a batch if the partition
has no leader for the request timeout. The batch's sequence numbers are then missing, and the next batch fails with a
fatal error. Here the limit is ``delivery``. After a fatal error (``Sent.error`` begins with "fatal") another producer
is made.

A commit that raises is UNKNOWN, because the library sends it again by itself. Changes of the admin client are sent
once; without an answer they are UNKNOWN. It has no incremental changes of configuration: it reads what is set, and sets
all of it again, so that a concurrent change by another client may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as Place
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    IllegalOperation,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProducerClosed,
)

from milena.lab.chaos.clients import ChaosProducer, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients import outcomes
from milena.testing.chaos_clients.admin import UNSURE, Admin
from milena.testing.chaos_clients.bridge import AT_ONCE, Windows, new_name
from milena.testing.chaos_clients.limits import Limits
from milena.testing.chaos_clients.renewed import RenewedProducer

T = TypeVar("T", AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient)

PAUSE = 0.2
"""Seconds between two attempts to connect, and after an error of a poll."""
DYNAMIC_TOPIC = 1
"""The source of a configuration that was set for the topic."""


class AiokafkaClients:
    """Implements ``Clients``."""

    name = "aiokafka"
    can = frozenset({"produce", "consume", "group", "admin"})

    def __init__(self, bootstrap: str, limits: Limits = Limits()) -> None:  # noqa: B008  # it is frozen
        self._limits = limits
        self._common = {"bootstrap_servers": bootstrap.split(","), "request_timeout_ms": limits.request_ms}

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
        def one() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(**self._common, acks=acks, enable_idempotence=idempotent, linger_ms=2)
            producer._message_accumulator._batch_ttl = self._limits.delivery  # else that of one request
            return producer

        assert acks == ACKS_ALL or not idempotent

        async def make() -> AiokafkaProducer:
            return AiokafkaProducer(await started(one), self._limits)

        return await RenewedProducer.of(make)

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> AiokafkaConsumer:
        consumer = await started(lambda: AIOKafkaConsumer(**self._reading()))
        consumer.assign([Place(*partition) for partition in positions])
        for partition, offset in positions.items():
            consumer.seek(Place(*partition), offset)
        return AiokafkaConsumer(consumer, self._limits)

    async def member(self, group: str, topics: Sequence[str]) -> AiokafkaMember:
        settings = self._reading() | {
            "group_id": group,
            "session_timeout_ms": self._limits.session_ms,
            "heartbeat_interval_ms": self._limits.session_ms // 6,
            "rebalance_timeout_ms": self._limits.session_ms,
            "partition_assignment_strategy": (RangePartitionAssignor,),
        }
        consumer = await started(lambda: AIOKafkaConsumer(**settings))
        member = AiokafkaMember(consumer, self._limits)
        consumer.subscribe(list(topics), listener=member.listener)
        return member

    async def admin(self) -> AiokafkaAdmin:
        return AiokafkaAdmin(await started(lambda: AIOKafkaAdminClient(**self._common)), self._limits)

    def _reading(self) -> dict[str, Any]:
        return self._common | {
            "enable_auto_commit": False,
            "auto_offset_reset": "none",  # see _Reader._out_of_range
            "check_crcs": True,
            "fetch_max_wait_ms": 200,
        }


async def started(make: Callable[[], T]) -> T:
    """Create and start a client; retry until a broker answers."""
    while True:
        client = make()
        try:
            await client.start()
        except KafkaError:
            await _end(client)
            await asyncio.sleep(PAUSE)
        except BaseException:
            await _end(client)
            raise
        else:
            return client


async def _end(client: Any) -> None:
    await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _bounded(work: Awaitable[object], seconds: float) -> bool:
    """Run ``work`` for at most ``seconds``. Returns whether ``work`` ended, with or without an error. A cancelled
    caller does not wait for ``work``."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=seconds)
    return task.done() and not task.cancelled()


class _Shut(dict[Any, Any]):
    """Replaces the connections of a closed client, since a task of the library may add another connection."""

    def __setitem__(self, key: Any, connection: Any) -> None:
        connection.close()


async def _shut(client: Any) -> None:
    connections, client._conns = client._conns, _Shut()
    for connection in list(connections.values()):
        connection.close()
    await _bounded(client.close(), 1)


class AiokafkaProducer:
    """Implements ``ChaosProducer``."""

    def __init__(self, producer: Any, limits: Limits) -> None:
        self._producer = producer
        self._limits = limits
        self._windows = Windows()
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._open: set[asyncio.Future[Any]] = set()
        self._closing = False

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        topic, number = partition
        turn = self._turns.setdefault(partition, asyncio.Lock())
        async with self._windows.of(partition):
            try:
                async with turn:  # ``send`` suspends where it has no metadata, or a batch is full
                    if self._closing:
                        return Sent(RequestOutcome.FAILED, error="closed")
                    sending = await self._producer.send(
                        topic,
                        partition=number,
                        key=None if key is None else key.encode(),
                        value=None if value is None else value.encode(),
                    )
            except (KafkaError, IllegalOperation, AssertionError) as error:  # no transaction, "Unrecognized partition"
                return Sent(RequestOutcome.FAILED, error=self._text(error))
            self._open.add(sending)
            sending.add_done_callback(self._open.discard)
            return await self._outcome(sending)

    async def _outcome(self, sending: asyncio.Future[Any]) -> Sent:
        try:
            metadata = await asyncio.shield(sending)
        except BrokerResponseError as error:
            return Sent(outcomes.of_record(error.errno), error=self._text(error))
        except KafkaError as error:
            return Sent(RequestOutcome.UNKNOWN, error=self._text(error))
        return Sent(RequestOutcome.OK, metadata.offset)

    def _text(self, error: BaseException) -> str:
        ended = self._producer._sender.sender_task.done() and not self._closing
        return f"{outcomes.FATAL if ended else ''}{error!r}"

    async def close(self) -> None:
        self._closing = True
        if self._open:
            await asyncio.wait(self._open, timeout=self._limits.close)
        # The library would retry remaining records without a limit.
        self._producer._message_accumulator.fail_all(ProducerClosed())
        await _bounded(self._producer.stop(), self._limits.request + 1)
        await _shut(self._producer.client)


def _got(record: Any) -> Got:
    key, value = record.key, record.value
    return Got(
        (record.topic, record.partition),
        record.offset,
        None if key is None else key.decode(),
        None if value is None else value.decode(),
    )


class _Reader:
    def __init__(self, consumer: Any, limits: Limits) -> None:
        self._consumer = consumer
        self._request = limits.request

    async def poll(self, seconds: float) -> Sequence[Got]:
        """Poll. A cancelled poll loses no records, since the library returns records without suspending."""
        try:
            async with asyncio.timeout(seconds):
                found = await self._consumer.getmany(timeout_ms=int(seconds * 1000), max_records=AT_ONCE)
        except TimeoutError:  # it waits longer for an assignment
            return ()
        except OffsetOutOfRangeError as error:
            await self._out_of_range(error.args[0], seconds)
            return ()
        except NoOffsetForPartitionError as error:  # its group has committed nothing there
            with suppress(KafkaError, TimeoutError):  # asked again with the next read
                async with asyncio.timeout(self._request):
                    await self._consumer.seek_to_beginning(error.args[0])
            return ()
        except KafkaError:
            await asyncio.sleep(min(PAUSE, seconds))
            return ()
        return [_got(record) for records in found.values() for record in records]

    async def _out_of_range(self, positions: Mapping[Place, int], seconds: float) -> None:
        """Check positions at the leader. The library accepts an out-of-range error from a replica that lags or was
        wiped; the Java client asks the leader before it resets a position."""
        for place, position in positions.items():
            try:
                async with asyncio.timeout(self._request):
                    begin = await self._consumer.beginning_offsets([place])
                    end = await self._consumer.end_offsets([place])
            except (KafkaError, TimeoutError):
                begin = end = {place: position}  # asked again with the next read
            there = begin[place] <= position <= end[place]
            with suppress(IllegalStateError):  # another member's meanwhile
                self._consumer.seek(place, position if there else begin[place])
        await asyncio.sleep(min(PAUSE, seconds))

    async def close(self) -> None:
        await _bounded(self._consumer.stop(), self._request + 1)
        await _shut(self._consumer._client)


class AiokafkaConsumer(_Reader):
    """Implements ``ChaosConsumer``. The library does not report leader epochs."""

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        place = Place(*partition)
        try:
            async with asyncio.timeout(2 * self._request):
                begin = await self._consumer.beginning_offsets([place])
                end = await self._consumer.end_offsets([place])
        except (KafkaError, TimeoutError):
            return None
        return begin[place], end[place]


class AiokafkaMember(_Reader):
    """Implements ``ChaosMember``."""

    def __init__(self, consumer: Any, limits: Limits) -> None:
        super().__init__(consumer, limits)
        self.listener = _Assignments()
        self._name = new_name("member")
        self._session = 0

    @property
    def session(self) -> str:
        return f"{self._name}, assignment {self._session}"

    async def poll(self, seconds: float) -> Sequence[Got]:
        """Poll. The library returns no records during a rebalance, and calls the listener directly after it."""
        found = await super().poll(seconds)
        if found:
            self._session = self.listener.count
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        try:
            async with asyncio.timeout(self._request):
                await self._consumer.commit({Place(*partition): offset for partition, offset in offsets.items()})
        except (KafkaError, TimeoutError):
            return RequestOutcome.UNKNOWN
        return RequestOutcome.OK


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts assignments."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: object) -> None:
        self.count += 1


class AiokafkaAdmin(Admin):
    """Implements ``ChaosAdmin``."""

    def __init__(self, client: Any, limits: Limits) -> None:
        self._client = client
        self._seconds = limits.request

    async def topics(self) -> Sequence[str] | None:
        try:
            async with asyncio.timeout(self._seconds):
                return list(await self._client.list_topics())
        except (KafkaError, TimeoutError):
            return None

    async def _create(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> int:
        topic = NewTopic(name, partitions, replicas, topic_configs=dict(config))
        return await self._code(self._client.create_topics([topic]), lambda response: response.topic_errors[0][1])

    async def _delete(self, name: str) -> int:
        return await self._code(self._client.delete_topics([name]), lambda response: response.topic_error_codes[0][1])

    async def _set_config(self, topic: str, config: Mapping[str, str]) -> int:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            async with asyncio.timeout(self._seconds):
                (described,) = await self._client.describe_configs([resource])
        except (KafkaError, TimeoutError):
            return UNSURE
        code, _, _, _, entries = described.resources[0]
        if code:
            return int(code)
        set_before = {name: value for name, value, _, source, *_ in entries if source == DYNAMIC_TOPIC}
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, set_before | dict(config))
        return await self._code(self._client.alter_configs([changed]), lambda responses: responses[0].resources[0][0])

    async def _code(self, asking: Awaitable[Any], code_of: Callable[[Any], int]) -> int:
        try:
            async with asyncio.timeout(self._seconds):
                return int(code_of(await asking))
        except BrokerResponseError as error:
            return int(error.errno)
        except (KafkaError, TimeoutError):
            return UNSURE

    async def close(self) -> None:
        await _bounded(self._client.close(), self._seconds)
        await _shut(self._client._client)
