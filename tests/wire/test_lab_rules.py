"""What real clients do when a rule duplicates or drops their requests, or the responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.lab import log_of

Write = Callable[[str, str, bool], None]
"""Writes ``one`` to a topic with acks=all, and returns when it is acknowledged. Arguments: bootstrap servers, topic,
whether the producer is idempotent."""
REQUEST_TIMEOUT_MS = 1000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("rules"), lab=True) as running:
        yield running


def with_librdkafka(bootstrap: str, topic: str, idempotent: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "retry.backoff.ms": 10,
        }
    )
    failures: list[object] = []
    producer.produce(topic, b"one", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures


def with_kafka_python(bootstrap: str, topic: str, idempotent: bool) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=idempotent,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        retry_backoff_ms=10,
    )
    producer.send(topic, b"one").get(30)
    producer.close()


def with_aiokafka(bootstrap: str, topic: str, idempotent: bool) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=idempotent,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=10,
        ) as producer:
            await producer.send_and_wait(topic, b"one")

    asyncio.run(send())


CLIENTS: dict[str, Write] = {
    "librdkafka": with_librdkafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("idempotent", "records"), [(False, ["one", "one"]), (True, ["one"])])
def test_only_an_idempotent_producer_writes_a_record_once_if_its_request_is_handled_twice(
    lab: LocalCluster, topic: str, client: str, idempotent: bool, records: list[str]
) -> None:
    create_topic(lab.bootstrap, topic, partitions=1, replicas=1)
    broker = lab.lab_commands(1)
    rule = broker.call("duplicate", api="PRODUCE", topic=topic, count=1)["rule"]
    CLIENTS[client](lab.bootstrap, topic, idempotent)
    assert broker.call("wait", rule=rule)["hits"] == 1
    assert log_of(lab, 1, topic) == records
    broker.call("release", rule=rule)


@pytest.mark.parametrize(
    ("client", "idempotent", "side", "records"),
    [
        ("kafka-python", False, "request", ["one"]),
        ("kafka-python", False, "response", ["one", "one"]),
        ("librdkafka", True, "response", ["one"]),
    ],
)
def test_a_producer_sends_a_request_again_if_it_or_its_response_is_dropped(
    lab: LocalCluster, topic: str, client: str, idempotent: bool, side: str, records: list[str]
) -> None:
    """aiokafka gives up at its first timeout."""
    create_topic(lab.bootstrap, topic, partitions=1, replicas=1)
    broker = lab.lab_commands(1)
    traced = broker.call("trace", api="PRODUCE", topic=topic)["rule"]
    dropped = broker.call("drop", api="PRODUCE", topic=topic, side=side, count=1)["rule"]
    CLIENTS[client](lab.bootstrap, topic, idempotent)
    assert log_of(lab, 1, topic) == records
    rules = {one["rule"]: one["hits"] for one in broker.call("rules")}
    assert (rules[traced], rules[dropped]) == (2, 1)
    broker.call("clear")


def test_a_consumer_whose_joins_are_handled_twice_reads_all(lab: LocalCluster, topic: str) -> None:
    create_topic(lab.bootstrap, topic, partitions=1, replicas=1)
    with_librdkafka(lab.bootstrap, topic, True)
    broker = lab.lab_commands(1)
    rules = [broker.call("duplicate", api=api)["rule"] for api in ("JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "FETCH")]
    consumer = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    (record,) = consumer.consume(1, timeout=30)
    assert record.value() == b"one"
    consumer.close()
    assert broker.call("wait", rule=rules[0])["hits"] >= 1
    broker.call("clear")
