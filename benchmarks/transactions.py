"""Transactions of one producer (librdkafka): how many a second, and how long a commit takes, which includes the
acknowledgement of the records; Kafka's ProducerPerformance with transactions; a consumer that reads committed records;
and the memory of a broker with many transactional ids.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Producer

from benchmarks.latency import percentile
from benchmarks.peers import Peer, Running, resident_mib
from benchmarks.replication import REPLICAS
from benchmarks.sizes import Figures, Sizes
from benchmarks.throughput import consumption, producer_performance
from benchmarks.turns import Rounds
from benchmarks.wire import Wire, create_topic, framed
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header
from tests.oracle.kafka import NoKafka, jars

RECORDS: Final = (1, 10, 100)
"""Records of a transaction, of 100 bytes."""
PARTITIONS: Final = (1, 10)
VALUE: Final = b"x" * 100
WARMING: Final = 20
"""Transactions of each case before the first round."""
LIMIT: Final = 60.0
DURATION_MS: Final = 100
"""How long a transaction of ProducerPerformance is."""
READ_TOPIC, READ_PARTITIONS, READ_BATCH = "read-committed", 6, 1_000
SINGLE, REPLICATED = "transactions", "replicated_transactions"
INIT_VERSION, FIND_VERSION = 5, 4
TRANSACTIONAL: Final = 1
"""The type of coordinator in FindCoordinator."""
REPEATED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
IN_FLIGHT: Final = 100
"""InitProducerId requests without an answer."""


def transactions(running: Running, sizes: Sizes) -> Rounds:
    """On one broker, and with what a consumer reads of it."""
    yield from _all_cases(running, sizes, SINGLE, 1)
    yield from _read(running, sizes)


def replicated_transactions(running: Running, sizes: Sizes) -> Rounds:
    """On three brokers with three replicas."""
    return _all_cases(running, sizes, REPLICATED, REPLICAS)


def _all_cases(running: Running, sizes: Sizes, prefix: str, replicas: int) -> Rounds:
    for partitions in PARTITIONS:
        topic = f"{prefix}-{partitions}"
        create_topic(running.bootstrap, topic, partitions, replicas)
        for records in RECORDS:
            for figures in _case(running.bootstrap, topic, partitions, records, sizes):
                yield {f"{prefix}_{records}_{partitions}_{name}": value for name, value in figures.items()}
    yield from _performance(running, sizes, prefix, replicas)


def _case(bootstrap: str, topic: str, partitions: int, records: int, sizes: Sizes) -> Rounds:
    producer = _producer(bootstrap, f"{topic}-{records}")
    numbers = count()
    for _ in range(WARMING):
        _transaction(producer, topic, partitions, records, numbers)
    yield {}
    for _ in range(sizes.transaction_rounds):
        begin = time.perf_counter()
        seconds = [
            _transaction(producer, topic, partitions, records, numbers) for _ in range(sizes.transactions_measured)
        ]
        elapsed = time.perf_counter() - begin
        yield {
            "per_s": len(seconds) / elapsed,
            "commit_p50_ms": percentile(seconds, 50),
            "commit_p99_ms": percentile(seconds, 99),
        }


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0, "transactional.id": transactional_id}
    producer = Producer(settings)
    producer.init_transactions(LIMIT)
    return producer


def _transaction(producer: Producer, topic: str, partitions: int, records: int, numbers: Iterator[int]) -> float:
    """Write records to the partitions in turns, and return the seconds of the commit. Raises KafkaException."""
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, VALUE, partition=next(numbers) % partitions)
    begin = time.perf_counter()
    producer.commit_transaction(LIMIT)
    return time.perf_counter() - begin


def _performance(running: Running, sizes: Sizes, prefix: str, replicas: int) -> Rounds:
    """MB/s of Kafka's tool with transactions. The first round is for warming up."""
    try:
        jars()
    except NoKafka:
        return
    topic = f"{prefix}-load"
    create_topic(running.bootstrap, topic, READ_PARTITIONS, replicas)
    more = ("--transactional-id", topic, "--transaction-duration-ms", str(DURATION_MS))
    for number in range(1 + sizes.throughput_rounds):
        rate = producer_performance(running.bootstrap, topic, sizes.replicated_records, acks="all", more=more)
        yield {f"{prefix}_produce_mb_s": rate} if number else {}


