"""Where the leader epochs of a log begin, when the batches with which they began are gone.

The epochs of a log can be rebuilt from its batches, and a follower that copies a cleaned log has no other source. So an
empty batch takes the place of the first one of an epoch. Kafka keeps none: an epoch then begins too late or is missing,
and a replica that asks where the one before ends keeps records that the leader never had.
"""

from __future__ import annotations

from milena.protocol.records.batch import BatchView


class EpochMarks:
    """Takes the batches of a log in order."""

    def __init__(self) -> None:
        self._epoch = -1

    def begins_with(self, batch: BatchView) -> bool:
        """Whether an epoch begins with ``batch``."""
        if batch.leader_epoch == self._epoch:
            return False
        self._epoch = batch.leader_epoch
        return self._epoch >= 0
