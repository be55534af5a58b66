"""Single requests that a node handles in slices: with many records in each codec, or with many partitions."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import BatchView, Codec
from milena.protocol.records.records import Record, build_batch, iter_records
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from tests.wire.command import node
from tests.wire.properties import combined, write
from tests.wire.raw import connected, receive_frame
from tests.wire.waiting import wait_until

MANY = 2_500
"""Number of records in a batch, and of partitions in a request."""
TOPIC = {"name": "sliced", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}


def ask(plain: socket.socket, key: ApiKey, version: int, **fields: Any) -> Any:
    frame = request_header(key, version, 7, "test") + messages.encode_request(key, version, **fields)
    plain.sendall(struct.pack(">i", len(frame)) + frame)
    return messages.decode_response(key, version, parse_response_header(key, version, receive_frame(plain))[1])


def produce(plain: socket.socket, codec: Codec, count: int) -> int:
    """Produce; return the error code."""
    records = [Record(at, 0, None, b"value %d" % at) for at in range(count)]
    data = bytes(build_batch(records, codec=codec, base_timestamp=1_000))
    topics = [{"name": "sliced", "partition_data": [{"index": 0, "records": data}]}]
    answer = ask(plain, ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=topics)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def fetch(plain: socket.socket, offset: int, others: int) -> list[Any]:
    """Fetch the partition of ``sliced`` and many partitions of a topic that does not exist; return the response's."""
    wanted = {"fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [
        {"topic": "sliced", "partitions": [{"partition": 0, **wanted}]},
        {"topic": "missing", "partitions": [{"partition": index, **wanted} for index in range(others)]},
    ]
    limits = {"replica_id": -1, "max_wait_ms": 5_000, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = ask(plain, ApiKey.FETCH, 12, **limits, topics=topics)
    return [partition for topic in answer.responses for partition in topic.partitions]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[socket.socket]:
    """A socket connected to a node that has the topic ``sliced``."""
    folder: Path = tmp_path_factory.mktemp("sliced")
    with node(folder, write(folder, combined(folder))) as running, connected(running.address) as early:
        created = ask(early, ApiKey.CREATE_TOPICS, 7, topics=[TOPIC], timeout_ms=5_000, validate_only=False)
        assert created.topics[0].error_code == 0
        wait_until(lambda: produce(early, Codec.NONE, 1) == 0, "the topic")
        yield early
        assert "failed" not in running.log.read_text()


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_many_records_are_appended_and_fetched(plain: socket.socket, codec: Codec) -> None:
    end = ask(
        plain,
        ApiKey.LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "sliced", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    ).topics[0].partitions[0].offset  # fmt: skip
    assert produce(plain, codec, MANY) == 0
    (found,) = fetch(plain, end, 0)
    batch = BatchView(memoryview(found.records))
    assert (batch.base_offset, batch.codec) == (end, codec)
    assert [record.value for record in iter_records(batch)] == [b"value %d" % at for at in range(MANY)]


def test_a_fetch_of_many_partitions_is_answered(plain: socket.socket) -> None:
    first, *others = fetch(plain, 0, MANY)
    assert (first.error_code, len(others)) == (0, MANY)
    assert {other.error_code for other in others} == {3}
    assert BatchView(memoryview(first.records)).base_offset == 0
