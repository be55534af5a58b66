"""WriteTxnMarkers with any producers, partitions and epochs, as an administrator may send it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.types import OFFSETS_TOPIC
from tests.oracle.differential.batches import batch
from tests.oracle.differential.pair import Answers, Pair

PARTITIONS: Final = 3
FIRST: Final = 900_000
"""The first of the producer ids, which neither side has given."""


def marker(
    *topics: tuple[str, Sequence[int]],
    producer: int = FIRST,
    epoch: int = 0,
    commit: bool = True,
    coordinator: int = 0,
    version: int = 0,
) -> dict[str, Any]:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": list(indexes)} for name, indexes in topics],
        "coordinator_epoch": coordinator,
        "transaction_version": version,
    }


def write(pair: Pair, version: int, *markers: dict[str, Any]) -> Answers:
    """Send the markers; the responses must have the same results. Kafka's are in the order of a hash map."""
    answers = pair.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=list(markers))
    for answer in answers.both:
        for found in answer["markers"]:
            for topic in found["topics"]:
                topic["partitions"].sort(key=lambda one: one["partition_index"])
            found["topics"].sort(key=lambda one: one["name"])
        answer["markers"].sort(key=lambda one: one["producer_id"])
    return answers.check(f"WriteTxnMarkers v{version} {markers}")


def compare(pair: Pair, topic: str) -> None:
    """Compare what the markers did to the producers and to the log."""
    asked = [{"name": topic, "partition_indexes": list(range(PARTITIONS))}]
    answers = pair.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked)
    for answer in answers.both:
        for partition in answer["topics"][0]["partitions"]:
            partition["active_producers"].sort(key=lambda one: one["producer_id"])
    answers.check("DescribeProducers", ignore=("last_timestamp",))
    offsets = [{"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)]
    for isolation in (0, 1):
        topics = [{"name": topic, "partitions": offsets}]
        pair.same(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation, topics=topics)


@pytest.mark.parametrize("version", [1, 2])
def test_a_request_names_anything(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, PARTITIONS)
    write(pair, version)
    write(pair, version, marker())
    write(pair, version, marker((topic, [])))
    write(pair, version, marker((topic, [0, 2]), ("nowhere", [0, 1])))
    write(pair, version, marker((topic, [0, 7, -1])))
    write(pair, version, marker(("nowhere", [0])), marker(("a b", [0]), producer=FIRST + 1))
    write(pair, version, marker((topic, [0])), marker((topic, [1])), marker((topic, [2]), producer=FIRST + 1))
    write(pair, version, marker((topic, [0]), epoch=4), marker((topic, [0]), epoch=3))
    write(pair, version, marker((topic, [1]), coordinator=4), marker((topic, [1]), coordinator=3))
    write(pair, version, marker((topic, [0, 1]), version=2, epoch=4), marker((topic, [0]), version=7, epoch=4))
    compare(pair, topic)


def test_a_marker_without_a_producer(pair: Pair, topic: str) -> None:
    pair.create(topic, PARTITIONS)
    write(pair, 2, marker((topic, [0]), producer=-1))
    write(pair, 2, marker((topic, [0]), epoch=-1))
    compare(pair, topic)


def test_markers_of_offsets(pair: Pair) -> None:
    write(pair, 2, marker((OFFSETS_TOPIC, [0, 1, 2, 3])))
    write(pair, 2, marker((OFFSETS_TOPIC, [0]), epoch=3), marker((OFFSETS_TOPIC, [0]), epoch=2))


def test_a_marker_of_an_idempotent_producer(pair: Pair, topic: str) -> None:
    pair.create(topic, PARTITIONS)
    pair.produce(topic, batch(producer_id=FIRST, producer_epoch=2, base_sequence=0))
    write(pair, 2, marker((topic, [0]), epoch=1))
    write(pair, 2, marker((topic, [0]), epoch=2))
    compare(pair, topic)
    pair.produce(topic, batch(producer_id=FIRST, producer_epoch=2, base_sequence=2))
    write(pair, 2, marker((topic, [0]), epoch=5, version=2))
    pair.produce(topic, batch(producer_id=FIRST, producer_epoch=5, base_sequence=0))
    compare(pair, topic)


@pytest.mark.parametrize("seed", range(5))
def test_random_markers(pair: Pair, topic: str, seed: int) -> None:
    pair.create(topic, PARTITIONS)
    rnd = random.Random(seed)
    for _ in range(40):
        markers = [
            marker(
                # Kafka does not answer if the last marker names only partitions that it does not have.
                (topic, rnd.sample(range(PARTITIONS), rnd.randint(1, PARTITIONS)) + [PARTITIONS] * rnd.randrange(2)),
                producer=FIRST + rnd.randrange(3),
                epoch=rnd.choice((0, 1, 2, 3, 32767)) if rnd.random() < 0.2 else rnd.randrange(4),
                commit=rnd.random() < 0.5,
                coordinator=rnd.randrange(3),
                version=rnd.randrange(3),
            )
            for _ in range(rnd.randint(1, 3))
        ]
        write(pair, rnd.choice((1, 2)), *markers)
    compare(pair, topic)
