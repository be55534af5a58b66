"""Batches both ways between our codec and librdkafka's, through the mock broker that librdkafka brings along."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from milena.protocol.records.batch import BatchView, Codec, iter_batches
from milena.protocol.records.records import Record, build_batch, iter_records, offset_of, timestamp_of
from milena.protocol.requests.fetch import (
    FetchPartition,
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request

PRODUCE, PRODUCE_VERSION = 0, 9
FETCH, FETCH_VERSION = 1, 11
NOW = 1_700_000_000_123
HEADERS = (("h\u00e4der", b"x"), ("null", None), ("empty", b""))
VALUES: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"no key"),
    (b"tombstone", None),
    (None, b"repeat me " * 20_000),
    *((b"%d" % n, b"value %d" % (n * n)) for n in range(200)),
]


class Wire:
    """One blocking connection that sends a request and reads the answer."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._correlations = count()

    def request(self, key: int, version: int, body: bytes) -> memoryview:
        message = request_header(key, version, next(self._correlations), "test") + body
        self._socket.sendall(len(message).to_bytes(4, "big") + message)
        size = int.from_bytes(self._read(4), "big")
        return parse_response_header(key, version, self._read(size))[1]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            assert received, "the mock broker closed the connection"
            data += received
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def mock_broker() -> Iterator[str]:
    """The address of a broker inside librdkafka, which lives as long as its producer."""
    owner = Producer({"test.mock.num.brokers": 1})
    (broker,) = owner.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    owner.flush()


@pytest.fixture
def wire(mock_broker: str) -> Iterator[Wire]:
    opened = Wire(mock_broker)
    yield opened
    opened.close()


@pytest.mark.parametrize("codec", Codec)
def test_we_read_the_batches_that_librdkafka_writes(codec: Codec, mock_broker: str, wire: Wire) -> None:
    topic = f"theirs-{codec.name}"
    producer = Producer(
        {"bootstrap.servers": mock_broker, "compression.type": codec.name.lower(), "linger.ms": 50, "acks": 1}
    )
    for key, value in VALUES:
        producer.produce(topic, value, key, partition=0, timestamp=NOW, headers=list(HEADERS))
    assert producer.flush(20) == 0
    batches = fetch_all(wire, topic, len(VALUES))
    assert codec in {batch.codec for batch in batches}
    read = [
        (offset_of(batch, record), timestamp_of(batch, record), record.key, record.value, record.headers)
        for batch in batches
        for record in iter_records(batch)
    ]
    assert read == [(offset, NOW, key, value, HEADERS) for offset, (key, value) in enumerate(VALUES)]


def fetch_all(wire: Wire, topic: str, upto: int) -> list[BatchView]:
    batches: list[BatchView] = []
    while not batches or batches[-1].next_offset < upto:
        wanted = FetchPartition(partition=0, fetch_offset=batches[-1].next_offset if batches else 0, max_bytes=1 << 24)
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 24, topics=[(topic, None, [wanted])])
        body = wire.request(FETCH, FETCH_VERSION, encode_fetch_request(FETCH_VERSION, request))
        partition = decode_fetch_response(FETCH_VERSION, body).topics[0][2][0]
        assert partition.error_code == 0
        assert isinstance(partition.records, (bytes, bytearray, memoryview))
        for batch in iter_batches(memoryview(bytes(partition.records))):
            batch.verify_crc()
            batches.append(batch)
    return batches


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_reads_the_batches_that_we_write(codec: Codec, mock_broker: str, wire: Wire) -> None:
    topic = f"ours-{codec.name}"
    Producer({"bootstrap.servers": mock_broker}).list_topics(topic, timeout=10)
    records = [Record(index, index, key, value, HEADERS) for index, (key, value) in enumerate(VALUES)]
    batch = build_batch(records, codec=codec, base_timestamp=NOW)
    request = ProduceRequest(None, 1, 5_000, [(topic, None, [(0, memoryview(batch))])])
    body = wire.request(PRODUCE, PRODUCE_VERSION, encode_produce_request(PRODUCE_VERSION, request))
    assert decode_produce_response(PRODUCE_VERSION, body).topics[0][2][0].error_code == 0
    messages = consume(mock_broker, topic, len(records))
    read = [(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages]
    assert read == [(r.offset_delta, NOW + r.timestamp_delta, r.key, r.value, HEADERS) for r in records]


def consume(address: str, topic: str, expected: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "check.crcs": True, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        while len(messages) < expected and (more := consumer.consume(expected, timeout=10)):
            messages += more
        return messages
    finally:
        consumer.close()
