"""Sets of partitions of transactions."""

from __future__ import annotations

import random
from typing import Final

from milena.broker.transactions.partitions import NO_PARTITIONS, TransactionPartitions
from milena.protocol.types import TopicPartition

ALL: Final = [(topic, index) for topic in ("t", "u", "v") for index in range(4)]


def of(*partitions: TopicPartition) -> TransactionPartitions:
    return NO_PARTITIONS.adding(partitions)


def test_a_set_is_like_a_set_of_pairs() -> None:
    chance = random.Random(1)
    for _ in range(200):
        one, other = (chance.sample(ALL, chance.randrange(len(ALL))) for _ in range(2))
        first, second = of(*one), of(*other)
        assert (set(first), len(first), bool(first)) == (set(one), len(one), bool(one))
        assert set(first.adding(other)) == {*one, *other}
        assert set(first) == set(one), "the set that others have does not change"
        assert first.includes(second) is (set(one) >= set(other))
        assert (first == second) is (set(one) == set(other))
        assert [pair for pair in ALL if pair in first] == [pair for pair in ALL if pair in one]
        assert {topic: set(indices) for topic, indices in first.by_topic.items()} == {
            topic: {index for of_topic, index in one if of_topic == topic} for topic, _ in one
        }


def test_partitions_are_ordered_by_topic_and_then_by_time() -> None:
    assert list(of(("u", 3), ("t", 0)).adding([("u", 1), ("u", 3)])) == [("u", 3), ("u", 1), ("t", 0)]


def test_topics_that_do_not_change_are_shared() -> None:
    first = of(*ALL)
    second = first.adding([("t", 9)])
    assert second.by_topic["u"] is first.by_topic["u"]
    assert second.by_topic["t"] is not first.by_topic["t"]


def test_equal_to_a_mapping_of_the_same_pairs() -> None:
    assert of(("t", 1)) == {("t", 1): None}
    assert of(("t", 1)) != {("t", 2): None}
    assert NO_PARTITIONS == {}
