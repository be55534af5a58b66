"""A node whose clients use all file descriptors for connections: it continues to serve the open connections."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import Codec
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from tests.wire.command import node
from tests.wire.properties import combined, write
from tests.wire.raw import connected, receive_frame
from tests.wire.waiting import wait_until

LIMIT = 150
TOPIC = {"name": "many", "num_partitions": 3, "replication_factor": 1, "assignments": (), "configs": ()}


def ask(plain: socket.socket, key: ApiKey, version: int, **fields: Any) -> Any:
    frame = request_header(key, version, 7, "test") + messages.encode_request(key, version, **fields)
    plain.sendall(struct.pack(">i", len(frame)) + frame)
    correlation, body = parse_response_header(key, version, memoryview(receive_frame(plain)))
    assert correlation == 7
    return messages.decode_response(key, version, body)


def logs_of(plain: socket.socket) -> Any:
    (folder,) = ask(plain, ApiKey.DESCRIBE_LOG_DIRS, 1, topics=None).results
    assert folder.error_code == 0
    return folder.topics


@contextmanager
def crowd(address: str, count: int) -> Iterator[None]:
    """Open so many connections, whether the node accepts them or not."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((host, int(port)))
        yield


def test_out_of_descriptors_for_clients_a_node_answers_all_apis_and_its_logs_stay_online(tmp_path: Path) -> None:
    with node(tmp_path, write(tmp_path, combined(tmp_path))) as running, connected(running.address) as early:
        assert ask(early, ApiKey.API_VERSIONS, 0).error_code == 0
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        with crowd(running.address, 300):
            wait_until(lambda: "accepting paused" in running.log.read_text(), "a warning")
            for version in range(5):
                assert ask(early, ApiKey.LIST_GROUPS, version).error_code == 0
            created = ask(early, ApiKey.CREATE_TOPICS, 7, topics=[TOPIC], timeout_ms=5000, validate_only=False)
            assert created.topics[0].error_code == 0
            refused = ask(early, ApiKey.DELETE_GROUPS, 2, groups_names=["nothing"])
            assert refused.results[0].error_code == ErrorCode.NOT_COORDINATOR
            wait_until(lambda: bool(logs_of(early)), "the topic's logs")
        with connected(running.address) as late:
            assert ask(late, ApiKey.API_VERSIONS, 0).error_code == 0
        text = running.log.read_text()
    assert "Too many open files" not in text
    assert "request failed" not in text
    assert text.count("accepting paused") <= 10


def test_compressed_batches_are_checked_without_a_free_descriptor(tmp_path: Path) -> None:
    with node(tmp_path, write(tmp_path, combined(tmp_path))) as running, connected(running.address) as early:
        created = ask(early, ApiKey.CREATE_TOPICS, 7, topics=[TOPIC], timeout_ms=5000, validate_only=False)
        assert created.topics[0].error_code == 0
        wait_until(lambda: produced(early, Codec.NONE) == 0, "the topic")
        maps = Path(f"/proc/{running.process.pid}/maps")
        wait_until(lambda: "cramjam" in (text := maps.read_text()) and "zstd" in text, "the codecs")
        # The modules are imported in one callback of the event loop, after their libraries are mapped: it has ended
        # when the next request is answered.
        assert produced(early, Codec.NONE) == 0
        before = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        codes = [produced(early, codec) for codec in Codec]
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, before)
        assert codes == [0] * len(Codec)


def produced(plain: socket.socket, codec: Codec) -> int:
    """Produce; return the error code."""
    records = memoryview(build_batch([Record(0, 0, None, b"text " * 50)], codec=codec, base_timestamp=1_000))
    body = encode_produce_request(9, ProduceRequest(None, 1, 1000, [("many", None, [(0, records)])]))
    frame = request_header(ApiKey.PRODUCE, 9, 7, "test") + body
    plain.sendall(struct.pack(">i", len(frame)) + frame)
    _, answer = parse_response_header(ApiKey.PRODUCE, 9, memoryview(receive_frame(plain)))
    return decode_produce_response(9, answer).topics[0][2][0].error_code
