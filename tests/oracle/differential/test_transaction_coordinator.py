"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and DescribeTransactions of any producers.

A response of CONCURRENT_TRANSACTIONS is asked again: how long the markers of a transaction take differs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.oracle.differential.pair import Answers, Pair, eventually, versions
from tests.oracle.differential.sides import Name

PARTITIONS: Final = 3
TIMEOUT_MS: Final = 60_000
UNKNOWN: Final = 987_654
"""A producer id that neither side has given."""
_RETRIED: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,  # Kafka loads a partition a moment after it was created
)


class Ids:
    """A transactional id on both sides, and the producer ids and epochs that it has had."""

    def __init__(self, pair: Pair, topic: str, suffix: str = "") -> None:
        self.pair = pair
        self.topic = topic
        self.id = f"tx-{topic}{suffix}"
        self.producers: list[tuple[Name | int, int]] = [(UNKNOWN, 0)]
        """All producers with their epochs, in the order in which both sides have returned them."""
        eventually(self._coordinator)

    def _coordinator(self) -> None:
        for answer in self.pair.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[self.id]).both:
            assert answer["coordinators"][0]["error_code"] == 0, answer

    def _settled(self, key: ApiKey, version: int, errors: Any, **fields: Any) -> Answers:
        return self.pair.settled(
            key, version, until=lambda answer: not any(code in _RETRIED for code in errors(answer)), **fields
        )

    def _learn(self, answers: Answers) -> None:
        """Compare the producer ids of a response, by when they were given, and remember a new one."""
        kafka, milena = (answer.get("producer_id", -1) for answer in answers.both)
        assert (kafka < 0) == (milena < 0), answers.both
        if kafka < 0:
            return
        known = [
            name
            for name, _ in self.producers
            if isinstance(name, Name) and [side.names[name.of] for side in answers.sides] == [kafka, milena]
        ]
        name = known[0] if known else answers.learn(f"{self.id} {len(self.producers)}", lambda one: one["producer_id"])
        epoch = answers.kafka["producer_epoch"]
        if (name, epoch) not in self.producers:
            self.producers.append((name, epoch))

    def _same(self, answers: Answers, asked: str) -> Answers:
        return answers.check(asked, ignore=("producer_id",))

    def init(
        self, version: int, expected: tuple[Name | int, int] | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> Answers:
        fields: dict[str, Any] = {"transactional_id": self.id, "transaction_timeout": timeout_ms}
        if version >= 3 and expected is not None:
            fields |= {"producer_id": expected[0], "producer_epoch": expected[1]}
        answers = self._settled(ApiKey.INIT_PRODUCER_ID, version, lambda one: [one["error_code"]], **fields)
        self._learn(answers)
        return self._same(answers, f"InitProducerId v{version} {fields}")

    def add(self, version: int, producer: tuple[Name | int, int], partitions: Sequence[int], verify: bool) -> Answers:
        topics = [{"name": self.topic, "partitions": list(partitions)}]
        if version < 4:
            fields: dict[str, Any] = {
                "v3_and_below_transactional_id": self.id,
                "v3_and_below_producer_id": producer[0],
                "v3_and_below_producer_epoch": producer[1],
                "v3_and_below_topics": topics,
            }
        else:
            one = {"transactional_id": self.id, "producer_id": producer[0], "producer_epoch": producer[1]}
            fields = {"transactions": [{**one, "verify_only": verify, "topics": topics}]}
        answers = self._settled(ApiKey.ADD_PARTITIONS_TO_TXN, version, _partition_errors, **fields)
        for answer in answers.both:
            for topic in _topics(answer):
                topic["results_by_partition"].sort(key=lambda one: one["partition_index"])
        return self._same(answers, f"AddPartitionsToTxn v{version} {fields}")

    def add_offsets(self, version: int, producer: tuple[Name | int, int]) -> Answers:
        fields = {"transactional_id": self.id, "producer_id": producer[0], "producer_epoch": producer[1]}
        answers = self._settled(
            ApiKey.ADD_OFFSETS_TO_TXN, version, lambda one: [one["error_code"]], **fields, group_id=self.id
        )
        return self._same(answers, f"AddOffsetsToTxn v{version} {fields}")

    def end(self, version: int, producer: tuple[Name | int, int], commit: bool) -> Answers:
        fields = {
            "transactional_id": self.id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": commit,
        }
        answers = self._settled(ApiKey.END_TXN, version, lambda one: [one["error_code"]], **fields)
        self._learn(answers)
        return self._same(answers, f"EndTxn v{version} {fields}")

    def describe(self) -> None:
        """Compare the states, once the markers of both sides are written."""

        def states(answer: Any) -> list[str]:
            return [one["transaction_state"] for one in answer["transaction_states"]]

        answers = self.pair.settled(
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            until=lambda answer: not any(state.startswith("Prepare") for state in states(answer)),
            transactional_ids=[self.id],
        )
        for answer in answers.both:
            for one in answer["transaction_states"]:
                one["topics"].sort(key=lambda topic: topic["topic"])
                for topic in one["topics"]:
                    topic["partitions"].sort()
        self._same(answers, f"DescribeTransactions {self.id}")


def _topics(answer: Any) -> list[Any]:
    found: list[Any] = list(answer.get("results_by_topic_v3_and_below") or [])
    for transaction in answer.get("results_by_transaction") or []:
        found += transaction["topic_results"]
    return found


def _partition_errors(answer: Any) -> list[int]:
    return [one["partition_error_code"] for topic in _topics(answer) for one in topic["results_by_partition"]]


def test_a_transaction_in_every_version(pair: Pair, topic: str) -> None:
    pair.create(topic, PARTITIONS)
    ids = Ids(pair, topic)
    for version in versions(ApiKey.INIT_PRODUCER_ID, until=5):
        ids.init(version)
    for version in versions(ApiKey.END_TXN):
        for commit in (True, False):
            added = 3 if version < 5 else 5
            ids.add(added, ids.producers[-1], [0, 1], verify=False)
            ids.add_offsets(min(version, 4), ids.producers[-1])
            ids.describe()
            producer = ids.producers[-1]
            for outcome in (commit, commit, not commit):
                ids.end(version, producer, outcome)
            ids.describe()


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID, until=5))
def test_initializations_that_are_refused(pair: Pair, version: int) -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"transactional_id": "", "transaction_timeout": TIMEOUT_MS},
        {"transactional_id": "x", "transaction_timeout": 0},
        {"transactional_id": "x", "transaction_timeout": -1},
        {"transactional_id": "x", "transaction_timeout": 900_001},
    )
    for fields in refused:
        pair.same(ApiKey.INIT_PRODUCER_ID, version, **fields)
        if version >= 3:
            pair.same(ApiKey.INIT_PRODUCER_ID, version, **fields, producer_id=5)
            pair.same(ApiKey.INIT_PRODUCER_ID, version, **fields, producer_epoch=5)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_unknown_partitions(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, PARTITIONS)
    ids = Ids(pair, topic)
    ids.init(5)
    for verify in (False, True):
        ids.add(version, ids.producers[-1], [0, PARTITIONS], verify)
        ids.add(version, ids.producers[-1], [], verify)
        ids.describe()


