"""kafka-python.

Outcomes of records:

====================================================  =======  ====================================================
``send`` raises, but not a timeout                    FAILED   it has not taken the record (too large, no such
                                                               partition)
``send`` raises ``KafkaTimeoutError``                          it has no metadata of the topic, and has not taken the
                                                               record; the adapter tries again until ``delivery``
                                                               is over, then FAILED
the future fails with a broker's error                by the code (``outcomes``)
the same, after a fatal error of another batch        UNKNOWN  all batches are given up with that error, also those
                                                               under way
the future fails with ``KafkaTimeoutError``           UNKNOWN  the batch has expired, after no try or after several
the future fails with anything else                   UNKNOWN  a connection has ended, or the producer was closed
====================================================  =======  ====================================================

Each error that the library does not retry is fatal to an idempotent producer, for example a record that is too large.
After a fatal error (``Sent.error`` begins with "fatal") another producer is created.

The library does not limit the records that it buffers; the window of the adapter limits them.

A commit that raises is UNKNOWN, because the library sends it again by itself, unless there was no member to send it.
Changes of the admin client are sent once (again after NOT_CONTROLLER); without an answer they are UNKNOWN.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError, KafkaTimeoutError, for_code
from kafka.net.compat import KafkaNetClient
from kafka.structs import OffsetAndMetadata

from milena.lab.chaos.clients import ChaosProducer, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients import outcomes
from milena.testing.chaos_clients.admin import UNSURE, Admin
from milena.testing.chaos_clients.bridge import AT_ONCE, Mailbox, Polling, Windows, Worker, made, new_name, settle
from milena.testing.chaos_clients.limits import Limits
from milena.testing.chaos_clients.renewed import RenewedProducer

T = TypeVar("T")

BLOCK = 0.5
"""Maximum seconds of one wait of ``send`` for metadata; closing waits for its end."""
PAUSE = 0.1
"""Seconds to wait after an error of a poll."""


class KafkaPythonClients:
    """Implements ``Clients``."""

    name = "kafka-python"
    can = frozenset({"produce", "consume", "group", "admin"})

    def __init__(self, bootstrap: str, limits: Limits = Limits()) -> None:  # noqa: B008  # it is frozen
        self._limits = limits
        self._common: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "bootstrap_timeout_ms": limits.request_ms,
            "request_timeout_ms": limits.request_ms,
            "reconnect_backoff_max_ms": 500,
        }

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
        settings = self._common | {
            "acks": acks,
            "enable_idempotence": idempotent,
            "linger_ms": 2,
            "max_block_ms": int(BLOCK * 1000),
            "delivery_timeout_ms": self._limits.delivery_ms,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }
        if acks != ACKS_ALL or not idempotent:
            settings["max_in_flight_requests_per_connection"] = 1  # else a second try overtakes the next batch

        async def make() -> KafkaPythonProducer:
            worker = Worker("kafka-python producer")
            producer = await made(worker, lambda: answered(KafkaProducer, settings), lambda one: one.close(timeout=0))
            return KafkaPythonProducer(producer, worker, self._limits)

        return await RenewedProducer.of(make)

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> KafkaPythonConsumer:
        worker = Worker("kafka-python consumer")
        consumer = await made(worker, lambda: answered(KafkaConsumer, self._reading()), close_consumer)
        await worker.call(assign, consumer, positions)
        return KafkaPythonConsumer(consumer, worker, self._limits)

    async def member(self, group: str, topics: Sequence[str]) -> KafkaPythonMember:
        settings = self._member(self._reading(), group)
        worker = Worker("kafka-python member")
        consumer = await made(worker, lambda: answered(KafkaConsumer, settings), close_consumer)
        member = KafkaPythonMember(consumer, worker, self._limits)
        await worker.call(consumer.subscribe, list(topics), listener=member.listener)
        return member

    async def admin(self) -> KafkaPythonAdmin:
        worker = Worker("kafka-python admin")
        client = await made(worker, lambda: answered(KafkaAdminClient, self._common), lambda one: one.close())
        return KafkaPythonAdmin(client, worker, self._limits)

    def _member(self, reading: Mapping[str, Any], group: str) -> dict[str, Any]:
        return {
            **reading,
            "group_id": group,
            "session_timeout_ms": self._limits.session_ms,
            "heartbeat_interval_ms": self._limits.session_ms // 6,
            "partition_assignment_strategy": (RangePartitionAssignor,),
        }

    def _reading(self) -> dict[str, Any]:
        return self._common | {
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "check_crcs": True,
            "fetch_max_wait_ms": 200,
            "max_poll_records": AT_ONCE,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }


def answered(make: Callable[..., T], settings: dict[str, Any]) -> T | None:
    """Create a client; None if no broker answers. If the constructor raises, its sockets and thread are ended here."""
    clients: list[KafkaNetClient] = []

    def client(**configs: Any) -> KafkaNetClient:
        setup = configs["request_timeout_ms"]
        clients.append(KafkaNetClient(**configs, socket_connection_setup_timeout_ms=setup))
        return clients[-1]

    try:
        return make(**settings, kafka_client=client)
    except KafkaError:
        for one in clients:
            one.close()
        return None


class KafkaPythonProducer:
    """Implements ``ChaosProducer``."""

    def __init__(self, producer: Any, worker: Worker, limits: Limits) -> None:
        self._producer = producer
        self._worker = worker
        self._limits = limits
        self._windows = Windows()
        self._mailbox = Mailbox()
        self._open: set[asyncio.Future[Sent]] = set()
        self._closing = threading.Event()
        self._fatal: object = None
        """The first batch that failed with a fatal error."""

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        async with self._windows.of(partition):
            if self._closing.is_set():
                return Sent(RequestOutcome.FAILED, error="closed")
            future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
            self._open.add(future)
            self._worker.call(self._send, future, partition, key, value)
            try:
                return await future
            finally:
                self._open.discard(future)

    def _send(
        self, future: asyncio.Future[Sent], partition: TopicPartition, key: str | None, value: str | None
    ) -> None:
        def report(sent: Sent) -> None:
            self._mailbox.post(settle, future, sent)

        end = time.monotonic() + self._limits.delivery
        topic, number = partition
        text = {"key": None if key is None else key.encode(), "value": b"" if value is None else value.encode()}
        if value is None:
            text["value"] = None
        while True:
            try:
                sending = self._producer.send(topic, partition=number, **text)
                break
            except KafkaTimeoutError as error:
                if self._closing.is_set() or time.monotonic() >= end:
                    return report(Sent(RequestOutcome.FAILED, error=repr(error)))
            except (KafkaError, ValueError) as error:
                return report(Sent(RequestOutcome.FAILED, error=repr(error)))
        sending.add_callback(lambda metadata: report(Sent(RequestOutcome.OK, metadata.offset)))
        sending.add_errback(lambda error: report(self._failed(sending, error)))
        return None

    def _failed(self, sending: Any, error: BaseException) -> Sent:
        """Return the outcome of a failed record. Runs on the library's thread. A fatal error belongs to one batch; all
        other batches fail with the same error."""
        batch, transactions = sending._produce_future, self._producer._transaction_manager
        if transactions is None or not transactions.has_fatal_error():
            return Sent(_of_record(error), error=repr(error))
        if self._fatal is None:
            self._fatal = batch
        outcome = _of_record(error) if self._fatal is batch else RequestOutcome.UNKNOWN
        return Sent(outcome, error=f"{outcomes.FATAL}{error!r}")

    async def close(self) -> None:
        self._closing.set()
        self._worker.call(self._end)
        await self._worker.close(self._limits.close + self._limits.request + BLOCK + 5)
        for future in list(self._open):
            settle(future, Sent(RequestOutcome.UNKNOWN, error="closed before its outcome was known"))

    def _end(self) -> None:
        try:
            self._producer.flush(timeout=self._limits.close)
            self._producer.close(timeout=1)
        except KafkaError:
            # The library's close also raises if records are not flushed, and does not end its thread.
            self._producer._sender.force_close()
            self._producer._unregister_cleanup()
            self._producer._closed = True
        self._producer._sender.join(self._limits.request + 1)


def _of_record(error: BaseException) -> RequestOutcome:
    return outcomes.of_record(error.errno) if isinstance(error, BrokerResponseError) else RequestOutcome.UNKNOWN


class _Reader:
    """A consumer that runs on a worker."""

    def __init__(self, consumer: Any, worker: Worker, limits: Limits) -> None:
        self._consumer = consumer
        self._worker = worker
        self._request = limits.request
        self.poll = Polling(lambda seconds: worker.call(self._read, seconds))

    def _read(self, seconds: float) -> list[Got]:
        try:
            found = self._consumer.poll(timeout_ms=int(seconds * 1000), max_records=AT_ONCE)
        except KafkaError:
            time.sleep(min(PAUSE, seconds))
            return []
        return [_got(record) for records in found.values() for record in records]

    async def close(self) -> None:
        self._worker.call(close_consumer, self._consumer)
        await self._worker.close(2 * self._request + 5)


def _got(record: Any) -> Got:
    key, value, epoch = record.key, record.value, record.leader_epoch
    return Got(
        (record.topic, record.partition),
        record.offset,
        None if key is None else key.decode(),
        None if value is None else value.decode(),
        -1 if epoch is None else epoch,
    )


def assign(consumer: Any, positions: Mapping[TopicPartition, int]) -> None:
    consumer.assign([Place(*partition) for partition in positions])
    for partition, offset in positions.items():
        consumer.seek(Place(*partition), offset)


def close_consumer(consumer: Any) -> None:
    consumer.close(autocommit=False, timeout_ms=2000)


class KafkaPythonConsumer(_Reader):
    """Implements ``ChaosConsumer``."""

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        return await self._worker.call(self._ends, Place(*partition))

    def _ends(self, place: Place) -> tuple[int, int] | None:
        limit = int(self._request * 1000)
        try:
            begin = self._consumer.beginning_offsets([place], timeout_ms=limit)[place]
            return begin, self._consumer.end_offsets([place], timeout_ms=limit)[place]
        except KafkaError:
            return None


class KafkaPythonMember(_Reader):
    """Implements ``ChaosMember``."""

    def __init__(self, consumer: Any, worker: Worker, limits: Limits) -> None:
        super().__init__(consumer, worker, limits)
        self.listener = _Assignments(consumer)
        self._name = new_name("member")
        self._session = 0

    @property
    def session(self) -> str:
        return f"{self._name}, assignment {self._session}"

    def _read(self, seconds: float) -> list[Got]:
        """Poll. The library returns only records of the assignment at the end of the poll."""
        found = super()._read(seconds)
        if found:
            self._session = self.listener.count
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        return await self._worker.call(self._commit, dict(offsets))

    def _commit(self, offsets: dict[TopicPartition, int]) -> RequestOutcome:
        places = {Place(*partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        try:
            self._consumer.commit(places, timeout_ms=int(self._request * 1000))
        except KafkaError:
            return RequestOutcome.UNKNOWN
        return RequestOutcome.OK


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts assignments."""

    def __init__(self, consumer: Any) -> None:
        self.count = 0
        self.membership: Any = None
        """With which the current partitions were assigned."""
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: object) -> None:
        self.count += 1
        self.membership = self._consumer.group_metadata()
        # The library keeps a request for committed offsets that has timed out, and would take its late answer for those
        # of a later assignment of the same partitions.
        self._consumer._coordinator._offset_fetch_futures.clear()


