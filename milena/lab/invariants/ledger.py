"""The committed batches of a partition, which must not be lost or changed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from milena.lab.invariants.broken import InvariantBroken, demand


class CommittedBatch(NamedTuple):
    """The identifying fields of a batch. ``crc`` covers the records, not offset and epoch."""

    base: int
    last: int
    epoch: int
    crc: int
    size: int = 0
    """Bytes."""

    def may_become(self, other: CommittedBatch) -> bool:
        """Whether compaction may turn this batch into ``other``, with fewer records."""
        return other.epoch == self.epoch and other.last <= self.last


class Ledger:
    """The committed batches, collected from all replicas below their high watermarks. Every replica must have the same
    batches below its high watermark.

    ``floor``: replicas in an earlier leader epoch are ignored, since their promises are void.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.floor = -1
        self._batches: list[CommittedBatch] = []
        self._bases: list[int] = []
        self._committed_in: list[int] = []
        """For each batch, the leader epoch of the first replica that had it below its high watermark; not
        decreasing."""

    @property
    def end(self) -> int:
        """The offset after the last committed record."""
        return self._batches[-1].last + 1 if self._batches else 0

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last committed batch, -1 if there is none."""
        return self._batches[-1].epoch if self._batches else -1

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the committed record at ``offset``; -1 if it is not known."""
        index = bisect_left(self._bases, offset + 1) - 1
        return self._batches[index].epoch if index >= 0 and offset <= self._batches[index].last else -1

    def at(self, base: int) -> CommittedBatch | None:
        """Return the committed batch with this base offset; None if it is not known."""
        index = bisect_left(self._bases, base)
        return self._batches[index] if index < len(self._bases) and self._bases[index] == base else None

    def bytes_from(self, offset: int) -> int:
        """Return the bytes of the committed batches from ``offset`` on."""
        return sum(batch.size for batch in self._batches[bisect_left(self._bases, offset) :])

    def batches(self) -> Iterator[CommittedBatch]:
        """Return all known committed batches, in order."""
        return iter(self._batches)

    def take(
        self, where: object, batches: Iterable[CommittedBatch], leader_epoch: int, *, compacted: bool = False
    ) -> None:
        """Add the batches below the high watermark of a replica in ``leader_epoch``. Raises InvariantBroken if they
        contradict known ones. ``compacted``: a batch may have lost records, and be shorter if it has none."""
        for batch in batches:
            if batch.base >= self.end:
                self._batches.append(batch)
                self._bases.append(batch.base)
                self._committed_in.append(max([leader_epoch, *self._committed_in[-1:]]))
                continue
            known = self.at(batch.base)
            if known is None:
                self._fill(where, batch)
                continue
            if known != batch and not (compacted and known.may_become(batch)):
                raise InvariantBroken(f"{where}: {batch} is committed where {known} was")

    def _fill(self, where: object, batch: CommittedBatch) -> None:
        """Add an older batch that the first replicas had deleted from their disks already. Raises InvariantBroken."""
        index = bisect_left(self._bases, batch.base)
        before, after = self._batches[index - 1] if index else None, self._batches[index : index + 1]
        fits = (before is None or before.last < batch.base) and all(batch.last < later.base for later in after)
        demand(fits, where, f"{batch} is committed, but no known batch begins there")
        if before is not None:
            self._batches.insert(index, batch)
            self._bases.insert(index, batch.base)
            self._committed_in.insert(index, self._committed_in[index - 1])

    def last_known_in(self, leader_epoch: int) -> CommittedBatch | None:
        """Return the last batch that was committed in ``leader_epoch`` or an earlier one."""
        index = bisect_right(self._committed_in, leader_epoch)
        return self._batches[index - 1] if index else None

    def elect(self, where: object, *, last: CommittedBatch, log_end: int, last_epoch: int) -> None:
        """Check a replica that becomes leader. ``last`` is the last batch that it must have, which may not be the last
        committed one: the broker may learn late that it was elected, when a later leader has committed more.
        ``last_epoch`` is the epoch of its record at ``last.last``. Raises InvariantBroken."""
        demand(log_end > last.last, where, f"it leads with a log up to {log_end}; {last.last + 1} was committed")
        demand(
            last.epoch == last_epoch,
            where,
            f"it leads with leader epoch {last_epoch} at {last.last}, not {last.epoch}",
        )

    def void(self, floor: int, kept: int = 0) -> None:
        """Remove the batches from the offset ``kept`` on: their promises are void. From now on ignore replicas in
        leader epochs below ``floor``."""
        self.floor = max(self.floor, floor)
        index = bisect_left(self._bases, kept)
        del self._batches[index:], self._bases[index:], self._committed_in[index:]
