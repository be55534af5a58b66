"""Requests and connections that cost a node more than their sender. Each abuse counts what it sends in a ``Tally``."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests import messages
from milena.protocol.requests.headers import request_header
from tests.attack.tally import Tally
from tests.wire.raw import connected, frame, receive_frame

TOPIC: Final = "attacked-0"
ANSWER_LIMIT: Final = 60.0
MIB: Final = 1 << 20


class Victim:
    """The attacked node: its Kafka listener, its metrics endpoint and its process."""

    def __init__(self, address: str, metrics: tuple[str, int] | None, pid: int, scale: float) -> None:
        self.address = address
        self.metrics = metrics
        self.pid = pid
        self.scale = scale
        """The factor for the sizes of abuses; 1 for the full size."""

    def many(self, count: int) -> int:
        return max(10, int(count * self.scale))


Abuse = Callable[[Victim, Tally], None]


def ask(victim: Victim, tally: Tally, key: ApiKey, version: int, body: bytes) -> None:
    """Send one request and count its answer, the end of the connection, or the time limit."""
    head = request_header(key, version, 1, "attack")
    tally.sent += 1
    with connected(victim.address) as plain:
        plain.settimeout(ANSWER_LIMIT)
        try:
            plain.sendall(frame(head + body))
            answer = receive_frame(plain)
        except TimeoutError:
            tally.waiting += 1
        except OSError:
            tally.closed += 1
        else:
            tally.codes[f"answer of {len(answer) // 1024} KiB"] += 1


# -- elements of one request


def list_offsets_with_duplicates(victim: Victim, tally: Tally) -> None:
    count = victim.many(400_000)
    name = TOPIC.encode()
    partition = struct.pack(">iq", 0, -1)
    body = (
        struct.pack(">ii", -1, 1) + struct.pack(">h", len(name)) + name + struct.pack(">i", count) + partition * count
    )
    ask(victim, tally, ApiKey.LIST_OFFSETS, 1, body)


def create_topics_with_duplicates(victim: Victim, tally: Tally) -> None:
    count = victim.many(200_000)
    topic = struct.pack(">h", 3) + b"dup" + struct.pack(">ihii", 1, 1, 0, 0)
    ask(
        victim, tally, ApiKey.CREATE_TOPICS, 2, struct.pack(">i", count) + topic * count + struct.pack(">i?", 100, True)
    )


def create_partitions_of_many_topics(victim: Victim, tally: Tally) -> None:
    count = victim.many(200_000)
    topics = b"".join(struct.pack(">h", 8) + b"%08d" % at + struct.pack(">ii", 2, -1) for at in range(count))
    ask(victim, tally, ApiKey.CREATE_PARTITIONS, 0, struct.pack(">i", count) + topics + struct.pack(">i?", 100, True))


def alter_configs_of_many_topics(victim: Victim, tally: Tally) -> None:
    for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        for distinct in (True, False):
            count = victim.many(300_000)
            names = (b"%08d" % (at if distinct else 0) for at in range(count))
            resources = b"".join(b"\2" + struct.pack(">h", 8) + name + bytes(4) for name in names)
            ask(victim, tally, key, 0, struct.pack(">i", count) + resources + b"\1")


def produce_to_empty_topics(victim: Victim, tally: Tally) -> None:
    count = victim.many(12_000_000)
    topic = struct.pack(">h", 0) + struct.pack(">i", 0)
    ask(victim, tally, ApiKey.PRODUCE, 3, struct.pack(">hhii", -1, 1, 100, count) + topic * count)


def produce_null_records(victim: Victim, tally: Tally) -> None:
    count = victim.many(1_000_000)
    name = TOPIC.encode()
    head = struct.pack(">hhii", -1, 1, 100, 1) + struct.pack(">h", len(name)) + name + struct.pack(">i", count)
    ask(victim, tally, ApiKey.PRODUCE, 3, head + struct.pack(">ii", 0, -1) * count)


def join_with_many_protocols(victim: Victim, tally: Tally) -> None:
    count = victim.many(1_000_000)
    protocols = b"".join(struct.pack(">h", 7) + b"%07d" % at + bytes(4) for at in range(count))
    body = struct.pack(">h", 1) + b"j" + struct.pack(">iih", 6000, 6000, 0) + struct.pack(">h", 8) + b"consumer"
    ask(victim, tally, ApiKey.JOIN_GROUP, 1, body + struct.pack(">i", count) + protocols)


def metadata_of_many_names(victim: Victim, tally: Tally) -> None:
    count = victim.many(700_000)
    names = b"".join(struct.pack(">h", 8) + b"%08d" % at for at in range(count))
    ask(victim, tally, ApiKey.METADATA, 4, struct.pack(">i", count) + names + b"\0")


def fetch_with_many_partitions(victim: Victim, tally: Tally) -> None:
    count = victim.many(300_000)
    name = TOPIC.encode()
    partition = struct.pack(">iqi", 0, 0, 1)
    body = struct.pack(">iiiibi", -1, 0, 0, 1000, 0, 1) + struct.pack(">h", len(name)) + name
    ask(victim, tally, ApiKey.FETCH, 4, body + struct.pack(">i", count) + partition * count)


def decompression_bombs(victim: Victim, tally: Tally) -> None:
    """Produce batches that are small on the wire and large when they are decompressed."""
    from milena.protocol.records.batch import Codec

    value = bytes(victim.many(200 * MIB))
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
        batch = bytes(build_batch([Record(0, 0, None, value, ())], codec=codec, base_timestamp=1_700_000_000_000))
        fields = {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
        }
        ask(victim, tally, ApiKey.PRODUCE, 9, messages.encode_request(ApiKey.PRODUCE, 9, **fields))


# -- connections


def hoarders(victim: Victim, tally: Tally) -> None:
    """Some connections hold most of the memory for incomplete requests; Produce requests of 900 KB must succeed."""
    count = victim.many(94 * MIB)
    with ExitStack() as stack:
        for _ in range(5 if victim.scale >= 1 else 8):
            plain = stack.enter_context(connected(victim.address))
            tally.sent += 1
            with contextlib.suppress(OSError):
                plain.sendall(struct.pack(">i", 100 * MIB) + bytes(count))
        batch = bytes(build_batch([Record(0, 0, None, bytes(900_000), ())], base_timestamp=1_700_000_000_000))
        fields = {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
        }
        closed = tally.closed
        for _ in range(10):
            ask(victim, tally, ApiKey.PRODUCE, 9, messages.encode_request(ApiKey.PRODUCE, 9, **fields))
        if tally.closed > closed:
            tally.unreadable.append(f"{tally.closed - closed} of 10 produces were reset while frames were unfinished")


def deaf_metadata_clients(victim: Victim, tally: Tally) -> None:
    """Connections that pipeline Metadata requests and read no answers."""
    request = frame(request_header(ApiKey.METADATA, 1, 1, "deaf") + struct.pack(">i", -1))
    _pipeline_unread(victim, tally, 300, request, 5000)


def deaf_fetchers(victim: Victim, tally: Tally) -> None:
    name = TOPIC.encode()
    body = struct.pack(">iiiibi", -1, 0, 0, 50 * MIB, 0, 1) + struct.pack(">h", len(name)) + name
    request = frame(request_header(ApiKey.FETCH, 4, 1, "deaf") + body + struct.pack(">iiqi", 1, 0, 0, MIB))
    _pipeline_unread(victim, tally, 500, request, 200)


def deaf_scrapers(victim: Victim, tally: Tally) -> None:
    if victim.metrics is not None:
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        _pipeline_unread(victim, tally, 20, request, 300, victim.metrics)


def _pipeline_unread(
    victim: Victim, tally: Tally, clients: int, request: bytes, each: int, to: tuple[str, int] | None = None
) -> None:
    host, _, port = victim.address.rpartition(":")
    with ExitStack() as stack:
        sockets = []
        for _ in range(victim.many(clients)):
            plain = stack.enter_context(socket.create_connection(to or (host, int(port)), timeout=10))
            plain.setblocking(False)
            sockets.append(plain)
        for plain in sockets:
            with contextlib.suppress(OSError):
                tally.sent += plain.send(request * each) // len(request)
        time.sleep(2 * victim.scale)


def out_of_descriptors(victim: Victim, tally: Tally) -> None:
    """Open more connections than the process may have descriptors. After they close, the node must accept clients."""
    former = resource.prlimit(victim.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (150, former[1]))
    try:
        with ExitStack() as stack:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    stack.enter_context(connected(victim.address))
                    tally.sent += 1
            time.sleep(1)
        ask(victim, tally, ApiKey.DESCRIBE_CLUSTER, 1, messages.encode_request(ApiKey.DESCRIBE_CLUSTER, 1))
        if not tally.answered:
            tally.unreadable.append("no answer after the connections had gone")
    finally:
        resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, former)


def abuses(*, controller: bool) -> Iterator[tuple[str, Abuse]]:
    """Yields (name, abuse) for the abuses that the APIs of the role allow."""
    both: tuple[Abuse, ...] = (
        create_topics_with_duplicates,
        create_partitions_of_many_topics,
        alter_configs_of_many_topics,
        hoarders_of_frames,
        out_of_descriptors,
    )
    broker: tuple[Abuse, ...] = (
        list_offsets_with_duplicates,
        produce_to_empty_topics,
        produce_null_records,
        join_with_many_protocols,
        metadata_of_many_names,
        fetch_with_many_partitions,
        decompression_bombs,
        hoarders,
        deaf_metadata_clients,
        deaf_fetchers,
        deaf_scrapers,
    )
    for abuse in (*both, *(() if controller else broker)):
        yield abuse.__name__.replace("_", " "), abuse


def hoarders_of_frames(victim: Victim, tally: Tally) -> None:
    """Connections that send the beginning of a large request and never its end."""
    with ExitStack() as stack:
        for _ in range(victim.many(200)):
            plain = stack.enter_context(connected(victim.address))
            tally.sent += 1
            with contextlib.suppress(OSError):
                plain.sendall(struct.pack(">i", 100 * MIB) + bytes(MIB))
