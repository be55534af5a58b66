"""The last offset of each key: how whoever carries out an order tells it, and how the leader sees that it is true.

A **winner** is told for each record with a key that counts (not of an aborted transaction, nor a marker), in the order
of the log: the offset of the last such record with its key in the order's window, 8 bytes. An **entry** is the hash of
a record's key and its offset, 24 bytes; all entries are told sorted by hash, and the latest of a key first, whose
offset is the winner of all that follow with that hash.

Who reads both once, in their own order, knows that they are right if the set of (hash, offset, winner) that the log has
with the winners is the one that the entries have by themselves. Two sets are the same if the sums of a keyed hash of
their members are, whose key nobody knew when they were written (Blum et al., Checking the Correctness of Memories,
1994; Clarke et al., Incremental Multiset Hash Functions, 2003). So the leader needs no memory for keys, however many
there are.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

WINNER: Final = Struct(">q")
ENTRY: Final = Struct(">16sq")
_MEMBER: Final = Struct(">16sqq")
HASH_BYTES: Final = 16
SECRET_BYTES: Final = 32
_INVERTED: Final = (1 << 63) - 1
_SUM: Final = 1 << 128


def key_hash(key: bytes, secret: bytes) -> bytes:
    """16 bytes. ``secret``: the order's, which no producer knew."""
    return blake2b(key, digest_size=HASH_BYTES, key=secret).digest()


def entry_of(hashed: bytes, offset: int) -> bytes:
    """Entries are sorted as bytes are."""
    return ENTRY.pack(hashed, _INVERTED - offset)


def parts_of(entry: bytes, at: int = 0) -> tuple[bytes, int]:
    """The hash and the offset of the entry at a position."""
    hashed, inverted = ENTRY.unpack_from(entry, at)
    return hashed, _INVERTED - inverted


class MemberSum:
    """The sum of what a set has, in which each member is once. ``secret``: of the one who compares."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.total = 0

    def add(self, hashed: bytes, offset: int, winner: int) -> None:
        member = _MEMBER.pack(hashed, offset, winner)
        digest = blake2b(member, digest_size=HASH_BYTES, key=self._secret).digest()
        self.total = (self.total + int.from_bytes(digest)) % _SUM


class SortedEntries:
    """Takes all entries in their order, and sums them with their winners."""

    def __init__(self, secret: bytes) -> None:
        self.members = MemberSum(secret)
        self._last = b""
        self._hashed = b""
        self._winner = 0

    def take(self, entries: bytes) -> None:
        """Whole entries. Raises ValueError if one does not follow the one before."""
        for at in range(0, len(entries), ENTRY.size):
            entry = entries[at : at + ENTRY.size]
            if entry <= self._last:
                raise ValueError("the keys are not sorted")
            self._last = entry
            hashed, offset = parts_of(entry)
            if not 0 <= offset <= _INVERTED:
                raise ValueError(f"the keys have the offset {offset}")
            if hashed != self._hashed:
                self._hashed, self._winner = hashed, offset
            self.members.add(hashed, offset, self._winner)
