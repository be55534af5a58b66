"""The offset map, which has the last offset of each key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.storage.cleaning.offset_map import ENTRY_SIZE, NOT_FOUND, OffsetMap

SECRET = b"a secret"


def filled(count: int, *, memory: int, load_factor: float = 0.9) -> OffsetMap:
    offsets = OffsetMap(memory, load_factor, SECRET, keys=1 << 40)
    for number in range(count):
        offsets.put(b"key %d" % number, number)
    return offsets


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, (1 << 63) - 2)), max_size=60))
def test_the_map_has_the_last_offset_of_each_key(puts: list[tuple[bytes, int]]) -> None:
    offsets = OffsetMap(61 * ENTRY_SIZE, 1.0, SECRET, keys=1 << 40)
    expected: dict[bytes, int] = {}
    for key, offset in puts:
        offsets.put(key, offset)
        expected[key] = offset
    assert len(offsets) == len(expected)
    assert {key: offsets.get(key) for key in expected} == expected
    assert offsets.get(b"long") == NOT_FOUND


def test_an_entry_takes_24_bytes_for_any_key() -> None:
    offsets = OffsetMap(24_000, 0.9, SECRET, keys=1 << 40)
    for number in range(890):
        offsets.put(b"k" * 5000 + b"%d" % number, number)
    assert offsets.memory <= 24_000
    assert all(offsets.get(b"k" * 5000 + b"%d" % number) == number for number in range(890))


def test_the_map_is_full_at_its_load_factor() -> None:
    assert not filled(899, memory=24_000).full
    assert filled(900, memory=24_000).full
    assert filled(500, memory=24_000, load_factor=0.5).full


def test_lookups_work_in_a_map_with_a_single_free_slot() -> None:
    offsets = filled(996, memory=997 * ENTRY_SIZE, load_factor=1.0)
    assert offsets.full
    assert all(offsets.get(b"key %d" % number) == number for number in range(996))
    assert offsets.get(b"another") == NOT_FOUND


def test_the_map_takes_no_more_memory_than_its_keys_need() -> None:
    assert OffsetMap(128 << 20, 0.9, SECRET, keys=90).memory < 110 * ENTRY_SIZE
    few = OffsetMap(128 << 20, 0.9, SECRET, keys=90)
    for number in range(90):
        assert not few.full
        few.put(b"%d" % number, number)
    assert OffsetMap(128 << 20, 0.9, SECRET, keys=0).full


def test_the_map_works_if_the_hash_of_python_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milena.storage.cleaning.offset_map._HASH_IS_KEYED", False)
    offsets = filled(890, memory=24_000)
    assert all(offsets.get(b"key %d" % number) == number for number in range(890))
    assert offsets.get(b"another") == NOT_FOUND


@pytest.mark.parametrize("memory", [0, 23, 24])
def test_a_buffer_too_small_for_one_key_is_refused(memory: int) -> None:
    with pytest.raises(ValueError, match=r"increase log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(memory, 0.9, SECRET, keys=10)


def test_the_slot_of_a_key_depends_on_the_secret() -> None:
    tables = set()
    for secret in (b"one", b"another"):
        offsets = OffsetMap(2400, 0.9, secret, keys=90)
        offsets.put(b"key", 7)
        assert offsets.get(b"key") == 7
        tables.add(bytes(offsets._table))
    assert len(tables) == 2


@pytest.mark.parametrize("factor", [1.0, 1.5, 1e300, float("inf")])
def test_a_load_factor_of_one_or_more_fills_the_map(factor: float) -> None:
    """Kafka's option log.cleaner.io.buffer.load.factor has no upper bound."""
    table = OffsetMap(100 * ENTRY_SIZE, factor, SECRET, keys=1000)
    number = 0
    while not table.full:
        table.put(b"%d" % number, number)
        number += 1
    assert number == len(table) == 96  # of 97 slots, a prime
    assert table.get(b"95") == 95 and table.get(b"none") == -1
    small = OffsetMap(100 * ENTRY_SIZE, factor, SECRET, keys=80)
    for number in range(75):
        assert not small.full
        small.put(b"%d" % number, number)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("-inf"), float("nan")])
def test_a_load_factor_that_is_not_positive_is_refused(factor: float) -> None:
    with pytest.raises(ValueError):
        OffsetMap(100 * ENTRY_SIZE, factor, SECRET, keys=1000)