def _raise_reported(errors: dict[str, dict[str, str]]) -> None:
    """Raise the error that ``alter_configs`` returns as a text, "[Error 40] ..."."""
    for text in (text for of_type in errors.values() for text in of_type.values()):
        if text != "OK":
            code = re.match(r"\[Error (-?\d+)]", text)
            raise for_code(int(code[1]) if code else UNSURE)(text)


class KafkaPythonAdmin(Admin):
    """Implements ``ChaosAdmin``."""

    def __init__(self, client: Any, worker: Worker, limits: Limits) -> None:
        self._client = client
        self._worker = worker
        self._seconds = limits.request

    async def topics(self) -> Sequence[str] | None:
        return await self._worker.call(self._list)

    def _list(self) -> Sequence[str] | None:
        try:
            return list(self._client.list_topics())
        except KafkaError:
            return None

    async def _create(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> int:
        topic = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(config)}
        return await self._worker.call(self._code, lambda: self._client.create_topics({name: topic}))

    async def _delete(self, name: str) -> int:
        return await self._worker.call(self._code, lambda: self._client.delete_topics([name]))

    async def _set_config(self, topic: str, config: Mapping[str, str]) -> int:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))
        return await self._worker.call(
            self._code, lambda: _raise_reported(self._client.alter_configs([resource], raise_on_unknown=False))
        )

    def _code(self, ask: Callable[[], object]) -> int:
        try:
            ask()
        except BrokerResponseError as error:
            return int(error.errno)
        except KafkaError:
            return UNSURE
        except RuntimeError:  # "Failed to find active controller id!"
            return UNSURE
        return 0

    async def close(self) -> None:
        self._worker.call(self._client.close)
        await self._worker.close(self._seconds + 5)
