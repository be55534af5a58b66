"""Compacted partitions: what a reader from the start to the end must know of each key.

- **lost value**: the last acknowledged write of a key was a value, and the key has none.
- **older value**: a key has a value that an acknowledged write had replaced.
- **deleted key is back**: a key has a value that an acknowledged tombstone had removed.
- **value from nowhere**: a key has a value that nobody wrote there, or that was rejected for good.
- **duplicate**: a value that an idempotent producer wrote once is at two offsets, by its acknowledgement and by what
  readers found, or more tombstones of a key are there than were written.
- **inconsistent offsets**, **non-monotonic send**: two records are at one offset; a record is below one that was
  acknowledged before it was sent. The next write of a key would cover up what was lost by that (``claims``).

What a read has found also binds those that begin after it has ended: they find the same of a key, or what came later;
of a deleted one nothing, or the tombstone.

Only writes below the offset up to which was read count: a leader that does not know that it was replaced shows less;
and what was read may lack a record that was cleaned away meanwhile, in favour of one behind that offset. A
write with unknown outcome may have taken effect at any later time. If the promises of a write are void, its key is not
judged: it may have replaced an older value, which was cleaned away, before it was lost itself. Neither is a deleted key
in a read that took longer than tombstones stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from milena.lab.histories.claims import Acknowledged, Claim, conflicts, falls
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
    """The producer is idempotent."""


@dataclass(frozen=True, slots=True)
class FullRead:
    """Everything from the start of a partition to the offset ``upto``: each key's last record. ``reader`` is
    ``LIBRARY/...`` where several libraries are at work."""

    partition: TopicPartition
    begun: float
    ended: float
    upto: int
    found: tuple[tuple[str, int, str | None], ...]
    """(key, offset, value); None is a tombstone."""
    tombstones_stay: float = 0.0
    """Seconds (``delete.retention.ms``)."""
    final: bool = False
    """All faults have ended: nothing that was acknowledged lies beyond ``upto``."""
    replaced: tuple[tuple[str, int, str | None], ...] = ()
    """Records that a later one of their key has replaced, likewise; those that the reader had told of before may be
    left out."""
    reader: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The promises of writes before ``at`` have ended, except below the offset ``kept``."""

    at: float
    kept: int


class KeyedRules:
    """The events of one partition."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._reads: list[FullRead] = []
        self._voids: list[Ended] = []
        self._rows: dict[tuple[str, int, str | None], tuple[str, int, str | None]] = {}
        """One object for what many reads have found."""

    def wrote(self, write: KeyedWrite) -> None:
        self._key(write.key).writes.append(write)

    def read(self, read: FullRead) -> None:
        found = tuple([self._rows.setdefault(row, row) for row in read.found])
        self._reads.append(replace(read, found=found, replaced=()))
        for name, offset, value in read.replaced:
            self._key(name).stood(offset, value, replaced=True)

    def voided(self, at: float, kept: int) -> None:
        self._voids.append(Ended(at, kept))

    def _key(self, name: str) -> _Key:
        found = self._keys.get(name)
        if found is None:
            found = self._keys[name] = _Key()
        return found

    def verdict(self) -> Iterator[tuple[str, str]]:
        """Each anomaly's name, and a sentence."""
        for read in self._reads:
            for name, offset, value in read.found:
                self._key(name).saw(offset, value, read.ended)
                self._key(name).stood(offset, value)
        for key in self._keys.values():
            key.arrange()
        void = {name for name, key in self._keys.items() if any(map(key.is_void, self._voids))}
        judged = sorted(self._keys.keys() - void)
        for name in judged:
            yield from self._keys[name].twice(name)
        for text in conflicts(claim for name in judged for claim in self._keys[name].claims(name)):
            yield "inconsistent offsets", text
        for text in falls(write for name in judged for write in self._keys[name].acknowledged(name)):
            yield "non-monotonic send", text
        for read in self._reads:
            found = {name: (offset, value) for name, offset, value in read.found}
            for name in judged:
                key, (offset, value) = self._keys[name], found.get(name, (-1, None))
                if offset < 0 and not key.writes:
                    continue
                said = [*_of_writes(read, name, key, offset, value)] or [*_of_untold(read, name, key, value)]
                yield from said or _of_reads(read, name, key, offset, value)


