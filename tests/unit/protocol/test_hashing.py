"""Hashes that clients and brokers must agree on."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as reference_murmur2
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.records.hashing import (
    java_map_order,
    java_string_hash,
    murmur2,
    partition_for_group,
    partition_for_key,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_javas_values(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


@given(st.binary(max_size=60))
def test_murmur2_is_aiokafkas(data: bytes) -> None:
    assert murmur2(data) & 0xFFFFFFFF == reference_murmur2(data) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_a_string_hash_is_over_utf16_units(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_groups_are_placed_by_their_hash() -> None:
    assert partition_for_group("my-group", 50) == 12
    assert partition_for_group("polygenelubricants", 50) == 0


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_keys_are_placed_within_the_partitions(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions


@pytest.mark.parametrize(
    ("entries", "order"),
    [
        (5, [0, 2, 1, 4, 3]),
        (12, [6, 5, 8, 7, 9, 0, 2, 10, 1, 11, 4, 3]),
        (13, [6, 5, 8, 7, 9, 0, 2, 10, 1, 11, 4, 12, 3]),
        (25, [0, 20, 2, 21, 1, 22, 4, 23, 3, 24, 6, 5, 8, 7, 9, 14, 15, 16, 17, 18, 19, 10, 11, 12, 13]),
    ],
)
def test_the_order_of_a_java_hash_map(entries: int, order: list[int]) -> None:
    """The expected orders are those of Java 17."""
    texts = [f"protocol-{index}" for index in range(entries)]
    assert java_map_order(texts, entries) == [texts[index] for index in order]
    # In one bucket they stay in the order in which they were put.
    assert java_map_order(["BB", "Aa"], 2) == ["BB", "Aa"]
