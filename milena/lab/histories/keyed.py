"""Rules for compacted partitions: what a read from the start to the end must return for each key. Anomalies:

- **lost value**: the last acknowledged write of a key was a value, and the key has none.
- **older value**: a key has a value that an acknowledged write had replaced.
- **deleted key is back**: a key has a value that an acknowledged tombstone had removed.
- **value from nowhere**: a key has a value that no client wrote to it, or that was rejected with a final error.
- **duplicate**: a value that an idempotent producer wrote once is at two offsets, according to its acknowledgement and
  to reads, or reads return more tombstones of a key than were written.
- **inconsistent offsets**, **non-monotonic send**: two records are at one offset; a record is below one that was
  acknowledged before it was sent. The next write of a key would hide a loss that results from it (``claims``).

A read that begins after another read has ended must return, for each key, the same record or a later one; for a deleted
key the tombstone or no record.

Only writes below the end offset of a read (``upto``) are required: a replaced leader that does not know it serves
fewer records. A record below ``upto`` may be missing if it was cleaned during the read because of a later record of its
key above ``upto``. A write with unknown outcome may take effect at any later time. If the promises of a write are void,
its key is not checked: the write may have replaced an older value, which was cleaned, before it was lost itself. A
deleted key is not checked in a read that took longer than tombstones are kept.

Example. Key k: value a is acknowledged at offset 3, value b at 7. A read with ``upto`` 10 that began later must return
(k, 7, b), or a record above 7 that may be there. (k, 3, a) is **older value**, no record of k is **lost value**, and
(k, 5, c) with an unknown c is **value from nowhere**.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, TypeAlias

from milena.lab.histories.copies import Copies, duplicate
from milena.lab.histories.group_events import RequestOutcome
from milena.protocol.types import TopicPartition

_FAILED = RequestOutcome.FAILED


@dataclass(frozen=True, slots=True)
class KeyedWrite:
    """One record with a key; ``value`` is None for a tombstone, and otherwise unique. ``offset`` is -1 if unknown."""

    partition: TopicPartition
    key: str
    value: str | None
    begun: float
    ended: float
    outcome: RequestOutcome
    offset: int = -1
    once: bool = True
    """Whether the producer is idempotent."""


@dataclass(frozen=True, slots=True)
class FullRead:
    """A read of a partition from its start to the offset ``upto`` (exclusive): the last record of each key. ``reader``
    is ``LIBRARY/...`` if several client libraries are used."""

    partition: TopicPartition
    begun: float
    ended: float
    upto: int
    found: tuple[tuple[str, int, str | None], ...]
    """(key, offset, value); None is a tombstone."""
    tombstones_stay: float = 0.0
    """Seconds for which tombstones are kept (``delete.retention.ms``)."""
    final: bool = False
    """Whether all faults had ended, so that no acknowledged record is above ``upto``."""
    replaced: tuple[tuple[str, int, str | None], ...] = ()
    """(key, offset, value) of records that a later one of the same key replaces; those reported by an earlier read of
    the same reader may be omitted."""
    reader: str = ""


@dataclass(frozen=True, slots=True)
class VoidedPromises:
    """The promises of writes before ``at`` are void, except below the offset ``kept``."""

    at: float
    kept: int


class KeyedRules:
    """Checks the events of one partition."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._reads: list[FullRead] = []
        self._voids: list[VoidedPromises] = []
        self._copies: dict[str, Copies] = {}
        self._rows: dict[tuple[str, int, str | None], tuple[str, int, str | None]] = {}
        """Equal rows of different reads share one object, to save memory."""

    def wrote(self, write: KeyedWrite) -> None:
        self._key(write.key).writes.append(write)

    def read(self, read: FullRead) -> None:
        found = tuple([self._rows.setdefault(row, row) for row in read.found])
        self._reads.append(replace(read, found=found, replaced=()))
        for name, offset, value in read.replaced:
            self._key(name).add_offset(offset, value, replaced=True)

    def voided(self, at: float, kept: int) -> None:
        self._voids.append(VoidedPromises(at, kept))

    def copied(self, copies: Copies) -> None:
        self._copies[copies.value] = copies

    def _key(self, name: str) -> _Key:
        found = self._keys.get(name)
        if found is None:
            found = self._keys[name] = _Key()
        return found

    def violations(self) -> Iterator[tuple[str, str]]:
        """Yield the violations: name of the anomaly, description. Call once, after the last event."""
        for read in self._reads:
            for name, offset, value in read.found:
                self._key(name).add_sighting(offset, value, read.ended)
                self._key(name).add_offset(offset, value)
        for key in self._keys.values():
            key.prepare()
        void = {name for name, key in self._keys.items() if any(map(key.is_void, self._voids))}
        judged = sorted(self._keys.keys() - void)
        for name in judged:
            yield from self._keys[name].duplicates(name, self._copies)
        for text in conflicts(claim for name in judged for claim in self._keys[name].claims(name)):
            yield "inconsistent offsets", text
        for text in order_violations(write for name in judged for write in self._keys[name].acknowledged(name)):
            yield "non-monotonic send", text
        for read in self._reads:
            found = {name: (offset, value) for name, offset, value in read.found}
            for name in judged:
                key, (offset, value) = self._keys[name], found.get(name, (-1, None))
                if offset < 0 and not key.writes:
                    continue
                of_this_key = [*_of_writes(read, name, key, offset, value)] or [
                    *_of_writes_without_offset(read, name, key, value)
                ]
                yield from of_this_key or _of_reads(read, name, key, offset, value)


