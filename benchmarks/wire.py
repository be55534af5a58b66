"""A client with one connection and one thread, which adds as little as possible to what it measures."""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import Future

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from milena.protocol.records.records import BatchBuilder
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import decode_fetch_response
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 9, 12
RECEIVED = 1 << 16
"""Bytes of one system call."""


def create_topic(bootstrap: str, name: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic and return when the metadata of every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, replicas)], operation_timeout=60)[name].result(90)
    while True:
        topic = admin.list_topics(name, timeout=30).topics[name]
        if len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values()):
            return


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic, and wait until metadata no longer has it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([name], operation_timeout=60)[name].result(90)
    while name in admin.list_topics(timeout=30).topics:
        time.sleep(0.05)


def until_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until the leader of every partition answers ListOffsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    end = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    missing = {TopicPartition(topic, partition): end for partition in range(partitions)}
    deadline = time.monotonic() + 300
    while missing:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(missing)} partitions of {topic} are not led")
        answers = admin.list_offsets(missing, request_timeout=60)
        missing = {one: end for one, answer in answers.items() if _refused(answer)}


def _refused(answer: Future[object]) -> bool:
    try:
        answer.result()
    except KafkaException:
        return True
    return False


def acknowledge_one(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    producer.produce(topic, b"first")
    if producer.flush(60):
        raise TimeoutError(f"a write to {topic} was not acknowledged")


def leader_id(bootstrap: str, topic: str, partition: int = 0) -> int:
    metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=30)
    return int(metadata.topics[topic].partitions[partition].leader)


def leader_of(bootstrap: str, topic: str, partition: int = 0) -> tuple[str, int]:
    """Host and port of a partition's leader."""
    metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, timeout=30)
    broker = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
    return str(broker.host), broker.port


def batch_of(size: int, count: int = 1) -> bytes:
    """A batch of ``count`` records with values of ``size`` bytes."""
    builder = BatchBuilder()
    now = time.time_ns() // 1_000_000
    for _ in range(count):
        builder.append(timestamp=now, value=b"x" * size)
    return builder.build()


class Wire:
    """A blocking connection to one broker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def send(self, key: int, version: int, body: bytes) -> None:
        self._correlation += 1
        message = request_header(key, version, self._correlation, "bench") + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)

    def send_framed(self, message: bytes) -> None:
        """Send bytes made by ``framed``: encoding within the measured time would be measured too."""
        self._socket.sendall(message)

    def receive(self) -> bytes:
        """Receive the only outstanding response, without its length."""
        data = self._some()
        while len(data) < 4:
            data += self._some()
        missing = 4 + int.from_bytes(data[:4], "big") - len(data)
        if missing <= 0:
            return data[4:]
        pieces = [data[4:]]
        while missing > 0:
            pieces.append(self._some())
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def receive_many(self, count: int) -> list[bytes]:
        """Receive ``count`` outstanding responses, without their lengths. There must be no more of them."""
        data, found, start = bytearray(), list[bytes](), 0
        while len(found) < count:
            end = start + 4 + int.from_bytes(data[start : start + 4], "big") if len(data) >= start + 4 else None
            if end is None or end > len(data):
                data += self._some()
                continue
            found.append(bytes(data[start + 4 : end]))
            start = end
        return found

    def _some(self) -> bytes:
        piece = self._socket.recv(RECEIVED)
        if not piece:
            raise ConnectionError("the broker closed the connection")
        return piece

    def close(self) -> None:
        self._socket.close()


def framed(key: int, version: int, body: bytes) -> bytes:
    """A complete request, to be sent repeatedly on connections with one request in flight."""
    message = request_header(key, version, 1, "bench") + body
    return struct.pack(">i", len(message)) + message


def produce_body(topic: str, batch: bytes, acks: int = 1) -> bytes:
    request = ProduceRequest(None, acks, 30_000, [(topic, None, [(0, memoryview(batch))])])
    return encode_produce_request(PRODUCE_VERSION, request)


def produced_error(frame: bytes) -> int:
    _, body = parse_response_header(PRODUCE, PRODUCE_VERSION, frame)
    return decode_produce_response(PRODUCE_VERSION, body).topics[0][2][0].error_code


def fetch_body(topic: str, offset: int, max_wait_ms: int = 10_000) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms, min_bytes=1, max_bytes=50 << 20, topics=[(topic, None, [partition])])
    return encode_fetch_request(FETCH_VERSION, request)


def fetched_bytes(frame: bytes) -> int:
    """Return the number of record bytes in a response."""
    _, body = parse_response_header(FETCH, FETCH_VERSION, frame)
    records = decode_fetch_response(FETCH_VERSION, body).topics[0][2][0].records
    return len(records) if isinstance(records, bytes | memoryview) else 0
