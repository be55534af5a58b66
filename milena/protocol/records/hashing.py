"""Kafka's hash functions: murmur2 maps record keys to partitions, Java's string hash maps groups to partitions and
orders the keys of a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milena.protocol.schemas.primitives import Data

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
_FIRST_BUCKETS: Final = 16


def murmur2(data: Data) -> int:
    """Kafka's 32-bit murmur2, as a signed integer."""
    size = len(data)
    result = _SEED ^ size
    whole = size & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        word ^= word >> 24
        result = (result * _M & _MASK) ^ (word * _M & _MASK)
    if whole != size:
        result ^= int.from_bytes(data[whole:], "little")
        result = result * _M & _MASK
    result ^= result >> 13
    result = result * _M & _MASK
    result ^= result >> 15
    return _signed(result)


def java_string_hash(text: str) -> int:
    """``String.hashCode`` over UTF-16 code units, as a signed integer."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for start in range(0, len(data), 2):
        result = (31 * result + (data[start] << 8 | data[start + 1])) & _MASK
    return _signed(result)


def java_map_order(texts: Sequence[str], entries: int) -> list[str]:
    """Return ``texts`` in the order in which a ``java.util.HashMap`` with so many ``entries`` iterates over them, if
    they were put into it in the present order."""
    buckets = _FIRST_BUCKETS
    while entries > buckets * 3 // 4:
        buckets *= 2

    def bucket(text: str) -> int:
        value = java_string_hash(text) & _MASK
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(texts, key=bucket)


def partition_for_key(key: Data, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_for_group(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` for a group (or of ``__transaction_state`` for a transactional
    id)."""
    value = java_string_hash(group)
    # Java's abs of the smallest integer is negative; Kafka uses 0 (``Utils.abs``).
    return (0 if value == -(2**31) else abs(value)) % partitions


def hashing_units(text: str) -> int:
    """The elements as which the hash of a group or transactional id counts for a ``YieldBudget``: a client chooses the
    length, up to 32 KB, and the hash takes 0.1 us for each character."""
    return 1 + len(text) // 64


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
