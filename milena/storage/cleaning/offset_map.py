"""The last offset of each key, in a table of a fixed size, like Kafka's ``SkimpyOffsetMap``.

An entry takes 24 bytes for a key of any length: a hash of 128 bits and an offset of 64. The hash is keyed with a
secret. Otherwise a producer could send two keys with the same hash, and the record of one would be lost.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import blake2b
from math import isqrt
from struct import Struct
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from mypy_extensions import i64

_HALVES: Final = Struct(">qq")
ENTRY_SIZE: Final = 24
"""Bytes of one entry."""
_FIELDS: Final = 3
"""64-bit fields of an entry: the two halves of the hash, and the offset + 1, which is 0 if the slot is free."""
_MOST_SLOTS: Final = ((1 << 31) - 1) // ENTRY_SIZE
"""Kafka's bound: a table has at most 2 GB."""
NOT_FOUND: Final = -1
_HASH_IS_KEYED: Final = sys.hash_info.algorithm.startswith("siphash") and not sys.hash_info.cutoff
"""Whether Python's hash of bytes is SipHash with a random key per process. Python can be built with other hashes."""


@final
class OffsetMap:
    """A hash table with open addressing. The number of slots is a prime, so that every probe sequence visits all."""

    __slots__ = ("_capacity", "_count", "_most", "_secret", "_slots", "_table")

    def __init__(self, memory: int, load_factor: float, secret: bytes, *, keys: int) -> None:
        """``memory``: maximum bytes of the table (log.cleaner.dedupe.buffer.size). ``load_factor``: share of the slots
        that may be used (log.cleaner.io.buffer.load.factor). ``secret``: up to 64 bytes. ``keys``: maximum number of
        keys; the table is smaller if they need less. Raises ValueError if not even one key fits."""
        capacity = min(memory // ENTRY_SIZE, _MOST_SLOTS)
        load_factor = max(min(load_factor, 1.0), 0.0)
        most = int(capacity * load_factor)
        self._capacity = max(capacity, 1)
        if keys < most:
            most, capacity = keys, min(capacity, int(keys / load_factor) + 2)
        self._slots = _prime_up_to(capacity)
        self._most = min(most, self._slots - 1)
        if self._most < min(keys, 1):
            raise ValueError(
                f"{memory} bytes with a load factor of {load_factor} have no room for a key: increase "
                "log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads"
            )
        self._table = array("q", (0,)) * (self._slots * _FIELDS)
        self._secret = secret
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether no further key may be added."""
        return self._count >= self._most

    @property
    def memory(self) -> int:
        """Bytes of the table."""
        return len(self._table) * self._table.itemsize

    @property
    def utilization(self) -> float:
        """The share of used slots, of those that fit into ``memory``."""
        return self._count / self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of ``key``. The map must not be full."""
        high, low = self._hash(key)
        index = self._index_of(high, low)
        table = self._table
        if not table[index + 2]:
            self._count += 1
            table[index] = high
            table[index + 1] = low
        table[index + 2] = offset + 1

    def get(self, key: bytes) -> int:
        """Return the last offset of ``key``, -1 for none."""
        high, low = self._hash(key)
        return self._table[self._index_of(high, low) + 2] - 1

    def _hash(self, key: bytes) -> tuple[i64, i64]:
        if _HASH_IS_KEYED:
            return hash(key), hash(self._secret + key)
        high, low = _HALVES.unpack(blake2b(key, digest_size=_HALVES.size, key=self._secret).digest())
        return high, low

    def _index_of(self, high: i64, low: i64) -> i64:
        """Return the table index of the entry with this hash, or of the free slot for it."""
        table = self._table
        slots: i64 = self._slots
        slot: i64 = high % slots
        step: i64 = 1 + low % (slots - 1)
        while True:
            index: i64 = slot * _FIELDS
            if (table[index] == high and table[index + 1] == low) or not table[index + 2]:
                return index
            slot = (slot + step) % slots


def _prime_up_to(number: int) -> int:
    """Return the largest prime up to ``number``, at least 2."""
    while number > 2 and any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return max(number, 2)