class _Key:
    """What was written to one key, and what reads have found of it."""

    def __init__(self) -> None:
        self.writes: list[KeyedWrite] = []
        self._sure: list[KeyedWrite] = []
        self._values: set[str | None] = set()
        self._seen: dict[tuple[int, str | None], float] = {}
        self._sightings: list[tuple[int, float, str | None]] = []
        self._place: dict[str | None, int] = {}
        """The offset at which each value was found first."""
        self._places: dict[str | None, set[int]] = {}
        """Of values that were found at several: all of them."""
        self._replaced: set[str | None] = {None}
        """Those that were seen behind a later one alone, so far."""

    def stood(self, offset: int, value: str | None, *, replaced: bool = False) -> None:
        first = self._place.setdefault(value, offset)
        if first != offset:
            self._places.setdefault(value, {first}).add(offset)
        if replaced:
            self._replaced.add(value)

    def _found(self, value: str | None) -> set[int]:
        """Its offsets."""
        return self._places.get(value) or {at for at in (self._place.get(value),) if at is not None}

    def twice(self, name: str) -> Iterator[tuple[str, str]]:
        """What stands at more offsets than it was written, and what was replaced before a read told it as the last."""
        strange = self._replaced - self._values - {value for _, _, value in self._sightings}
        for value in sorted(filter(None, strange)):
            yield "value from nowhere", f"{name} had {value}"
        once = {write.value: write for write in self.writes if write.value is not None and write.once}
        for text, first in self._place.items():
            write = once.get(text or "")
            found = self._found(text) | ({write.offset} if write is not None and write.offset >= 0 else {first})
            if write is not None and len(found) > 1:
                yield "duplicate", f"{text} of {name} is at {' and '.join(map(str, sorted(found)))}"
        tombstones = [write for write in self.writes if write.value is None and write.outcome is not _FAILED]
        unsure = sum(write.offset < 0 for write in tombstones)
        found = self._found(None) - {write.offset for write in tombstones}
        if len(found) > unsure and all(write.once for write in tombstones):
            at = ", ".join(map(str, sorted(found)))
            yield "duplicate", f"tombstones of {name} are at {at}, beside those that were acknowledged; {unsure} may be"

    def saw(self, offset: int, value: str | None, at: float) -> None:
        before = self._seen.get((offset, value))
        self._seen[offset, value] = at if before is None else min(at, before)

    def claims(self, name: str) -> Iterator[Claim]:
        """What was acknowledged or found, and where."""
        for write in self._sure:
            yield write.offset, name, write.value
        for value in self._place:
            for offset in self._found(value):
                yield offset, name, value

    def acknowledged(self, name: str) -> Iterator[Acknowledged]:
        """Writes whose offsets are known."""
        for write in self._sure:
            yield Acknowledged(write.offset, write.begun, write.ended, name, write.value)

    def _placed(self, write: KeyedWrite) -> KeyedWrite:
        """With the offset at which readers found what was written once, where nobody was told of it."""
        if write.offset >= 0 or write.value is None or not write.once or write.outcome is _FAILED:
            return write
        return replace(write, offset=self._place.get(write.value, -1))

    def arrange(self) -> None:
        """When everything is known: in order of offsets."""
        self.writes = [self._placed(write) for write in self.writes]
        sure = (write for write in self.writes if write.outcome is RequestOutcome.OK and write.offset >= 0)
        self._sure = sorted(sure, key=lambda write: write.offset)
        self._values = {write.value for write in self.writes if write.outcome is not RequestOutcome.FAILED}
        sightings = [(offset, at, value) for (offset, value), at in self._seen.items()]
        self._sightings = sorted(sightings, key=lambda one: one[0])

    def is_void(self, void: Ended) -> bool:
        return any(write.begun <= void.at and not 0 <= write.offset < void.kept for write in self.writes)

    def was_written(self, value: str) -> bool:
        return value in self._values

    def last_for(self, read: FullRead) -> KeyedWrite | None:
        """The last acknowledged write that a read must know."""
        if read.final:
            return self._sure[-1] if self._sure else None
        below = bisect_left(self._sure, read.upto, key=lambda write: write.offset)
        return next((self._sure[at] for at in range(below - 1, -1, -1) if self._sure[at].ended <= read.begun), None)

    def last_seen_before(self, read: FullRead) -> tuple[int, str | None] | None:
        """The highest offset, and its value, that had been found before a read began."""
        below = bisect_left(self._sightings, read.upto, key=lambda one: one[0])
        for index in range(below - 1, -1, -1):
            offset, at, value = self._sightings[index]
            if at <= read.begun:
                return offset, value
        return None

    def replaced_meanwhile(self, read: FullRead) -> bool:
        """Whether what was read before a read may have been cleaned away in favour of a write behind ``upto``."""
        return not read.final and any(
            write.begun < read.ended and (_is_unsure(write) or write.offset >= read.upto) for write in self.writes
        )

    def may_be_deleted_behind(self, offset: int) -> bool:
        """Whether a tombstone may follow an offset."""
        return any(
            write.value is None
            and write.outcome is not RequestOutcome.FAILED
            and (write.offset < 0 or write.offset > offset)
            for write in self.writes
        )

    def untold_behind(self, value: str | None) -> KeyedWrite | None:
        """An acknowledged write whose offset nobody knows, and which must be behind a value that is there, since it
        began when that was acknowledged; None as a value stands for none."""
        before = [write for write in self.writes if write.value == value and write.outcome is not _FAILED]
        if value is not None and not all(write.outcome is RequestOutcome.OK for write in before):
            return None
        ended = max((write.ended for write in before), default=-inf)
        if value is None and any(write.outcome is RequestOutcome.UNKNOWN for write in before):
            return None  # a tombstone may have come at any later time
        untold = (write for write in self.writes if write.outcome is RequestOutcome.OK and write.offset < 0)
        return next((write for write in untold if write.begun > ended and write.value != value), None)


