"""The role of one replica in the tier's tasks, from the moment it becomes leader or follower until that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from milena.protocol.types import LeaderEpoch
from milena.runtime.clock import Clock
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lost_values import LostValues, lost_values
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.shared.copy_attempts import CopyAttempts
from milena.tiered.shared.tier import HostedReplica
from milena.tiered.store.remote_storage import RemoteStorageError
from milena.tiered.work.retention import Validity


class LostValuesSeen:
    """The result of a leader's last search for records that were removed because of later values which an unclean
    election has truncated (``tiered.segments.lost_values``). It is computed again only if the metadata or the log's
    epochs have changed. The loss cannot be repaired; it is logged and counted."""

    __slots__ = ("_basis", "_found")

    def __init__(self) -> None:
        self._basis: tuple[object, ...] = ()
        self._found: Sequence[LostValues] = ()

    def look(self, cache: RemoteLogMetadataCache, log: UnifiedLog) -> tuple[int, Sequence[LostValues]]:
        """Return the number of ranges, and those that are new since the last call."""
        if not cache.cleanings:
            self._found = ()
            return 0, ()
        epochs = tuple(log.epochs.entries)
        basis = (cache, cache.changes, epochs)
        if basis == self._basis:
            return len(self._found), ()
        self._basis, before = basis, frozenset(self._found)
        self._found = lost_values(
            cache.segments(), cache.cleanings.count, leader_epochs=epochs, log_end=log.log_end_offset
        )
        return len(self._found), [one for one in self._found if one not in before]


class ReplicaRole:
    """A leader or follower of a tiered partition. Its tasks check after every await whether the role still holds."""

    def __init__(self, replica: HostedReplica, clock: Clock) -> None:
        self.replica = replica
        self.partition = TopicIdPartition(replica.topic_id, replica.topic, replica.index)
        self.leads = replica.is_leader
        self.ended = False
        self.copying: set[UUID] = set()
        """Segments that are being copied to the tier."""
        self.relisting = asyncio.Lock()
        """Held while one task searches the tier for segments without metadata."""
        self.fencing = asyncio.Lock()
        """Held while one task publishes the fence, or withdraws deletions."""
        self.attempts = CopyAttempts(clock, RemoteStorageError)
        self.may_copy = True
        """False after the store has returned more custom metadata than allowed: this role copies no further segment."""
        self.superseded_since: dict[UUID, float] = {}
        """Superseded segments, each with the time (monotonic clock) at which this leader first noticed that it was
        superseded."""
        self.uncleanable: str | None = None
        """The reason why the partition's segments in the tier cannot be cleaned; None if they can. This role does not
        clean them again."""
        self.needs_cleaning_urgently = False
        """Whether the next pass over its segments in the tier gets the broker's own priority."""
        self.started_log: UnifiedLog | None = None
        """The log whose start was looked up in the tier."""
        self.swept_at: float | None = None
        """When remains of failed copies were last searched, on the monotonic clock."""
        self.validity = Validity()
        self.lost_values = LostValuesSeen()
        self.figures = Figures()
        self._term = replica.term
        self._leader_epoch = replica.leader_epoch
        self._clock = clock
        self._waking: dict[asyncio.Future[None], None] = {}
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def log(self) -> UnifiedLog | None:
        """The replica's log while the role holds; None afterwards."""
        log = self.replica.log
        if self.ended or log is None or not log.remote_enabled or self.replica.is_leader is not self.leads:
            return None
        return log if self.replica.term == self._term else None

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch of this leader's events. After the role has ended, it is the last epoch in which the role
        held, and not that of the next leader."""
        if self.log is not None:
            self._leader_epoch = self.replica.leader_epoch
        return self._leader_epoch

    def holds(self, log: UnifiedLog) -> bool:
        """Whether the role still holds, with this log."""
        return self.log is log

    def end(self) -> None:
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """End all running pauses."""
        for waiting in self._waking:
            _wake(waiting)

    async def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until ``wake`` is called."""
        if self.ended:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, lambda: _wake(woken))
        self._waking[woken] = None
        try:
            await woken
        finally:
            del self._waking[woken]
            timer.cancel()

    def task_began(self) -> None:
        self._active += 1
        self._idle.clear()

    def task_ended(self) -> None:
        self._active -= 1
        if not self._active:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no task works for this role any more."""
        await self._idle.wait()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Figures:
    """Results of the last rounds, for the gauges. Sizes are bytes."""

    __slots__ = (
        "computation_ms",
        "delete_bytes",
        "delete_segments",
        "dirty_ratio",
        "lost_values",
        "remote_segments",
        "remote_size",
        "retained_size",
    )

    def __init__(self) -> None:
        self.dirty_ratio = 0.0
        """The share of the compacted partition's bytes in the tier that was dirty in the last round."""
        self.delete_bytes = 0
        self.delete_segments = 0
        self.remote_segments = 0
        self.remote_size = 0
        self.retained_size = 0
        self.computation_ms = 0.0
        self.lost_values = 0
        """Ranges of offsets whose records were removed because of later values that the log has lost."""
