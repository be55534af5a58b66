"""A transactional id on both sides, and the requests of its producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.oracle.differential.pair import Answers, Pair, eventually
from tests.oracle.differential.sides import Name

TIMEOUT_MS: Final = 60_000
UNKNOWN: Final = 987_654
"""A producer id that neither side has given."""
_RETRIED: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,  # Kafka loads a partition a moment after it was created
)


def await_coordinator(pair: Pair, transactional_id: str) -> None:
    """Wait until both sides have a coordinator of a transactional id: the first request creates the topic."""

    def look() -> None:
        for answer in pair.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[transactional_id]).both:
            assert answer["coordinators"][0]["error_code"] == 0, answer

    eventually(look)


class TransactionalId:
    """A transactional id on both sides, and the producer ids and epochs that it has had."""

    def __init__(self, pair: Pair, topic: str, suffix: str = "") -> None:
        self.pair = pair
        self.topic = topic
        self.id = f"tx-{topic}{suffix}"
        self.producers: list[tuple[Name | int, int]] = [(UNKNOWN, 0)]
        """All producers with their epochs, in the order in which both sides have returned them."""
        await_coordinator(pair, self.id)

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
