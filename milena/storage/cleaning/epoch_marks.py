"""Which leader epochs would vanish from a log that is cleaned.

The epochs of a log can be rebuilt from its batches. If a cleaning removes all batches of an epoch, an empty one takes
the place of the first. Kafka keeps none, and a rebuilt log then misses the epoch.
"""

from __future__ import annotations

from milena.protocol.records.batch import BatchView
from milena.storage.cleaning.rebuilt_batch import epoch_mark


class EpochMarks:
    """Takes the batches of a log in order."""

    def __init__(self, following: int) -> None:
        """``following``: the leader epoch of the first batch behind those that are cleaned; -1 for none."""
        self._following = following
        self._epoch = -1
        self._mark: bytearray | None = None

    def before(self, batch: BatchView, *, stays: bool) -> bytearray | None:
        """The mark that is written before ``batch``, of which something ``stays`` or nothing; None for none."""
        mark = None
        if batch.leader_epoch != self._epoch:
            mark = self.at_end_of_segment()
            self._epoch = batch.leader_epoch
            self._mark = epoch_mark(batch) if self._epoch >= 0 and self._epoch != self._following else None
        if stays:
            self._mark = None
        return mark

    def at_end_of_segment(self) -> bytearray | None:
        """The mark that is written behind the last batch of a new segment: whether more of the epoch follows in the
        next is not known."""
        mark, self._mark = self._mark, None
        return mark
