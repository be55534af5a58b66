"""Loading of one partition of ``__transaction_state``: ``python -m benchmarks.transaction_loading [FORM] [MIB]``.

A broker creates the topic. While it is stopped, its last partition gets so many MiB of records of 30,000 transactional
ids: three for each transaction, one in a batch, as brokers write them. Then the broker is started, and three clients
ask in turn: for an id of that partition, until it is loaded; for one of a partition that is loaded before it; and for
metadata.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.forms import PURE
from benchmarks.latency import percentile
from benchmarks.peers import Milena, cpu_seconds, resident_mib
from benchmarks.wire import Wire
from milena.broker.transactions import store
from milena.broker.transactions.model import Transaction
from milena.broker.transactions.partitions import NO_PARTITIONS, TransactionPartitions
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.hashing import partition_for_group
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header
from milena.protocol.types import ProducerEpoch, ProducerId

PARTITIONS: Final = 50
LOADED: Final = PARTITIONS - 1
"""The partition with the records, which is loaded last."""
IDS: Final = 30_000
SEGMENT_BYTES: Final = 100 << 20
REPLACED: Final = frozenset({".log", ".index", ".timeindex", ".snapshot"})
BASE_OFFSET: Final = Struct(">q")
"""The first field of a batch, which its checksum does not cover."""
PAUSE: Final = 0.02


def main(arguments: list[str]) -> int:
    form, mib = (*arguments, *(PURE, "1024")[len(arguments) :])
    peer = Milena(form)
    names = [name for name in map("id-{}".format, range(100 * IDS)) if partition_for_group(name, PARTITIONS) == LOADED]
    other = next(name for name in map("id-{}".format, range(10_000)) if partition_for_group(name, PARTITIONS) == 0)
    with TemporaryDirectory(prefix="bench-loading-") as place:
        folder = Path(place)
        with peer.cluster(1, folder) as running:
            client = Client(running.bootstrap)
            client.create_state_topic()
            for name in (other, names[0]):
                client.until_initialized(name)
        write(next(folder.rglob(f"__transaction_state-{LOADED}")), names[:IDS], int(mib) << 20)
        with peer.cluster(1, folder) as running:
            watch(running.bootstrap, running.brokers[0], names[0], other)
    return 0


class Client:
    """Requests over one connection, one after the other."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._wire = Wire((host, int(port)))

    def _ask(self, key: ApiKey, version: int, **fields: object) -> bytes:
        self._wire.send(key, version, messages.encode_request(key, version, **fields))
        return bytes(parse_response_header(key, version, self._wire.receive())[1])

    def create_state_topic(self) -> None:
        self._ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["id"])

    def initialize(self, name: str) -> ErrorCode:
        """InitProducerId."""
        answer = self._ask(
            ApiKey.INIT_PRODUCER_ID,
            5,
            transactional_id=name,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        return ErrorCode(messages.decode_response(ApiKey.INIT_PRODUCER_ID, 5, answer).error_code)

    def until_initialized(self, name: str) -> None:
        while self.initialize(name):
            time.sleep(PAUSE)

    def metadata(self) -> None:
        self._ask(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False)


def write(folder: Path, names: list[str], size: int) -> None:
    """Replace the segments of a log with ``size`` bytes of transactions of these ids."""
    block, positions = bytearray(), list[int]()
    for number, name in enumerate(names):
        for batch in transaction(name, ProducerId(1_000 + number)):
            positions.append(len(block))
            block += batch
    for file in folder.iterdir():
        if file.suffix in REPLACED:
            file.unlink()
    offset, written, segment = 0, 0, folder / f"{0:020d}.log"
    while written < size:
        if segment.exists() and segment.stat().st_size + len(block) > SEGMENT_BYTES:
            segment = folder / f"{offset:020d}.log"
        for position in positions:
            BASE_OFFSET.pack_into(block, position, offset)
            offset += 1
        with open(segment, "ab") as file_of_segment:
            file_of_segment.write(block)
        written += len(block)
    for marker in folder.parent.glob(".kafka_cleanshutdown"):
        marker.unlink()  # so that the broker builds the indexes


def transaction(name: str, producer_id: ProducerId) -> list[bytes]:
    """The batches of a committed transaction with three partitions."""
    now_ms = time.time_ns() // 1_000_000
    partitions = TransactionPartitions({"orders": dict.fromkeys(range(3))})
    states = [
        (TransactionState.ONGOING, partitions),
        (TransactionState.PREPARE_COMMIT, partitions),
        (TransactionState.COMPLETE_COMMIT, NO_PARTITIONS),
    ]
    return [
        store.state_batch(
            name,
            Transaction(
                producer_id, ProducerEpoch(0), 60_000, state, now_ms, partitions=held, start_ms=now_ms, client_version=2
            ),
            version=2,
            now_ms=now_ms,
        )
        for state, held in states
    ]


@dataclass
class Times:
    """Seconds of requests."""

    seconds: list[float] = field(default_factory=list)

    def measure(self, request: Callable[[], object]) -> None:
        begin = time.perf_counter()
        request()
        self.seconds.append(time.perf_counter() - begin)

    def __str__(self) -> str:
        p50, p99 = (percentile(self.seconds, share) for share in (50, 99))
        return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, at most {1000 * max(self.seconds):.0f} ms"


def watch(bootstrap: str, pid: int, loaded: str, other: str) -> None:
    """Ask until ``loaded`` can be initialized, and print what that took."""
    begin, cpu, memory = time.perf_counter(), cpu_seconds(pid), resident_mib(pid)
    loading, served, asking = Client(bootstrap), Client(bootstrap), Client(bootstrap)
    served.until_initialized(other)
    initialized, metadata, peak = Times(), Times(), memory
    while loading.initialize(loaded):
        initialized.measure(lambda: served.initialize(other))
        metadata.measure(asking.metadata)
        peak = max(peak, resident_mib(pid))
        time.sleep(PAUSE)
    print(f"loaded after {time.perf_counter() - begin:.1f} s, {cpu_seconds(pid) - cpu:.1f} s of CPU")
    print(f"resident: {memory:.0f} MiB before, at most {peak:.0f}, {resident_mib(pid):.0f} in the end")
    print(f"InitProducerId in another partition: {initialized}")
    print(f"Metadata: {metadata}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
