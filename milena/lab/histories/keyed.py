"""Compacted partitions: what a reader from the start to the end must know of each key.

- **lost value**: the last acknowledged write of a key was a value, and the key has none.
- **older value**: a key has a value that an acknowledged write had replaced.
- **deleted key is back**: a key has a value that an acknowledged tombstone had removed.
- **value from nowhere**: a key has a value that nobody wrote there, or that was rejected for good.

What a read has found also binds those that begin after it has ended: they find the same of a key, or what came later;
of a deleted one nothing, or the tombstone.

Only writes below the offset up to which was read count: a leader that does not know that it was replaced shows less;
and what was read may lack a record that was cleaned away meanwhile, in favour of one behind that offset. A
write with unknown outcome may have taken effect at any later time. If the promises of a write are void, its key is not
judged: it may have replaced an older value, which was cleaned away, before it was lost itself. Neither is a deleted key
in a read that took longer than tombstones stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milena.lab.histories.group_events import RequestOutcome, TopicPartition


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


@dataclass(frozen=True, slots=True)
class FullRead:
    """Everything from the start of a partition to the offset ``upto``: each key's last record."""

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


@dataclass(frozen=True, slots=True)
class Ended:
    """The promises of writes before ``at`` have ended, except below the offset ``kept``."""

    at: float
    kept: int


class KeyedRules:
    """The events of one partition."""

    def __init__(self) -> None:
        self._writes: dict[str, list[KeyedWrite]] = {}
        self._reads: list[FullRead] = []
        self._voids: list[Ended] = []

    def wrote(self, write: KeyedWrite) -> None:
        self._writes.setdefault(write.key, []).append(write)

    def read(self, read: FullRead) -> None:
        self._reads.append(read)

    def voided(self, at: float, kept: int) -> None:
        self._voids.append(Ended(at, kept))

    def verdict(self) -> Iterator[tuple[str, str]]:
        """Each anomaly's name, and a sentence."""
        for read in self._reads:
            found = {key: (offset, value) for key, offset, value in read.found}
            for key in sorted({*found, *self._writes}):
                if not self._is_void(key):
                    said = list(self._of_key(read, key, *found.get(key, (-1, None))))
                    yield from said or self._after_reads(read, key, *found.get(key, (-1, None)))

    def _of_key(self, read: FullRead, key: str, offset: int, value: str | None) -> Iterator[tuple[str, str]]:
        writes = self._writes.get(key, [])
        if value is not None and not any(
            write.value == value and write.outcome is not RequestOutcome.FAILED for write in writes
        ):
            yield "value from nowhere", f"{key} has {value} at {offset}"
        sure = [
            write
            for write in writes
            if write.outcome is RequestOutcome.OK
            and write.offset >= 0
            and (read.final or (write.offset < read.upto and write.ended <= read.begun))
        ]
        if not sure:
            return
        last = max(sure, key=lambda write: write.offset)
        if offset >= last.offset or any(self._replaced_meanwhile(read, write) for write in writes):
            return
        text = f"up to {read.upto}, {key} has {value} at {offset}; {last.value} was acknowledged at {last.offset}"
        if last.value is None:
            if value is not None and read.ended - read.begun < read.tombstones_stay:
                yield "deleted key is back", text
        elif value is not None:
            yield "older value", text
        elif not any(
            write.value is None and write.outcome is not RequestOutcome.FAILED and self._may_follow(write, last)
            for write in writes
        ):
            yield "lost value", text

    def _after_reads(self, read: FullRead, key: str, offset: int, value: str | None) -> Iterator[tuple[str, str]]:
        """Whether the key has gone back behind what an earlier read found."""
        seen = [
            (at, had)
            for before in self._reads
            for name, at, had in before.found
            if name == key and before.ended <= read.begun and at < read.upto
        ]
        writes = self._writes.get(key, [])
        if not seen or any(self._replaced_meanwhile(read, write) for write in writes):
            return
        last, had = max(seen, key=lambda one: one[0])
        if offset >= last:
            return
        text = f"up to {read.upto}, {key} has {value} at {offset}; an earlier read found {had} at {last}"
        if had is None:
            if value is not None and read.ended - read.begun < read.tombstones_stay:
                yield "deleted key is back", text
        elif value is not None:
            yield "older value", text
        elif not any(
            write.value is None and write.outcome is not RequestOutcome.FAILED and not 0 <= write.offset < last
            for write in writes
        ):
            yield "lost value", text

    def _replaced_meanwhile(self, read: FullRead, write: KeyedWrite) -> bool:
        """Whether what was read before it may have been cleaned away in favour of ``write``, behind ``upto``."""
        unknown = write.outcome is RequestOutcome.UNKNOWN or (write.outcome is RequestOutcome.OK and write.offset < 0)
        return not read.final and write.begun < read.ended and (unknown or write.offset >= read.upto)

    def _may_follow(self, tombstone: KeyedWrite, last: KeyedWrite) -> bool:
        return tombstone.offset < 0 or tombstone.offset > last.offset

    def _is_void(self, key: str) -> bool:
        return any(
            write.begun <= void.at and not 0 <= write.offset < void.kept
            for write in self._writes.get(key, ())
            for void in self._voids
        )
