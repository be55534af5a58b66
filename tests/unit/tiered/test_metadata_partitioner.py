"""Where metadata records go: the numbers of Kafka 4.3.1 (docs/kafka-semantics.md: Test vectors)."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.tiered.metadata.metadata_partitioner import metadata_partition
from milena.tiered.segments.segment_metadata import TopicIdPartition

T = UUID("11223344-5566-7788-99aa-bbccddeeff00")
NUMBERS = (0, 1, 2, 7, 100)


@pytest.mark.parametrize(("partitions", "expected"), [(50, [15, 10, 8, 31, 30]), (5, [0, 0, 3, 1, 0])])
def test_the_partition_is_that_of_kafka(partitions: int, expected: list[int]) -> None:
    assert [metadata_partition(TopicIdPartition(T, "t", number), partitions) for number in NUMBERS] == expected


@pytest.mark.parametrize(("partitions", "expected"), [(50, 35), (5, 0)])
def test_the_lower_half_of_the_topic_id_comes_first(partitions: int, expected: int) -> None:
    assert metadata_partition(TopicIdPartition(UUID(int=1), "t", 0), partitions) == expected