@pytest.mark.parametrize("seed", range(8))
def test_random_requests(pair: Pair, topic: str, seed: int) -> None:
    pair.create(topic, PARTITIONS)
    ids = Ids(pair, topic)
    rnd = random.Random(seed)
    for _ in range(80):
        # Mostly the present producer, otherwise one that was fenced, or an epoch that was never given.
        producer = ids.producers[-1] if rnd.random() < 0.7 else rnd.choice(ids.producers)
        if rnd.random() < 0.1:
            producer = producer[0], max(producer[1] + rnd.choice((-1, 1, 2)), 0)
        match rnd.randrange(10):
            case 0:
                ids.init(rnd.randrange(6))
            case 1:
                ids.init(rnd.randrange(3, 6), producer, rnd.choice((TIMEOUT_MS, 1_000_000)))
            case 2 | 3 | 4 | 5:
                partitions = rnd.sample(range(PARTITIONS), rnd.randint(1, PARTITIONS))
                ids.add(rnd.choice((0, 1, 2, 3, 3, 4, 5, 5)), producer, partitions, rnd.random() < 0.3)
            case 6:
                ids.add_offsets(rnd.randrange(5), producer)
            case _:
                ids.end(rnd.choice((0, 1, 2, 3, 4, 4, 5, 5, 5, 5)), producer, rnd.random() < 0.6)
        if rnd.random() < 0.3:
            ids.describe()
    ids.describe()
