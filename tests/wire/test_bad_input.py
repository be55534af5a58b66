"""Peers that send other bytes than Kafka requests: a node closes them as Kafka does, serves others, bounds memory."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.memory import MIB, descriptors, resident
from tests.wire.raw import answers, api_versions, connected, frame, is_closed, receive_frame, request

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\n\r\n"
PRODUCE, FETCH, METADATA = 0, 1, 3


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("bad-input"), topics=["t:1:1"]) as running:
        yield running


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TLS_HELLO, id="a TLS hello"),
        pytest.param(HTTP, id="an HTTP request"),
        pytest.param(b"\xff" * 64, id="a negative length"),
        pytest.param(struct.pack(">i", 2**31 - 1) + b"x" * 60, id="a huge length"),
        pytest.param(struct.pack(">i", 104857601) + b"x", id="one byte more than socket.request.max.bytes"),
        pytest.param(frame(b""), id="an empty frame"),
        pytest.param(frame(b"\0\x12\0"), id="half a header"),
        pytest.param(frame(bytes(range(256)) * 4), id="garbage in a frame"),
        pytest.param(request(999, 0, 1), id="an unknown API"),
        pytest.param(request(METADATA, 99, 1), id="a version out of range"),
        pytest.param(request(METADATA, 1, 1, b"\0\0"), id="a truncated body"),
        pytest.param(request(METADATA, 1, 1, b"\x7f\xff\xff\xff"), id="an array of two billion"),
    ],
)
def test_bytes_that_are_no_request_close_the_connection(single: LocalCluster, data: bytes) -> None:
    with connected(single.bootstrap) as bystander, connected(single.bootstrap) as plain:
        plain.sendall(data)
        assert is_closed(plain)
        bystander.sendall(api_versions(1))
        assert receive_frame(bystander)[:4] == b"\0\0\0\1"


def test_trailing_bytes_are_ignored_as_in_kafka(single: LocalCluster) -> None:
    with connected(single.bootstrap) as plain:
        plain.sendall(request(METADATA, 1, 1, b"\0\0\0\0trailing"))
        assert receive_frame(plain)[:4] == b"\0\0\0\1"


def test_the_controller_closes_connections_with_bad_bytes_too(single: LocalCluster) -> None:
    address = single.controller.listeners["CONTROLLER"]
    for data in (TLS_HELLO, HTTP, b"\xff" * 64):
        with connected(address) as plain:
            plain.sendall(data)
            assert is_closed(plain)
    assert answers(address)


def test_an_unknown_version_of_api_versions_is_answered_in_v0(single: LocalCluster) -> None:
    with connected(single.bootstrap) as plain:
        plain.sendall(request(18, 77, 5, b"\1\1\0", flexible=True))
        answer = receive_frame(plain)
    correlation, error, count, key = struct.unpack_from(">ihih", answer)
    assert (correlation, error, count, key) == (5, 35, 1, 18)


def test_pipelined_requests_are_answered_in_order(single: LocalCluster) -> None:
    with connected(single.bootstrap) as plain:
        plain.sendall(b"".join(api_versions(number) for number in range(500)))
        assert [struct.unpack_from(">i", receive_frame(plain))[0] for _ in range(500)] == list(range(500))


def test_a_request_sent_byte_by_byte_is_answered(single: LocalCluster) -> None:
    with connected(single.bootstrap) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for value in api_versions(3):
            plain.sendall(bytes([value]))
        assert receive_frame(plain)[:4] == b"\0\0\0\3"


def test_300_connections_that_announce_frames_of_100_mb_take_no_memory(
    milena_start: Callable[..., LocalCluster],
) -> None:
    cluster = milena_start()
    pid = cluster.nodes[1].pid
    before = resident(pid)
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connected(cluster.bootstrap)).sendall(struct.pack(">i", 100_000_000))
        assert answers(cluster.bootstrap)
        assert resident(pid) - before < 16 * MIB
    assert answers(cluster.bootstrap)


def test_2000_idle_connections_take_little_memory(milena_start: Callable[..., LocalCluster]) -> None:
    cluster = milena_start()
    pid = cluster.nodes[1].pid
    before = resident(pid)
    with ExitStack() as stack:
        for number in range(2000):
            plain = stack.enter_context(connected(cluster.bootstrap))
            plain.sendall(api_versions(number))
            receive_frame(plain)
        assert resident(pid) - before < 2000 * 16 * 1024
        assert answers(cluster.bootstrap)
    assert answers(cluster.bootstrap)


def test_half_open_and_reset_connections_leave_no_descriptors_open(single: LocalCluster) -> None:
    pid = single.nodes[1].pid
    before = descriptors(pid)
    for _ in range(200):
        with connected(single.bootstrap) as plain:
            plain.sendall(api_versions(1)[:9])
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with connected(single.bootstrap) as half:
        half.sendall(api_versions(2))
        half.shutdown(socket.SHUT_WR)
        assert receive_frame(half)[:4] == b"\0\0\0\2"
        assert is_closed(half)
    # the connections were accepted in order, so the resets have been seen when the last one is answered
    assert descriptors(pid) <= before + 2


def test_a_client_that_never_reads_responses_does_not_delay_other_clients(single: LocalCluster) -> None:
    """The client sends request after request and reads no response: the node stops reading from it instead of
    buffering responses."""
    pid = single.nodes[1].pid
    with connected(single.bootstrap, receive_buffer=4096) as greedy:
        before = resident(pid)
        greedy.settimeout(1)
        asked = 0
        try:
            for _ in range(100_000):
                greedy.sendall(api_versions(asked))
                asked += 1
        except TimeoutError:
            pass
        assert answers(single.bootstrap)
        assert resident(pid) - before < 16 * MIB
