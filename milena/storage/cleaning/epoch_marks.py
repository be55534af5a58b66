"""Keeps the start offsets of leader epochs in a cleaned log.

Leader epochs are rebuilt from batches after a loss of the checkpoint, and by a follower that copies a cleaned log. So
cleaning replaces the first batch of an epoch by an empty batch instead of removing it. Kafka removes it: the epoch then
starts too late or is missing, and a replica that asks for the end of the previous epoch may keep records that the
leader never had.
"""

from __future__ import annotations

from milena.protocol.records.batch import BatchView


class EpochMarks:
    """Detects the first batch of each leader epoch. Takes the batches of a log in order."""

    def __init__(self) -> None:
        self._epoch = -1

    def begins_with(self, batch: BatchView) -> bool:
        """Whether ``batch`` is the first of its leader epoch."""
        if batch.leader_epoch == self._epoch:
            return False
        self._epoch = batch.leader_epoch
        return self._epoch >= 0