def _read(running: Running, sizes: Sizes) -> Rounds:
    """MB/s of librdkafka's consumer with each isolation level in turns, and the ratio of both."""
    create_topic(running.bootstrap, READ_TOPIC, READ_PARTITIONS)
    _fill(running.bootstrap, sizes.transactional_records)
    yield {}
    levels = ["read_uncommitted", "read_committed"]
    for number in range(1 + sizes.transaction_rounds):
        rates = {level: _consumed(running.bootstrap, level, sizes.transactional_records) for level in levels}
        levels.reverse()  # so that neither level is always the first one
        committed = rates["read_committed"]
        figures = {"read_committed_mb_s": committed, "read_committed_share": committed / rates["read_uncommitted"]}
        yield figures if number else {}


def _fill(bootstrap: str, records: int) -> None:
    producer = _producer(bootstrap, "filled")
    for first in range(0, records, READ_BATCH):
        producer.begin_transaction()
        for number in range(first, min(first + READ_BATCH, records)):
            producer.produce(READ_TOPIC, VALUE * 10, partition=number % READ_PARTITIONS)
        producer.commit_transaction(LIMIT)


def _consumed(bootstrap: str, isolation: str, records: int) -> float:
    # Without the short backoff a client whose queue is full pauses for a second.
    settings: dict[str, str | int] = {"isolation.level": isolation, "log_level": 0, "fetch.queue.backoff.ms": 5}
    return consumption(bootstrap, READ_TOPIC, READ_PARTITIONS, records, settings)


def transactional_ids(peer: Peer, sizes: Sizes) -> Rounds:
    """A broker whose only work are InitProducerId requests, each with another transactional id."""
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder, peer.cluster(1, Path(folder)) as running:
        pid = running.brokers[0]
        before = resident_mib(pid)
        seconds = _initialize(running.bootstrap, sizes.transactional_ids)
        yield _of_memory(resident_mib(pid), before, seconds)


def _of_memory(after: float, before: float, seconds: float) -> Figures:
    return {
        "transactional_ids_memory_mib": after,
        "transactional_ids_added_mib": after - before,
        "transactional_ids_s": seconds,
    }


def _initialize(bootstrap: str, ids: int) -> float:
    """Initialize the transactional ids over one connection, and return the seconds."""
    host, _, port = bootstrap.rpartition(":")
    with closing(Wire((host, int(port)))) as wire:
        _find_coordinators(wire)
        begin = time.perf_counter()
        for first in range(0, ids, IN_FLIGHT):
            _initialize_all(wire, [f"id-{number}" for number in range(first, min(first + IN_FLIGHT, ids))])
        return time.perf_counter() - begin


def _find_coordinators(wire: Wire) -> None:
    """Have ``__transaction_state`` created. Its partitions are loaded one after the other."""
    body = messages.encode_request(
        ApiKey.FIND_COORDINATOR, FIND_VERSION, key_type=TRANSACTIONAL, coordinator_keys=["id"]
    )
    wire.send(ApiKey.FIND_COORDINATOR, FIND_VERSION, body)
    wire.receive()
    _initialize_all(wire, [f"first-{number}" for number in range(10 * IN_FLIGHT)])


def _initialize_all(wire: Wire, names: list[str]) -> None:
    """Initialize ids, and repeat what is refused: partitions may be loading, or producer ids being allocated."""
    deadline = time.monotonic() + LIMIT
    while names:
        requests = [framed(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, _init_body(name)) for name in names]
        wire.send_framed(b"".join(requests))
        errors = dict(zip(names, map(_init_error, wire.receive_many(len(names))), strict=True))
        if failed := {name: error.name for name, error in errors.items() if error not in REPEATED}:
            raise RuntimeError(f"InitProducerId failed: {failed}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"InitProducerId is refused: {errors}")
        names = [name for name, error in errors.items() if error]


def _init_body(name: str) -> bytes:
    return messages.encode_request(
        ApiKey.INIT_PRODUCER_ID,
        INIT_VERSION,
        transactional_id=name,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )


def _init_error(answer: bytes) -> ErrorCode:
    _, body = parse_response_header(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, memoryview(answer))
    return ErrorCode(messages.decode_response(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, body).error_code)