def _is_unsure(write: KeyedWrite) -> bool:
    return write.outcome is not _FAILED and write.offset < 0


def _of_writes(read: FullRead, name: str, key: _Key, offset: int, value: str | None) -> Iterator[tuple[str, str]]:
    if value is not None and not key.was_written(value):
        yield "value from nowhere", f"{name} has {value} at {offset}"
    last = key.last_for(read)
    if last is None or offset >= last.offset or key.replaced_meanwhile(read):
        return
    text = f"up to {read.upto}, {name} has {value} at {offset}; {last.value} was acknowledged at {last.offset}"
    if last.value is None:
        if value is not None and read.ended - read.begun < read.tombstones_stay:
            yield "deleted key is back", text
    elif value is not None:
        yield "older value", text
    elif not key.may_be_deleted_behind(last.offset):
        yield "lost value", text


def _of_untold(read: FullRead, name: str, key: _Key, value: str | None) -> Iterator[tuple[str, str]]:
    """In the end all that was acknowledged is there, also what no producer was told the offset of."""
    last = key.untold_behind(value) if read.final else None
    if last is None:
        return
    text = f"in the end {name} has {value}; {last.value} was acknowledged at {last.ended:.3f}, behind it"
    if last.value is not None:
        yield "lost value" if value is None else "older value", text
    elif read.ended - read.begun < read.tombstones_stay:
        yield "deleted key is back", text


def _of_reads(read: FullRead, name: str, key: _Key, offset: int, value: str | None) -> Iterator[tuple[str, str]]:
    """Whether the key has gone back behind what an earlier read found."""
    seen = key.last_seen_before(read)
    if seen is None or offset >= seen[0] or key.replaced_meanwhile(read):
        return
    last, had = seen
    text = f"up to {read.upto}, {name} has {value} at {offset}; an earlier read found {had} at {last}"
    if had is None:
        if value is not None and read.ended - read.begun < read.tombstones_stay:
            yield "deleted key is back", text
    elif value is not None:
        yield "older value", text
    elif not key.may_be_deleted_behind(last - 1):
        yield "lost value", text
