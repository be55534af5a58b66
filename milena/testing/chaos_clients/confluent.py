"""librdkafka by confluent-kafka.

Outcomes of records:

====================================================  =======  ====================================================
``produce`` raises                                    FAILED   it has not taken the record (too large; the queue is
                                                               full; a fatal error came before)
a report without error                                OK
a report with a broker's error code                   by the code (``outcomes``)
``_MSG_TIMED_OUT``                                    UNKNOWN  librdkafka knows whether it was ever sent, but the
                                                               Python library does not hand on a message's status
``_UNKNOWN_TOPIC``, ``_UNKNOWN_PARTITION``            UNKNOWN  it may have been sent before the topic was deleted
``_PURGE_QUEUE``, ``_PURGE_INFLIGHT``                 UNKNOWN  what is in the queue may be there for another try
any other                                             UNKNOWN
no report                                             UNKNOWN  closed before
====================================================  =======  ====================================================

After a fatal error (``Sent.error`` begins with "fatal") the producer takes no more records, and another one is made. A
broker's restart may cause such an error, as with Kafka's own brokers: the producer snapshot has only the last batch of
each producer. If several unacknowledged batches are in the log, a retry of the first one is out of order after the
restart.

A commit that fails is UNKNOWN: librdkafka may have sent it twice. Changes of the admin client are sent once; without an
answer they are UNKNOWN.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from milena.lab.chaos.clients import ChaosProducer, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients import outcomes
from milena.testing.chaos_clients.admin import UNSURE, Admin
from milena.testing.chaos_clients.bridge import AT_ONCE, Mailbox, Polling, Windows, Worker, new_name, settle
from milena.testing.chaos_clients.limits import Limits
from milena.testing.chaos_clients.renewed import RenewedProducer

SERVE = 0.2
"""Seconds after which a producer's thread checks whether it should end."""
UNREPORTED = -1
"""The offset of a record that an earlier attempt had appended: librdkafka does not report it."""
PURGED = 2.0
"""Seconds to wait for the reports of purged records."""


class ConfluentClients:
    """Implements ``Clients``."""

    name = "confluent-kafka"
    can = frozenset({"produce", "consume", "group", "admin"})

    def __init__(self, bootstrap: str, limits: Limits = Limits()) -> None:  # noqa: B008  # it is frozen
        self._limits = limits
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": limits.request_ms,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
        settings = self._common | {
            "acks": acks,
            "enable.idempotence": idempotent,
            "request.timeout.ms": self._limits.request_ms,
            "message.timeout.ms": self._limits.delivery_ms,
            "linger.ms": 2,
        }
        if acks != ACKS_ALL or not idempotent:
            settings["max.in.flight"] = 1  # without numbers a second try would overtake the next record

        async def make() -> ConfluentProducer:
            return ConfluentProducer(settings, self._limits)

        return await RenewedProducer.of(make)

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> ConfluentConsumer:
        return ConfluentConsumer(self._reading("none"), positions, self._limits)

    async def member(self, group: str, topics: Sequence[str]) -> ConfluentMember:
        return ConfluentMember(self._member(self._reading(group)), topics, self._limits)

    async def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._common, self._limits)

    def _member(self, reading: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **reading,
            "session.timeout.ms": self._limits.session_ms,
            "heartbeat.interval.ms": self._limits.session_ms // 6,
            "partition.assignment.strategy": "range",
        }

    def _reading(self, group: str) -> dict[str, Any]:
        return self._common | {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": 200,
        }


