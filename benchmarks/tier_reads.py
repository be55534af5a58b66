"""Reading a topic from the tier (a local folder), compared with reading it from the broker's own disk.

``python -m benchmarks.tier_reads [MEGABYTES]``: Milena alone; one reader that looks at batch headers only.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.wire import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    Wire,
    batch_of,
    leader_of,
    produce_body,
    produced_error,
    until_led,
)
from milena.protocol.records.batch import iter_batches
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import decode_fetch_response
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.testing.local_cluster import LocalCluster

SEGMENT: Final = 10 << 20
FETCHED: Final = 1 << 20
"""Bytes of one response, as Kafka's consumer requests."""
BATCH, RECORD = 15, 1024
ROUNDS: Final = 7
TIERED: Final = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
TICKS: Final = 100


def settings(folder: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(folder),
        "rsm.config.delete.on.close": "false",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }


class Reader:
    """Reads partition 0 of a topic from its start, into one buffer."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self._socket = socket.create_connection(address)
        self._buffer = bytearray(FETCHED + (1 << 20))
        self._topic = topic

    def read(self, end: int) -> float:
        """Read up to offset ``end``; MB/s."""
        offset, size, begin = 0, 0, time.perf_counter()
        while offset < end:
            records = self._fetch(offset)
            size += len(records)
            for batch in iter_batches(records):
                offset = batch.next_offset
        return size / (1 << 20) / (time.perf_counter() - begin)

    def _fetch(self, offset: int) -> memoryview:
        request = FetchRequest(500, 1, 50 << 20, [(self._topic, None, [FetchPartition(0, offset, FETCHED)])])
        message = request_header(FETCH, FETCH_VERSION, 1, "bench") + encode_fetch_request(FETCH_VERSION, request)
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        length = struct.unpack(">i", self._exactly(4))[0]
        _, body = parse_response_header(FETCH, FETCH_VERSION, self._exactly(length))
        [(_, _, [found])] = decode_fetch_response(FETCH_VERSION, body).topics
        assert not found.error_code, found.error_code
        assert isinstance(found.records, memoryview)
        return found.records

    def _exactly(self, count: int) -> memoryview:
        view, filled = memoryview(self._buffer)[:count], 0
        while filled < count:
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            filled += received
        return view

    def close(self) -> None:
        self._socket.close()


def create(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    configs = {"segment.bytes": str(SEGMENT), "file.delete.delay.ms": "0", **config}
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(30)
    until_led(bootstrap, topic, 1)


def fill(address: tuple[str, int], topic: str, megabytes: int) -> int:
    """Return the log end offset."""
    count = (megabytes << 20) // (BATCH * RECORD)
    fill_with(address, topic, repeat(batch_of(RECORD, BATCH), count))
    return count * BATCH


def fill_with(address: tuple[str, int], topic: str, batches: Iterable[bytes]) -> None:
    wire = Wire(address)
    for batch in batches:
        wire.send(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch))
        if error := produced_error(wire.receive()):
            raise RuntimeError(f"produce failed with error {error}")
    wire.close()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-tier-") as name:
        folder = Path(name)
        with LocalCluster.start(folder / "cluster", brokers=1, overrides=settings(folder / "tier")) as cluster:
            create(cluster.bootstrap, "local", {})
            create(cluster.bootstrap, "tiered", TIERED)
            address = leader_of(cluster.bootstrap, "local")
            end = fill(address, "local", megabytes)
            fill(address, "tiered", megabytes)
            data = Path(cluster.brokers[0].log_dirs[0]) / "tiered-0"
            begin = time.perf_counter()
            while len(list(data.glob("*.log"))) > 1:
                time.sleep(0.1)
            print(f"copied and locally deleted {time.perf_counter() - begin:.1f} s after the last record")
            pid = cluster.brokers[0].pid
            assert pid is not None
            rates: dict[str, list[float]] = {"local": [], "tiered": []}
            costs: dict[str, list[float]] = {"local": [], "tiered": []}
            for _ in range(ROUNDS):
                for topic, found in rates.items():
                    reader, before = Reader(address, topic), cpu_seconds(pid)
                    found.append(reader.read(end))
                    costs[topic].append((cpu_seconds(pid) - before) / megabytes * 1000)
                    reader.close()
            for topic, found in rates.items():
                shown = " ".join(f"{rate:.0f}" for rate in found)
                print(
                    f"{topic:7} first {found[0]:.0f}, median {median(found[1:]):.0f} MB/s ({shown}), "
                    f"{median(costs[topic][1:]):.2f} ms of the broker's CPU a MB"
                )
            print(f"tier/local {median(rates['tiered'][1:]) / median(rates['local'][1:]):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
