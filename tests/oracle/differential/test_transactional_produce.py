"""Batches of transactions and their markers at a partition: epochs, sequences, verifications (KIP-98, KIP-890)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.oracle.differential.batches import batch
from tests.oracle.differential.pair import Answers, Pair, eventually
from tests.oracle.differential.sides import Made, Name, Side
from tests.oracle.differential.transactional_ids import await_coordinator

ADDING: Final = 12
"""The version of Produce from which on the broker adds partitions to transactions."""
VERSIONS: Final = (10, 11, 12, 13)
COORDINATOR_EPOCH: Final = 0


@dataclass(frozen=True)
class Batch(Made):
    """A batch of a producer whose id differs between the sides. ``producer``: an id that no side has given."""

    of: Name | int
    epoch: int
    sequence: int
    count: int = 1
    transactional: bool = True

    def made(self, side: Side) -> bytes:
        return batch(
            self.count,
            # Of today, as markers have: otherwise a marker rolls the segment, in Kafka even one that is refused.
            base_timestamp=int(time.time() * 1000),
            producer_id=side.resolve(self.of),
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=self.transactional,
        )


class Transactions:
    """One transactional producer, whose every request goes to both sides."""

    def __init__(self, pair: Pair, topic: str, partitions: int = 1) -> None:
        self.pair = pair
        self.topic = topic
        self.id = f"tx-{topic}"
        self.topic_id = pair.create(topic, partitions)
        self.partitions = range(partitions)
        self.epoch = -1
        self.producer = Name(f"producer of {topic}")
        await_coordinator(pair, self.id)
        self.init()

    def init(self) -> None:
        """InitProducerId; the previous transaction is aborted."""

        answers = self.pair.settled(
            ApiKey.INIT_PRODUCER_ID,
            5,
            until=lambda answer: answer["error_code"] == 0,
            transactional_id=self.id,
            transaction_timeout=60_000,
        )
        self.pair_of(answers)

    def pair_of(self, answers: Answers) -> None:
        answers.learn(self.producer.of, lambda answer: answer["producer_id"])
        assert answers.kafka["producer_epoch"] == answers.milena["producer_epoch"]
        self.epoch = answers.kafka["producer_epoch"]

    def add(self, *partitions: int, epoch: int | None = None) -> None:
        """AddPartitionsToTxn."""
        self.pair.same(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[{"name": self.topic, "partitions": list(partitions)}],
        )

    def produce(
        self,
        version: int,
        *batches: tuple[int, int],
        epoch: int | None = None,
        producer: Name | int | None = None,
        transactional: bool = True,
        transactional_id: str | None = "",
        count: int = 1,
    ) -> Answers:
        """Produce to partitions, each with a first sequence."""
        data = [
            {
                "index": partition,
                "records": Batch(
                    self.producer if producer is None else producer,
                    self.epoch if epoch is None else epoch,
                    sequence,
                    count,
                    transactional,
                ),
            }
            for partition, sequence in batches
        ]
        return self.pair.same(
            ApiKey.PRODUCE,
            version,
            transactional_id=self.id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": self.topic, "topic_id": self.topic_id, "partition_data": data}],
        )

    def end(self, version: int, *, commit: bool = True) -> None:
        """EndTxn, and wait until all markers are written."""
        answers = self.pair.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=self.id,
            producer_id=self.producer,
            producer_epoch=self.epoch,
            committed=commit,
        )
        for answer in answers.both:
            assert answer["error_code"] == 0, answers.both
        if version >= 5:
            self.pair_of(answers)
        self.completed()

    def completed(self) -> None:
        """Wait until all markers are written, and both coordinators have completed the transaction."""
        eventually(self.none_open)
        verified = {
            "transactional_id": self.id,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
            "verify_only": True,
            "topics": [{"name": self.topic, "partitions": [0]}],
        }
        self.pair.settled(ApiKey.ADD_PARTITIONS_TO_TXN, 4, until=_is_not_concurrent, transactions=[verified])

    def none_open(self) -> None:
        for answer in self.states().both:
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    assert all(one["current_txn_start_offset"] < 0 for one in partition["active_producers"])

    def states(self) -> Answers:
        topics = [{"name": self.topic, "partition_indexes": list(self.partitions)}]
        return self.pair.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)

    def mark(self, epoch: int, *, version: int, commit: bool = True, coordinator: int = COORDINATOR_EPOCH) -> None:
        """WriteTxnMarkers as a coordinator sends it. ``version``: that of the transaction."""
        marker = {
            "producer_id": self.producer,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [{"name": self.topic, "partition_indexes": list(self.partitions)}],
            "coordinator_epoch": coordinator,
            "transaction_version": version,
        }
        self.pair.same(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker])

    def compare(self) -> None:
        """Compare what readers see, and the states of the producers. A high watermark may follow a marker later."""
        eventually(self._compare)

    def _compare(self) -> None:
        self.states().check("states of producers")
        for isolation in (0, 1):
            asked = [{"partition_index": index, "timestamp": -1} for index in self.partitions]
            self.pair.same(
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=isolation,
                topics=[{"name": self.topic, "partitions": asked}],
            )
            wanted = [
                {
                    "partition": index,
                    "current_leader_epoch": -1,
                    "fetch_offset": 0,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 1 << 20,
                }
                for index in self.partitions
            ]
            self.pair.same(
                ApiKey.FETCH,
                12,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                isolation_level=isolation,
                session_id=0,
                session_epoch=-1,
                topics=[{"topic": self.topic, "partitions": wanted}],
                forgotten_topics_data=[],
                rack_id="",
            )


def _is_not_concurrent(answer: Any) -> bool:
    (transaction,) = answer["results_by_transaction"]
    (topic,) = transaction["topic_results"]
    (partition,) = topic["results_by_partition"]
    return bool(partition["partition_error_code"] != ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction(pair: Pair, topic: str, version: int, commit: bool) -> None:
    producer = Transactions(pair, topic, 2)
    if version < ADDING:
        producer.add(0, 1)
    producer.produce(version, (0, 0), (1, 0))
    producer.produce(version, (0, 1))
    producer.compare()
    producer.end(5 if version >= ADDING else 4, commit=commit)
    producer.compare()
    if version < ADDING:
        producer.add(0)
    producer.produce(version, (0, 0 if version >= ADDING else 2))
    producer.compare()


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_of_no_transaction(pair: Pair, topic: str, version: int) -> None:
    producer = Transactions(pair, topic)
    producer.produce(version, (0, 0), transactional_id=None)
    producer.produce(version, (0, 0), transactional=False)
    producer.produce(version, (0, 0), producer=1 << 40)
    producer.produce(version, (0, 0), epoch=9)
    producer.produce(version, (0, 0), transactional_id="unknown")
    producer.compare()


@pytest.mark.parametrize("version", (10, 11))
def test_a_partition_that_was_not_added(pair: Pair, topic: str, version: int) -> None:
    producer = Transactions(pair, topic, 2)
    producer.produce(version, (0, 0))
    producer.add(1)
    producer.produce(version, (0, 0), (1, 0))
    producer.end(4)
    producer.produce(version, (1, 1))
    producer.compare()


@pytest.mark.parametrize("version", VERSIONS)
def test_sequences(pair: Pair, topic: str, version: int) -> None:
    producer = Transactions(pair, topic)
    producer.add(0)
    producer.produce(version, (0, 5))
    producer.produce(version, (0, 0))
    for sequence in (0, 2, 1, 5, 2):
        producer.produce(version, (0, sequence))
    producer.compare()
    producer.end(5)
    for sequence in (3, 1, 0):
        producer.produce(version, (0, sequence))
    producer.compare()


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_of_a_fenced_producer(pair: Pair, topic: str, version: int) -> None:
    producer = Transactions(pair, topic)
    producer.add(0)
    producer.produce(version, (0, 0))
    old = producer.epoch
    producer.init()
    producer.completed()
    producer.produce(version, (0, 1), epoch=old)
    producer.add(0)
    producer.produce(version, (0, 0))
    producer.produce(version, (0, 1), epoch=old)
    producer.compare()


def test_a_batch_without_a_transaction_in_an_open_one(pair: Pair, topic: str) -> None:
    producer = Transactions(pair, topic)
    producer.produce(12, (0, 0))
    producer.produce(12, (0, 1), transactional=False)
    producer.produce(12, (0, 1), transactional=False, transactional_id=None)
    producer.compare()


@pytest.mark.parametrize("version", (0, 1, 2))
def test_markers(pair: Pair, topic: str, version: int) -> None:
    """Markers with older, the same and newer epochs of producer and coordinator, with and without a transaction."""
    producer = Transactions(pair, topic)
    epoch = producer.epoch
    producer.mark(epoch, version=version)
    producer.produce(12, (0, 0))
    producer.compare()
    for wanted in (epoch - 1, epoch, epoch, epoch + 1, epoch + 1, epoch):
        producer.mark(wanted, version=version)
        producer.compare()
    producer.mark(epoch + 3, version=version, coordinator=7)
    producer.mark(epoch + 4, version=version, coordinator=6)
    producer.mark(epoch + 4, version=version, coordinator=7, commit=False)
    producer.compare()


def test_two_producers_in_a_request(pair: Pair, topic: str) -> None:
    producer = Transactions(pair, topic, 2)
    producers: list[Name | int] = [producer.producer, 1 << 41]
    data = [{"index": index, "records": Batch(one, producer.epoch, 0)} for index, one in enumerate(producers)]
    for transactional_id in (producer.id, None):
        pair.same(
            ApiKey.PRODUCE,
            12,
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": topic, "partition_data": data}],
        )
    producer.compare()


def finalize(pair: Pair, level: int) -> None:
    """Set transaction.version on both sides, and wait until their brokers have applied it. (Below 1, Kafka refuses what
    clients of version 2 ask: the records of transactions have no fields for it.)"""
    for upgrade_type in (1, 2):  # an upgrade; else a safe downgrade
        update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": upgrade_type}
        pair.ask(ApiKey.UPDATE_FEATURES, 1, feature_updates=[update], timeout_ms=10_000, validate_only=False)

    def is_applied(answer: Any) -> bool:
        found = {one["name"]: one["max_version_level"] for one in answer["finalized_features"]}
        return bool(found.get("transaction.version", 0) == level)

    pair.settled(ApiKey.API_VERSIONS, 3, until=is_applied, client_software_name="differ", client_software_version="1")


@pytest.fixture
def restored(pair: Pair) -> Iterator[None]:
    """Later tests have transaction version 2 again."""
    yield
    finalize(pair, 2)


class Walk:
    """A random sequence of requests of one transactional producer."""

    def __init__(self, producer: Transactions, seed: int, *, levels: Sequence[int] = ()) -> None:
        """``levels``: transaction versions that the cluster changes between."""
        self.levels = levels
        self.producer = producer
        self.random = random.Random(seed)
        self.sequences = dict.fromkeys(producer.partitions, 0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.producer.compare()

    def step(self) -> None:
        draw = self.random
        producer = self.producer
        kinds: list[str] = ["produce"] * 6 + ["add", "end", "init", "mark", "compare"]
        if self.levels:
            kinds.append("level")
        match draw.choice(kinds):
            case "level":
                finalize(producer.pair, draw.choice(self.levels))
            case "produce":
                self.produce()
            case "add":
                producer.add(*self._some(), epoch=self._epoch())
            case "end":
                self.end()
            case "init":
                producer.init()
                producer.completed()
                self.sequences = dict.fromkeys(producer.partitions, 0)
            case "mark":
                producer.mark(self._epoch(), version=draw.choice((0, 1, 2)), commit=draw.random() < 0.5)
            case _:
                producer.compare()

    def end(self) -> None:
        producer, draw = self.producer, self.random
        before = producer.epoch
        answers = producer.pair.ask(
            ApiKey.END_TXN,
            draw.choice((4, 5)),
            transactional_id=producer.id,
            producer_id=producer.producer,
            producer_epoch=before,
            committed=draw.random() < 0.5,
        )
        answers.check("EndTxn", ignore=("producer_id",))
        if answers.kafka["error_code"] == 0:
            if answers.kafka.get("producer_id", -1) >= 0:
                producer.pair_of(answers)
            producer.completed()
        if producer.epoch != before:
            self.sequences = dict.fromkeys(producer.partitions, 0)

    def produce(self) -> None:
        draw = self.random
        partitions = self._some()
        batches = [(index, max(self.sequences[index] + draw.choice((0, 0, 0, 0, 1, -1)), 0)) for index in partitions]
        answers = self.producer.produce(draw.choice(VERSIONS), *batches, epoch=self._epoch())
        results: Sequence[Any] = answers.kafka["responses"][0]["partition_responses"]
        sent = dict(batches)
        for result in results:
            if result["error_code"] == ErrorCode.NONE:
                self.sequences[result["index"]] = max(self.sequences[result["index"]], sent[result["index"]] + 1)

    def _some(self) -> list[int]:
        known = list(self.producer.partitions)
        return sorted(self.random.sample(known, self.random.randint(1, len(known))))

    def _epoch(self) -> int:
        return max(self.producer.epoch + self.random.choice((0, 0, 0, 0, 0, -1, 1)), 0)


def seeds() -> Iterable[int]:
    return range(12)


@pytest.mark.parametrize("seed", seeds())
def test_random_transactions(pair: Pair, topic: str, seed: int) -> None:
    Walk(Transactions(pair, topic, 3), seed).run(40)


@pytest.mark.parametrize("seed", range(6))
def test_random_transactions_while_the_transaction_version_changes(
    pair: Pair, topic: str, restored: None, seed: int
) -> None:
    Walk(Transactions(pair, topic, 3), 100 + seed, levels=(1, 2)).run(40)