class _Key:
    """The writes of one key, and the records of it that reads have returned."""

    def __init__(self) -> None:
        self.writes: list[KeyedWrite] = []
        self._sure: list[KeyedWrite] = []
        self._values: set[str | None] = set()
        self._seen: dict[tuple[int, str | None], float] = {}
        self._sightings: list[tuple[int, float, str | None]] = []
        self._first_offset: dict[str | None, int] = {}
        """The offset of each value in the first read that returned it; None is the tombstone."""
        self._all_offsets: dict[str | None, set[int]] = {}
        """All offsets of values that reads have returned at several."""
        self._replaced: set[str | None] = {None}
        """Values that reads have returned as replaced by a later one."""

    def add_offset(self, offset: int, value: str | None, *, replaced: bool = False) -> None:
        first = self._first_offset.setdefault(value, offset)
        if first != offset:
            self._all_offsets.setdefault(value, {first}).add(offset)
        if replaced:
            self._replaced.add(value)

    def _offsets(self, value: str | None) -> set[int]:
        """Return all offsets at which reads have returned the value."""
        return self._all_offsets.get(value) or {at for at in (self._first_offset.get(value),) if at is not None}

    def duplicates(self, name: str, copies: Mapping[str, Copies]) -> Iterator[tuple[str, str]]:
        """Yield values at more offsets than they were written, and unknown values among the replaced ones."""
        unknown = self._replaced - self._values - {value for _, _, value in self._sightings}
        for value in sorted(filter(None, unknown)):
            yield "value from nowhere", f"{name} had {value}"
        once = {write.value: write for write in self.writes if write.value is not None and write.once}
        for text, first in self._first_offset.items():
            write = once.get(text or "")
            found = self._offsets(text) | ({write.offset} if write is not None and write.offset >= 0 else {first})
            if write is not None and len(found) > 1:
                anomaly, where = duplicate(write.value or "", sorted(found), copies.get(write.value or ""))
                yield anomaly, f"{text} of {name} {where}"
        tombstones = [write for write in self.writes if write.value is None and write.outcome is not _FAILED]
        unknown_offsets = sum(write.offset < 0 for write in tombstones)
        found = self._offsets(None) - {write.offset for write in tombstones}
        if len(found) > unknown_offsets and all(write.once for write in tombstones):
            at = ", ".join(map(str, sorted(found)))
            yield (
                "duplicate",
                f"tombstones of {name} are at {at}, in addition to the acknowledged ones; {unknown_offsets} may be",
            )

    def add_sighting(self, offset: int, value: str | None, at: float) -> None:
        before = self._seen.get((offset, value))
        self._seen[offset, value] = at if before is None else min(at, before)

    def claims(self, name: str) -> Iterator[Claim]:
        """Yield the acknowledged and returned records with their offsets."""
        for write in self._sure:
            yield write.offset, name, write.value
        for value in self._first_offset:
            for offset in self._offsets(value):
                yield offset, name, value

    def acknowledged(self, name: str) -> Iterator[Acknowledged]:
        """Yield the acknowledged writes with known offsets."""
        for write in self._sure:
            yield Acknowledged(write.offset, write.begun, write.ended, name, write.value)

    def _with_known_offset(self, write: KeyedWrite) -> KeyedWrite:
        """Return the write with the offset from reads, if the acknowledgement has none and the value was written
        once."""
        if write.offset >= 0 or write.value is None or not write.once or write.outcome is _FAILED:
            return write
        return replace(write, offset=self._first_offset.get(write.value, -1))

    def prepare(self) -> None:
        """Sort the writes and sightings by offset, after all events were added."""
        self.writes = [self._with_known_offset(write) for write in self.writes]
        sure = (write for write in self.writes if write.outcome is RequestOutcome.OK and write.offset >= 0)
        self._sure = sorted(sure, key=lambda write: write.offset)
        self._values = {write.value for write in self.writes if write.outcome is not RequestOutcome.FAILED}
        sightings = [(offset, at, value) for (offset, value), at in self._seen.items()]
        self._sightings = sorted(sightings, key=lambda one: one[0])

    def is_void(self, void: VoidedPromises) -> bool:
        return any(write.begun <= void.at and not 0 <= write.offset < void.kept for write in self.writes)

    def was_written(self, value: str) -> bool:
        return value in self._values

    def last_for(self, read: FullRead) -> KeyedWrite | None:
        """Return the last acknowledged write that a read must return, or a later record; None if there is none."""
        if read.final:
            return self._sure[-1] if self._sure else None
        below = bisect_left(self._sure, read.upto, key=lambda write: write.offset)
        return next((self._sure[at] for at in range(below - 1, -1, -1) if self._sure[at].ended <= read.begun), None)

    def last_seen_before(self, read: FullRead) -> tuple[int, str | None] | None:
        """Return the record with the highest offset that an earlier read has returned: offset and value."""
        below = bisect_left(self._sightings, read.upto, key=lambda one: one[0])
        for index in range(below - 1, -1, -1):
            offset, at, value = self._sightings[index]
            if at <= read.begun:
                return offset, value
        return None

    def may_be_cleaned_meanwhile(self, read: FullRead) -> bool:
        """Whether an earlier record may have been cleaned during a read because of a write at or above ``upto``."""
        return not read.final and any(
            write.begun < read.ended and (_has_unknown_offset(write) or write.offset >= read.upto)
            for write in self.writes
        )

    def may_be_deleted_after(self, offset: int) -> bool:
        """Whether a tombstone may exist above ``offset``."""
        return any(
            write.value is None
            and write.outcome is not RequestOutcome.FAILED
            and (write.offset < 0 or write.offset > offset)
            for write in self.writes
        )

    def later_write_without_offset(self, value: str | None) -> KeyedWrite | None:
        """Return an acknowledged write of unknown offset that must be after ``value`` (None: no value), since it began
        after ``value`` was acknowledged."""
        before = [write for write in self.writes if write.value == value and write.outcome is not _FAILED]
        if value is not None and not all(write.outcome is RequestOutcome.OK for write in before):
            return None
        ended = max((write.ended for write in before), default=-inf)
        if value is None and any(write.outcome is RequestOutcome.UNKNOWN for write in before):
            return None  # a tombstone may have taken effect at any later time
        without_offset = (write for write in self.writes if write.outcome is RequestOutcome.OK and write.offset < 0)
        return next((write for write in without_offset if write.begun > ended and write.value != value), None)


