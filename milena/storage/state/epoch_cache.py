"""The start offset of each leader epoch, like Kafka's ``LeaderEpochFileCache`` (KIP-101, KIP-279;
docs/kafka-semantics.md: Leader epoch cache, End offset for a leader epoch).

A list of (epoch, start offset), strictly ascending in both. Followers compare the end offset of an epoch with that of
the leader, to find where the two logs diverge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from milena.protocol.types import LeaderEpoch, Offset


class EpochEntry(NamedTuple):
    """The records from ``start`` on were written in ``epoch``, up to the next entry."""

    epoch: LeaderEpoch
    start: Offset


class EpochEnd(NamedTuple):
    """The offset after the last record of an epoch."""

    epoch: LeaderEpoch
    offset: Offset


_EPOCH = itemgetter(0)
_START = itemgetter(1)


class LeaderEpochCache:
    """The leader epochs of one log. It does no I/O: the owner writes the checkpoint file if ``dirty`` is set."""

    __slots__ = ("_entries", "dirty", "latest", "saved")

    latest: LeaderEpoch | None
    """The latest epoch. A field of its own for fast access during an append."""
    saved: Sequence[EpochEntry] | None
    """The entries of the checkpoint, if some of them were removed when the log was loaded."""

    def __init__(self, entries: Iterable[tuple[LeaderEpoch, Offset]] = ()) -> None:
        self._entries: list[EpochEntry] = []
        self.latest = None
        self.saved = None
        self.dirty = False
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    @property
    def entries(self) -> Sequence[EpochEntry]:
        """All entries, oldest first. Read only."""
        return self._entries

    @property
    def earliest(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Record that ``epoch`` begins at ``start``. Entries with the same or a later epoch, or the same or a later
        start, are removed.

        If ``epoch`` is already the latest and ``start`` is not smaller, nothing changes. Raises ValueError below zero.
        """
        if epoch < 0 or start < 0:
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start}")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start >= entries[-1].start:
            return
        while entries and (entries[-1].epoch >= epoch or entries[-1].start >= start):
            entries.pop()
        entries.append(EpochEntry(epoch, start))
        self._changed()

    def truncate_from_end(self, offset: Offset) -> None:
        """Remove the epochs that begin at ``offset`` or later."""
        entries = self._entries
        if offset < 0 or not entries or entries[-1].start < offset:
            return
        del entries[bisect_left(entries, offset, key=_START) :]
        self._changed()

    def truncate_from_start(self, offset: Offset) -> None:
        """Remove the epochs that ended before ``offset``; the epoch of ``offset`` then begins there."""
        entries = self._entries
        past = bisect_right(entries, offset, key=_START)
        if not past or (past == 1 and entries[0].start == offset):
            return
        entries[:past] = [EpochEntry(entries[past - 1].epoch, offset)]
        self._changed()

    def replace(self, entries: Iterable[tuple[LeaderEpoch, Offset]]) -> None:
        """Replace all entries."""
        replacement = LeaderEpochCache(entries)._entries
        if replacement != self._entries:
            self._entries[:] = replacement
            self._changed()

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self._changed()

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch of the record at ``offset``: the latest epoch after the log end, None before the first."""
        past = bisect_right(self._entries, offset, key=_START)
        return self._entries[past - 1].epoch if past else None

    def end_offset_for(self, requested: LeaderEpoch, *, log_end: Offset) -> EpochEnd | None:
        """Return the end offset of ``requested`` or, if it is unknown, of the next smaller epoch.

        Returns None for an empty cache, an epoch later than all, or -1 (undefined). For an epoch earlier than all,
        returns that epoch with the start offset of the first one.
        """
        entries = self._entries
        if requested == -1:
            return None
        if self.latest == requested:
            return EpochEnd(requested, log_end)
        higher = bisect_right(entries, requested, key=_EPOCH)
        if higher == len(entries):
            return None
        epoch = entries[higher - 1].epoch if higher else requested
        return EpochEnd(epoch, entries[higher].start)

    def next_entry(self, epoch: LeaderEpoch) -> EpochEntry | None:
        """Return the first entry after ``epoch``, which need not be in the cache."""
        index = bisect_right(self._entries, epoch, key=_EPOCH)
        return self._entries[index] if index < len(self._entries) else None

    def entries_in_range(self, start: Offset, end: Offset) -> list[EpochEntry]:
        """Return the epochs of the records in ``[start, end)``. The first entry is made to begin at ``start``, unless
        that is negative."""
        part = LeaderEpochCache(self._entries)
        if start >= 0:
            part.truncate_from_start(start)
        part.truncate_from_end(end)
        return part._entries

    def _changed(self) -> None:
        self.latest = self._entries[-1].epoch if self._entries else None
        self.dirty = True