class ConfluentProducer:
    """Implements ``ChaosProducer``."""

    def __init__(self, settings: dict[str, Any], limits: Limits) -> None:
        self._fatal = False
        self.library = Producer(settings | {"error_cb": self._failed})
        """The library's producer."""
        self._close_seconds = limits.close
        self._windows = Windows()
        self._mailbox = Mailbox()
        self._open: set[asyncio.Future[Sent]] = set()
        self._closing = threading.Event()
        self._worker = Worker("confluent-kafka producer")
        self._served = self._worker.call(self._serve)

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        async with self._windows.of(partition):
            if self._closing.is_set():
                return Sent(RequestOutcome.FAILED, error="closed")
            future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()

            def delivered(error: Any, message: Any) -> None:
                self._mailbox.post(settle, future, sent_of(error, message))

            topic, number = partition
            try:
                self.library.produce(topic, value, key, number, on_delivery=delivered)
            except KafkaException as error:
                return Sent(RequestOutcome.FAILED, error=_text(error.args[0]))
            except BufferError as error:
                return Sent(RequestOutcome.FAILED, error=str(error))
            self._open.add(future)
            try:
                return await future
            finally:
                self._open.discard(future)

    async def close(self) -> None:
        self._closing.set()
        await self._worker.close(self._close_seconds + PURGED + SERVE + 5)
        for future in list(self._open):
            settle(future, Sent(RequestOutcome.UNKNOWN, error="closed before its report came"))

    def _serve(self) -> None:
        """Poll for delivery reports until the producer is closed."""
        while not self._closing.is_set():
            try:
                self.library.poll(SERVE)
            except KafkaException as error:  # as ``_failed`` gets it
                self._failed(error.args[0])
            if self._fatal:
                # Otherwise records in flight are reported only after their timeout.
                self.library.purge()
                self._fatal = False
        if self.library.flush(self._close_seconds):
            self.library.purge()
            self.library.flush(PURGED)
        self.library.close()

    def _failed(self, error: Any) -> None:
        self._fatal |= error.fatal()


def sent_of(error: Any, message: Any) -> Sent:
    if error is None:
        offset = message.offset()
        return Sent(RequestOutcome.OK, UNREPORTED if offset is None else offset)
    return Sent(outcomes.of_record(error.code()), error=_text(error))


def _text(error: Any) -> str:
    return f"{outcomes.FATAL if error.fatal() or error.name() == '_FATAL' else ''}{error.name()}: {error.str()}"


class _Reader:
    """A consumer that runs on a worker."""

    def __init__(self, name: str, settings: dict[str, Any], limits: Limits) -> None:
        self._worker = Worker(f"confluent-kafka {name}")
        self._consumer = Consumer(settings)
        self._request = limits.request
        self._kept: deque[tuple[int, Any]] = deque()
        """By the number of their assignment; bounded."""
        self._assignments = 0
        self._session = 0
        self.poll = Polling(lambda seconds: self._worker.call(self._read, seconds))

    def _read(self, seconds: float) -> list[Got]:
        """Return records of one assignment only, since a poll may change the assignment."""
        found: list[Got] = []
        end = time.monotonic() + seconds
        while len(found) < AT_ONCE:
            # The library recovers from errors, so do not return early.
            if not self._kept and not self._take(0 if found else max(0.0, end - time.monotonic())):
                break
            if self._kept:
                assignment, message = self._kept[0]
                if found and assignment != self._session:
                    break
                self._kept.popleft()
                self._session = assignment
                found.append(_got(message))
        return found

    def _take(self, seconds: float) -> bool:
        """Poll once. Returns whether a record, which is stored, or an error was received."""
        message = self._consumer.poll(seconds)
        if message is not None and message.error() is None:
            self._kept.append((self._assignments, message))
        return message is not None

    async def close(self) -> None:
        self._worker.call(self._consumer.close)
        await self._worker.close(self._request + 5)


def _got(message: Any) -> Got:
    key, value, epoch = message.key(), message.value(), message.leader_epoch()
    return Got(
        (message.topic(), message.partition()),
        message.offset(),
        None if key is None else key.decode(),
        None if value is None else value.decode(),
        -1 if epoch is None else epoch,
    )


