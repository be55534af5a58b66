"""The committed batches of a partition: they are never lost and never changed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from milena.lab.invariants.broken import demand


class CommittedBatch(NamedTuple):
    """A batch, by its distinguishing fields. ``crc`` covers its records, not its offset and epoch."""

    base: int
    last: int
    epoch: int
    crc: int
    size: int = 0
    """Bytes."""

    def may_become(self, other: CommittedBatch) -> bool:
        """Whether a cleaning may leave that of it: without some records, and shorter if none is left."""
        return other.epoch == self.epoch and other.last <= self.last


class Ledger:
    """Grows with the high watermarks of all replicas; every replica must have the same batches below its own.

    ``floor``: replicas in an earlier leader epoch are ignored, since their promises are void.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.floor = -1
        self._batches: list[CommittedBatch] = []
        self._bases: list[int] = []
        self._committed_in: list[int] = []
        """For each batch, the leader epoch of the replica that first had it below its high watermark; never falling."""

    @property
    def end(self) -> int:
        """The offset after the last committed one."""
        return self._batches[-1].last + 1 if self._batches else 0

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last committed batch, -1 if there is none."""
        return self._batches[-1].epoch if self._batches else -1

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the committed record at ``offset``, -1 if it is not known."""
        index = bisect_left(self._bases, offset + 1) - 1
        return self._batches[index].epoch if index >= 0 and offset <= self._batches[index].last else -1

    def at(self, base: int) -> CommittedBatch | None:
        """The committed batch that begins at ``base``; None if it is not known."""
        index = bisect_left(self._bases, base)
        return self._batches[index] if index < len(self._bases) and self._bases[index] == base else None

    def bytes_from(self, offset: int) -> int:
        """Bytes of the committed batches from ``offset`` on."""
        return sum(batch.size for batch in self._batches[bisect_left(self._bases, offset) :])

    def batches(self) -> Iterator[CommittedBatch]:
        """All known committed batches, in order."""
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
            same = known == batch or (compacted and known.may_become(batch))
            demand(same, where, f"{batch} is committed where {known} was")

    def _fill(self, where: object, batch: CommittedBatch) -> None:
        """Add an older batch that the first reporters did not have on their disks any more. Raises InvariantBroken."""
        index = bisect_left(self._bases, batch.base)
        before, after = self._batches[index - 1] if index else None, self._batches[index : index + 1]
        fits = (before is None or before.last < batch.base) and all(batch.last < later.base for later in after)
        demand(fits, where, f"{batch} is committed, and nothing begins there")
        if before is not None:
            self._batches.insert(index, batch)
            self._bases.insert(index, batch.base)
            self._committed_in.insert(index, self._committed_in[index - 1])

    def last_known_in(self, leader_epoch: int) -> CommittedBatch | None:
        """The last batch that was committed in that leader epoch or an earlier one."""
        index = bisect_right(self._committed_in, leader_epoch)
        return self._batches[index - 1] if index else None

    def elect(self, where: object, *, last: CommittedBatch, log_end: int, last_epoch: int) -> None:
        """A replica becomes leader. ``last`` is the last batch that it must have: a broker may hear late that it was
        elected, when a later leader has committed more. ``last_epoch``: of its record at ``last.last``. Raises
        InvariantBroken."""
        demand(log_end > last.last, where, f"it leads with a log up to {log_end}; {last.last + 1} was committed")
        demand(
            last.epoch == last_epoch,
            where,
            f"it leads with leader epoch {last_epoch} at {last.last}, not {last.epoch}",
        )

    def void(self, floor: int, kept: int = 0) -> None:
        """Batches committed before leader epoch ``floor``, from the offset ``kept`` on, are not committed any more."""
        self.floor = max(self.floor, floor)
        index = bisect_left(self._bases, kept)
        del self._batches[index:], self._bases[index:], self._committed_in[index:]