def _has_unknown_offset(write: KeyedWrite) -> bool:
    return write.outcome is not _FAILED and write.offset < 0


def _of_writes(read: FullRead, name: str, key: _Key, offset: int, value: str | None) -> Iterator[tuple[str, str]]:
    """Compare a key's record in a read with the acknowledged writes of known offset."""
    if value is not None and not key.was_written(value):
        yield "value from nowhere", f"{name} has {value} at {offset}"
    last = key.last_for(read)
    if last is None or offset >= last.offset or key.may_be_cleaned_meanwhile(read):
        return
    text = f"up to {read.upto}, {name} has {value} at {offset}; {last.value} was acknowledged at {last.offset}"
    if last.value is None:
        if value is not None and read.ended - read.begun < read.tombstones_stay:
            yield "deleted key is back", text
    elif value is not None:
        yield "older value", text
    elif not key.may_be_deleted_after(last.offset):
        yield "lost value", text


def _of_writes_without_offset(read: FullRead, name: str, key: _Key, value: str | None) -> Iterator[tuple[str, str]]:
    """Compare a key's value in the final read with acknowledged writes of unknown offset."""
    last = key.later_write_without_offset(value) if read.final else None
    if last is None:
        return
    text = f"in the end {name} has {value}; {last.value} was acknowledged at {last.ended:.3f}, after it"
    if last.value is not None:
        yield "lost value" if value is None else "older value", text
    elif read.ended - read.begun < read.tombstones_stay:
        yield "deleted key is back", text