class ConfluentConsumer(_Reader):
    """Implements ``ChaosConsumer``."""

    def __init__(self, settings: dict[str, Any], positions: Mapping[TopicPartition, int], limits: Limits) -> None:
        super().__init__("consumer", settings, limits)
        self._consumer.assign([Place(*partition, offset) for partition, offset in positions.items()])

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        return await self._worker.call(self._ends, Place(*partition))

    def _ends(self, place: Place) -> tuple[int, int] | None:
        try:
            found: tuple[int, int] | None = self._consumer.get_watermark_offsets(place, self._request, cached=False)
        except KafkaException:
            return None
        return found


class ConfluentMember(_Reader):
    """Implements ``ChaosMember``."""

    def __init__(self, settings: dict[str, Any], topics: Sequence[str], limits: Limits) -> None:
        super().__init__("member", settings | {"on_commit": self._committed}, limits)
        self._name = new_name("member")
        self._committing: list[Place] = []
        self._outcome: RequestOutcome | None = None

        self._consumer.subscribe(list(topics), on_assign=lambda _consumer, _places: self._assigned())

    def _assigned(self) -> None:
        self._assignments += 1

    @property
    def session(self) -> str:
        return f"{self._name}, assignment {self._session}"

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        return await self._worker.call(self._commit, [Place(*place, offset) for place, offset in offsets.items()])

    def _commit(self, places: list[Place]) -> RequestOutcome:
        """Commit asynchronously, since a synchronous commit would block until a coordinator answers. Records that are
        polled in the meantime are stored."""
        self._committing, self._outcome = places, None
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
            paused: list[Place] = []
            end = time.monotonic() + self._request
            while self._outcome is None and time.monotonic() < end:
                if len(self._kept) >= AT_ONCE and not paused:
                    paused = self._consumer.assignment()
                    self._consumer.pause(paused)
                self._take(SERVE)
            if paused:
                self._consumer.resume(paused)
        except KafkaException:
            return RequestOutcome.UNKNOWN
        return self._outcome or RequestOutcome.UNKNOWN

    def _committed(self, error: Any, places: list[Place]) -> None:
        if _offsets(places) == _offsets(self._committing):  # else it is an earlier one, which came too late
            failed = error is not None or any(place.error is not None for place in places)
            self._outcome = RequestOutcome.UNKNOWN if failed else RequestOutcome.OK


def _offsets(places: list[Place]) -> set[tuple[str, int, int]]:
    return {(place.topic, place.partition, place.offset) for place in places}


class ConfluentAdmin(Admin):
    """Implements ``ChaosAdmin``."""

    def __init__(self, settings: dict[str, Any], limits: Limits) -> None:
        self._client = AdminClient(settings)
        self._worker = Worker("confluent-kafka admin")
        self._seconds = limits.request

    async def topics(self) -> Sequence[str] | None:
        return await self._worker.call(self._list)

    def _list(self) -> Sequence[str] | None:
        try:
            return list(self._client.list_topics(timeout=self._seconds).topics)
        except KafkaException:
            return None

    async def _create(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> int:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config))
        return await self._code(lambda client: client.create_topics([topic], request_timeout=self._seconds)[name])

    async def _delete(self, name: str) -> int:
        return await self._code(lambda client: client.delete_topics([name], request_timeout=self._seconds)[name])

    async def _set_config(self, topic: str, config: Mapping[str, str]) -> int:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        return await self._code(
            lambda client: client.incremental_alter_configs([resource], request_timeout=self._seconds)[resource]
        )

    async def _code(self, ask: Callable[[Any], Future[Any]]) -> int:
        try:
            async with asyncio.timeout(self._seconds + 5):
                await asyncio.wrap_future(ask(self._client))
        except KafkaException as error:
            return int(error.args[0].code())  # librdkafka's own are negative
        except TimeoutError:
            return UNSURE
        return 0

    async def close(self) -> None:
        self._worker.call(self._drop)
        await self._worker.close(self._seconds + 5)

    def _drop(self) -> None:
        """Close: deleting the client waits for its threads."""
        del self._client
