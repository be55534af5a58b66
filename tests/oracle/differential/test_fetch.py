"""Fetch: offsets, limits, sessions, topic ids, leader epochs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import Codec
from tests.oracle.differential.batches import batch, records
from tests.oracle.differential.pair import Answers, Pair, versions
from tests.oracle.differential.sides import Name

VERSIONS: Final = list(versions(ApiKey.FETCH))
UNKNOWN_ID: Final = UUID(int=77)
MIB: Final = 1 << 20


def wanted(topic: str, *partitions: Mapping[str, Any], topic_id: Any = None) -> dict[str, Any]:
    """Return a topic of a request. The defaults of a partition are index 0, offset 0 and 1 MiB."""
    base: dict[str, Any] = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": MIB, "current_leader_epoch": -1}
    base |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    found = Name(f"id of {topic}") if topic_id is None else topic_id
    return {"topic": topic, "topic_id": found, "partitions": [{**base, **one} for one in partitions]}


def fetch(
    pair: Pair,
    version: int,
    *topics: Mapping[str, Any],
    session: tuple[Any, int] = (0, -1),
    forgotten: Iterable[Mapping[str, Any]] = (),
    ignore: Iterable[str] = (),
    **fields: Any,
) -> Answers:
    """Send a Fetch and return both responses, which must be the same."""
    asked = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 * MIB, "isolation_level": 0,
        "session_id": session[0], "session_epoch": session[1], "topics": topics, "forgotten_topics_data": forgotten,
    }  # fmt: skip
    return pair.same(ApiKey.FETCH, version, ignore=set(ignore), **(asked | fields))


@pytest.fixture
def filled(pair: Pair, topic: str) -> str:
    """A topic with five batches of two records, and an empty partition."""
    pair.create(topic, partitions=2)
    pair.produce(topic, *(batch(codec=codec) for codec in (Codec.NONE,) * 4), batch(2, codec=Codec.NONE))
    return topic


class TestOneFetch:
    def test_offsets(self, pair: Pair, filled: str) -> None:
        for version in VERSIONS:
            for offset in (0, 1, 2, 9, 10, 11, -1, 2**60):
                fetch(pair, version, wanted(filled, {"fetch_offset": offset}))
                fetch(pair, version, wanted(filled, {"fetch_offset": offset}), isolation_level=1)
            fetch(pair, version, wanted(filled, {}, {"partition": 1}, {"partition": 2}, {"partition": -1}))
            fetch(pair, version, wanted(filled, {"fetch_offset": 3}, {"partition": 1, "fetch_offset": 1}))
            fetch(pair, version)

    def test_unknown_topics(self, pair: Pair, filled: str) -> None:
        for version in VERSIONS:
            for name in ("nowhere", "a b"):
                fetch(pair, version, wanted(name, {}, topic_id=UNKNOWN_ID))
                fetch(pair, version, wanted(filled, {}), wanted(name, {}, {"partition": 3}, topic_id=UNKNOWN_ID))
            fetch(pair, version, wanted("", {}, topic_id=UUID(int=0)))

    def test_limits(self, pair: Pair, filled: str) -> None:
        for version in VERSIONS:
            size = len(batch())
            for limit in (0, 1, 60, size - 1, size, size + 1, 2 * size, 3 * size - 1):
                for offset in (0, 3):
                    part = {"fetch_offset": offset, "partition_max_bytes": limit}
                    fetch(pair, version, wanted(filled, part))
                    fetch(pair, version, wanted(filled, part, {"partition": 1}))
                    fetch(pair, version, wanted(filled, {"fetch_offset": offset}), max_bytes=limit)
                fetch(pair, version, wanted(filled, {}), min_bytes=limit, max_wait_ms=30)
                fetch(pair, version, wanted(filled, {"fetch_offset": 10}), min_bytes=limit, max_wait_ms=30)
            fetch(pair, version, wanted(filled, {}), max_wait_ms=-1, min_bytes=10_000)
            fetch(pair, version, wanted(filled, {"fetch_offset": 11}), max_wait_ms=5000, min_bytes=10_000)

    def test_leader_epochs(self, pair: Pair, filled: str) -> None:
        for version in VERSIONS:
            for epoch in (-1, 0, 1, 5, -2):
                fetch(pair, version, wanted(filled, {"current_leader_epoch": epoch}))
                for offset in (0, 4, 10, 12):
                    fetch(pair, version, wanted(filled, {"fetch_offset": offset, "last_fetched_epoch": epoch}))

    def test_a_partition_twice(self, pair: Pair, filled: str) -> None:
        other = {"partition": 1}
        for version in VERSIONS:
            for session in ((0, -1), (0, 0)):
                for first, last in ((0, 4), (4, 0), (99, 0), (0, 99)):
                    twice = {"fetch_offset": first}, {"fetch_offset": last}
                    fetch(pair, version, wanted(filled, *twice), session=session)
                    fetch(pair, version, wanted(filled, twice[0], other, twice[1]), session=session)
                    fetch(pair, version, wanted(filled, twice[0]), wanted(filled, other, twice[1]), session=session)
            fetch(pair, version, wanted("nowhere", {}, {"fetch_offset": 1}, topic_id=UNKNOWN_ID))

    def test_replicas(self, pair: Pair, filled: str) -> None:
        for version in VERSIONS:
            for replica in (-2, 7):
                state = {"replica_id": replica, "replica_epoch": -1}
                fetch(pair, version, wanted(filled, {}), replica_id=replica, replica_state=state)
            fetch(pair, version, wanted(filled, {}), isolation_level=1, rack_id="here")
            fetch(pair, version, wanted("__cluster_metadata", {}, topic_id=UUID(int=1)))


@pytest.mark.parametrize("version", [7, 12, 13, 18])
class TestSessions:
    def begin(self, pair: Pair, version: int, *topics: Mapping[str, Any]) -> Name:
        answers = fetch(pair, version, *topics, session=(0, 0))
        return answers.learn("session", lambda answer: answer["session_id"])

    def test_a_response_in_a_session_has_only_partitions_with_news(self, pair: Pair, filled: str, version: int) -> None:
        session = self.begin(pair, version, wanted(filled, {"fetch_offset": 10}, {"partition": 1}))
        fetch(pair, version, session=(session, 1))
        pair.produce(filled, batch(1))
        fetch(pair, version, session=(session, 2))
        fetch(pair, version, session=(session, 3))
        fetch(pair, version, wanted(filled, {"fetch_offset": 11}), session=(session, 4))
        pair.produce(filled, batch(1), partition=1)
        fetch(pair, version, session=(session, 5))
        fetch(pair, version, wanted(filled, {"fetch_offset": 99}), session=(session, 6))
        fetch(pair, version, session=(session, 7))
        fetch(pair, version, wanted(filled, {"fetch_offset": 11}), session=(session, 8))
        fetch(pair, version, session=(session, 9))
        fetch(pair, version, session=(session, 10))

    def test_forgotten_and_added_partitions(self, pair: Pair, filled: str, version: int) -> None:
        session = self.begin(pair, version, wanted(filled, {}))
        forget = {"topic": filled, "topic_id": Name(f"id of {filled}"), "partitions": [0]}
        fetch(pair, version, wanted(filled, {"partition": 1}), session=(session, 1), forgotten=[forget])
        fetch(pair, version, wanted(filled, {"partition": 5}), session=(session, 2))
        fetch(pair, version, session=(session, 3))
        fetch(pair, version, session=(session, 4), forgotten=[forget | {"partitions": [1, 5, 9]}])
        fetch(pair, version, session=(session, 5))
        fetch(pair, version, session=(session, 1))

    def test_epochs(self, pair: Pair, filled: str, version: int) -> None:
        session = self.begin(pair, version, wanted(filled, {}))
        fetch(pair, version, session=(session, 2))
        fetch(pair, version, session=(session, 1))
        fetch(pair, version, session=(session, 1))
        fetch(pair, version, session=(session, 2))
        fetch(pair, version, session=(session, -5))
        fetch(pair, version, wanted(filled, {}), session=(session, -1))
        fetch(pair, version, session=(session, 3))
        session = self.begin(pair, version, wanted(filled, {}))
        renewed = fetch(pair, version, wanted(filled, {}), session=(session, 0))
        fetch(pair, version, session=(session, 1))
        fetch(pair, version, session=(renewed.learn("renewed", lambda answer: answer["session_id"]), 1))
        fetch(pair, version, session=(12345, 1))
        fetch(pair, version, session=(12345, 0))
        fetch(pair, version, session=(12345, -1))
        fetch(pair, version, session=(0, 1))
        fetch(pair, version, session=(0, 0))

    def test_names_and_ids_do_not_mix(self, pair: Pair, filled: str, version: int) -> None:
        session = self.begin(pair, version, wanted(filled, {}))
        other = 13 if version < 13 else 12
        fetch(pair, other, session=(session, 1))
        fetch(pair, version, session=(session, 1))

    def test_errors_of_a_partition_are_in_each_response(self, pair: Pair, filled: str, version: int) -> None:
        unknown = wanted("nowhere", {}, topic_id=UNKNOWN_ID)
        session = self.begin(pair, version, wanted(filled, {"partition": 1}, {"partition": 8}), unknown)
        fetch(pair, version, session=(session, 1))
        fetch(pair, version, session=(session, 2))

    def test_a_topic_of_a_session_is_deleted_and_created_again(self, pair: Pair, filled: str, version: int) -> None:
        session = self.begin(pair, version, wanted(filled, {"partition": 1}))
        pair.delete(filled)
        fetch(pair, version, session=(session, 1))
        pair.create(filled, partitions=2)
        fetch(pair, version, session=(session, 2))
        fetch(pair, version, wanted(filled, {"partition": 1}), session=(session, 3))
        fetch(pair, version, session=(session, 4))

    def test_the_served_partition_is_read_last_next_time(self, pair: Pair, topic: str, version: int) -> None:
        pair.create(topic, partitions=3)
        for index in range(3):
            pair.produce(topic, batch(), batch(), partition=index)
        size = len(batch())
        parts = [{"partition": index, "partition_max_bytes": size} for index in range(3)]
        session = self.begin(pair, version, wanted(topic, *parts))
        for epoch in range(1, 6):
            fetch(pair, version, session=(session, epoch), max_bytes=size)


@pytest.mark.parametrize("version", [4, 11, 13, 18])
def test_a_waiting_fetch_is_answered_by_a_produce(pair: Pair, filled: str, version: int) -> None:
    other = pair.another()
    for minimum in (1, 100):
        topics = [wanted(filled, {"fetch_offset": 10 if minimum == 1 else 11})]
        fields: dict[str, Any] = {
            "replica_id": -1,
            "max_wait_ms": 10_000,
            "min_bytes": minimum,
            "max_bytes": MIB,
            "topics": topics,
        }
        pair.send(ApiKey.FETCH, version, session_id=0, session_epoch=-1, **fields)
        begun = time.monotonic()
        other.produce(filled, batch(1))
        if minimum == 100:
            other.produce(filled, batch(1))
        pair.receive(ApiKey.FETCH, version).check("a waiting fetch")
        assert time.monotonic() - begun < 5
    other.close()


def test_nonsense_that_kafka_fails_on(pair: Pair, filled: str) -> None:
    """Milena takes an unknown isolation level as read_uncommitted, and a negative limit as 0."""
    for part, fields in (
        ({}, {"isolation_level": 5}),
        ({"partition_max_bytes": -1}, {}),
        ({}, {"max_bytes": -1}),
    ):
        asked: dict[str, Any] = {"replica_id": -1, "min_bytes": 1, "max_bytes": MIB, "session_epoch": -1, **fields}
        answers = pair.ask(ApiKey.FETCH, 11, topics=[wanted(filled, part)], **asked)
        codes = [answer["responses"][0]["partitions"][0]["error_code"] for answer in answers.both]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


def test_large_batches(pair: Pair, topic: str) -> None:
    pair.create(topic, partitions=2)
    large = batch(records(1, value=b"x" * 300_000))
    for index in range(2):
        pair.produce(topic, large, large, partition=index)
    for version in (4, 12, 18):
        for limit in (1000, 300_000, 350_000, 650_000):
            parts = [{"partition": index, "partition_max_bytes": limit} for index in range(2)]
            fetch(pair, version, wanted(topic, *parts))
            fetch(pair, version, wanted(topic, {}, {"partition": 1}), max_bytes=limit)
