"""Transactions of the Python clients behind one interface."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

LIMIT: Final = 60.0
"""Seconds for one call of a client."""


class FencedError(Exception):
    """The client reports that a newer producer with the same transactional id exists."""


class Transactional(Protocol):
    """A transactional producer that has been initialized. ``commit`` raises FencedError."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record and wait for it: clients discard unsent records on an abort."""
        ...

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        """As a member of the group, read ``count`` records, write them to partition 0 of ``target`` and add their
        offsets to the transaction."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class TransactionalClient(Protocol):
    """One client library."""

    name: str

    def producer(self, bootstrap: str, transactional_id: str) -> Transactional: ...

    def committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        """Read ``count`` records of partition 0 with read_committed, from the first on."""
        ...


class Confluent:
    name = "confluent-kafka"

    def producer(self, bootstrap: str, transactional_id: str) -> Transactional:
        return _ConfluentProducer(bootstrap, transactional_id)

    def committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        from confluent_kafka import TopicPartition

        consumer = _confluent_consumer(bootstrap, "unused")
        consumer.assign([TopicPartition(topic, 0, 0)])
        try:
            return [_value(message) for message in consumer.consume(count, LIMIT)]
        finally:
            consumer.close()


def _confluent_consumer(bootstrap: str, group: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def _value(message: Any) -> bytes:
    assert message.error() is None, message.error()
    value: bytes = message.value()
    return value


class _ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        )
        self._producer.init_transactions(LIMIT)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition)
        self._producer.flush(LIMIT)

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        consumer = _confluent_consumer(self._bootstrap, group)
        consumer.subscribe([source])
        try:
            for message in consumer.consume(count, LIMIT):
                self.send(target, _value(message))
            positions = consumer.position(consumer.assignment())
            self._producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), LIMIT)
        finally:
            consumer.close()

    def commit(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.commit_transaction(LIMIT)
        except KafkaException as error:
            if error.args[0].fatal():
                raise FencedError(str(error)) from None
            raise

    def abort(self) -> None:
        self._producer.abort_transaction(LIMIT)

    def close(self) -> None:
        """Nothing is to be closed."""


class KafkaPython:
    name = "kafka-python"

    def producer(self, bootstrap: str, transactional_id: str) -> Transactional:
        return _KafkaPythonProducer(bootstrap, transactional_id)

    def committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        from kafka import TopicPartition

        consumer = _kafka_python_consumer(bootstrap, None)
        consumer.assign([TopicPartition(topic, 0)])
        try:
            return [message.value for _, message in zip(range(count), consumer, strict=False)]
        finally:
            consumer.close()


def _kafka_python_consumer(bootstrap: str, group: str | None) -> Any:
    from kafka import KafkaConsumer

    return KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=LIMIT * 1000,
    )


class _KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from kafka import KafkaProducer

        self._bootstrap = bootstrap
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), transactional_id=transactional_id, max_block_ms=LIMIT * 1000
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(LIMIT)

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        consumer = _kafka_python_consumer(self._bootstrap, group)
        consumer.subscribe([source])
        offsets = {}
        try:
            for _, message in zip(range(count), consumer, strict=False):
                self.send(target, message.value)
                offsets[TopicPartition(source, message.partition)] = OffsetAndMetadata(message.offset + 1, "", -1)
            self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        finally:
            consumer.close()

    def commit(self) -> None:
        from kafka.errors import ProducerFencedError

        try:
            self._producer.commit_transaction()
        except ProducerFencedError as error:
            raise FencedError(str(error)) from None

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class Aiokafka:
    name = "aiokafka"

    def producer(self, bootstrap: str, transactional_id: str) -> Transactional:
        return _AiokafkaProducer(bootstrap, transactional_id)

    def committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        async def read() -> list[bytes]:
            from aiokafka import TopicPartition

            async with _aiokafka_consumer(bootstrap, None) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                await consumer.seek_to_beginning()
                return [(await consumer.getone()).value for _ in range(count)]

        return asyncio.run(asyncio.wait_for(read(), LIMIT))


def _aiokafka_consumer(bootstrap: str, group: str | None) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )


class _AiokafkaProducer:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._runner = asyncio.Runner()
        self._producer = self._run(self._start(transactional_id))

    async def _start(self, transactional_id: str) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
        await producer.start()
        return producer

    def _run(self, call: Any) -> Any:
        return self._runner.run(asyncio.wait_for(call, LIMIT))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        async def copy() -> None:
            from aiokafka import TopicPartition

            offsets = {}
            async with _aiokafka_consumer(self._bootstrap, group) as consumer:
                consumer.subscribe([source])
                for _ in range(count):
                    message = await consumer.getone()
                    await self._producer.send_and_wait(target, message.value, partition=0)
                    offsets[TopicPartition(source, message.partition)] = message.offset + 1
                await self._producer.send_offsets_to_transaction(offsets, group)

        self._run(copy())

    def commit(self) -> None:
        from aiokafka.errors import ProducerFenced

        try:
            self._run(self._producer.commit_transaction())
        except ProducerFenced as error:
            raise FencedError(str(error)) from None

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._runner.close()


class Piped:
    """A client in another language: a program that is driven through a pipe, as ``go/main.go`` describes."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._command = command

    def producer(self, bootstrap: str, transactional_id: str) -> Transactional:
        return _PipedProducer([*self._command, bootstrap, "produce", transactional_id])

    def committed(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        return subprocess.check_output([*self._command, bootstrap, "read", topic, str(count)]).splitlines()


class _PipedProducer:
    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _ask(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if answer == "fenced":
            raise FencedError
        assert answer == "ok", answer

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._ask("send", topic, str(partition), value.decode())

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        self._ask("copy", source, target, group, str(count))

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT)


PYTHON_CLIENTS: Final[Sequence[TransactionalClient]] = (Confluent(), KafkaPython(), Aiokafka())
GO_LIBRARIES: Final = ("franz-go", "sarama", "confluent-kafka-go")


@contextlib.contextmanager
def transactional(client: TransactionalClient, bootstrap: str, transactional_id: str) -> Iterator[Transactional]:
    producer = client.producer(bootstrap, transactional_id)
    try:
        yield producer
    finally:
        producer.close()
