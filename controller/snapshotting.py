"""When the controller takes snapshots, and what it deletes then (KIP-630).

A snapshot is due when enough bytes have been written since the last one, or enough time has passed. Its content is
taken at one moment; the file gets its name only when all that it stands for is committed. While snapshots and log are
larger, or a snapshot older, than the retention allows, the oldest snapshot goes with the log before the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.metadata_log import MetadataLog
from controller.state import ControllerState
from node.snapshots import SnapshotId, SnapshotStore, image_batches, image_id
from runtime.config.node_config import NodeConfig
from runtime.context import Runtime

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    """Limits in bytes and ms; an interval of 0 and a retention below 0 are none."""

    max_bytes_between: int
    max_interval_ms: int
    retention_bytes: int
    retention_ms: int

    @classmethod
    def of(cls, config: NodeConfig) -> SnapshotRules:
        return cls(
            max_bytes_between=config.get("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=config.get("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.get("metadata.max.retention.bytes"),
            retention_ms=config.get("metadata.max.retention.ms"),
        )

    def due(self, *, new_bytes: int, elapsed_ms: int) -> bool:
        if new_bytes <= 0:
            return False
        return new_bytes >= self.max_bytes_between or 0 < self.max_interval_ms <= elapsed_ms


class Snapshotter:
    """Looks after the snapshots of one metadata log. ``run`` is called from one place, now and then."""

    def __init__(
        self,
        runtime: Runtime,
        rules: SnapshotRules,
        log: MetadataLog,
        state: ControllerState,
        events: FilteringBoundLogger,
    ) -> None:
        self._runtime = runtime
        self._rules = rules
        self._log = log
        self._state = state
        self._events = events
        self._taken_ms = runtime.clock.time_ms()

    async def run(self) -> None:
        """Take a snapshot if one is due, then delete what retention lets go. Raises OSError."""
        now = self._runtime.clock.time_ms()
        due = self._rules.due(new_bytes=self._log.new_bytes, elapsed_ms=now - self._taken_ms)
        if due and not self._state.in_transaction:
            await self._take(now)
        self._clean(now)

    async def _take(self, now: int) -> None:
        image = self._state.image
        snapshot = image_id(image)
        batches = list(image_batches(image, now))
        new_bytes = self._log.new_bytes
        committed = self._log.write(())
        partial = self._log.snapshots.create(snapshot)
        try:
            for batch in batches:
                await self._runtime.disk.offload(partial.append, batch)
            await committed
            await self._runtime.disk.offload(partial.finish)
        except BaseException:
            partial.abandon()
            raise
        self._taken_ms = now
        self._log.new_bytes -= new_bytes
        self._events.info("snapshot taken", snapshot=snapshot.file_name, bytes=self._log.snapshots.size(snapshot))

    def _clean(self, now: int) -> None:
        snapshots, log = self._log.snapshots, self._log.log
        while (expired := self._first_to_go(snapshots, now)) is not None:
            following = snapshots.ids[1]
            log.increment_log_start(following.end_offset)
            log.delete_old_segments(now)
            snapshots.delete_before(following)
            self._events.info("metadata deleted", snapshot=expired.file_name, log_start=following.end_offset)

    def _first_to_go(self, snapshots: SnapshotStore, now: int) -> SnapshotId | None:
        """The oldest snapshot, where retention lets it go and a younger one stands for what it holds."""
        ids = snapshots.ids
        if len(ids) < 2:
            return None
        rules = self._rules
        total = self._log.log.size + sum(snapshots.size(snapshot) for snapshot in ids)
        too_large = 0 <= rules.retention_bytes < total
        too_old = 0 <= rules.retention_ms < now - snapshots.modified_ms(ids[0])
        return ids[0] if too_large or too_old else None