def _of_reads(read: FullRead, name: str, key: _Key, offset: int, value: str | None) -> Iterator[tuple[str, str]]:
    """Compare a key's record in a read with the records that earlier reads have returned."""
    seen = key.last_seen_before(read)
    if seen is None or offset >= seen[0] or key.may_be_cleaned_meanwhile(read):
        return
    last, had = seen
    text = f"up to {read.upto}, {name} has {value} at {offset}; an earlier read found {had} at {last}"
    if had is None:
        if value is not None and read.ended - read.begun < read.tombstones_stay:
            yield "deleted key is back", text
    elif value is not None:
        yield "older value", text
    elif not key.may_be_deleted_after(last - 1):
        yield "lost value", text


Claim: TypeAlias = tuple[int, str, str | None]
"""Offset, key and value of a record that was acknowledged or read."""


class Acknowledged(NamedTuple):
    """An acknowledged write."""

    offset: int
    begun: float
    ended: float
    key: str
    value: str | None


def conflicts(claims: Iterable[Claim]) -> Iterator[str]:
    """Yield a description of each offset with two records, over all keys: this finds lost writes that a later write of
    the same key hides from the checks of single keys."""
    records: dict[int, tuple[str, str | None]] = {}
    reported: set[Claim] = set()
    for offset, key, value in claims:
        first = records.setdefault(offset, (key, value))
        if first != (key, value) and (offset, key, value) not in reported:
            reported.add((offset, key, value))
            yield f"{first[1]} of {first[0]} and {value} of {key} were at {offset}"


def order_violations(acknowledged: Iterable[Acknowledged]) -> Iterator[str]:
    """Yield a description of each write at a lower offset than one that had been acknowledged before it began."""
    first: Acknowledged | None = None
    for write in sorted(acknowledged, key=lambda write: write.offset, reverse=True):
        if first is not None and first.ended < write.begun:
            yield (
                f"{write.value} of {write.key} is at {write.offset}, and {first.value} of {first.key}, acknowledged "
                f"before it was sent, at {first.offset}"
            )
        if first is None or write.ended < first.ended:
            first = write
