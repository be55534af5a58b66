"""Takes snapshots of a node's image on schedule, and deletes old snapshots and the log before them (KIP-630; Kafka's
``SnapshotGenerator``).

A snapshot is taken after ``metadata.log.max.record.bytes.between.snapshots`` of new records, or
``metadata.log.max.snapshot.interval.ms`` after the last one if there are new records. If there are several snapshots,
the oldest is deleted, and the log start moves to the next one, while snapshots and log together exceed
``metadata.max.retention.bytes``, or the oldest is older than ``metadata.max.retention.ms``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from milena.node.metadata.image import MetadataImage
from milena.node.metadata.snapshots import SnapshotStore, image_batches, image_id
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.storage.files.deletions import remove_paths
from milena.storage.log.unified_log import UnifiedLog

RETRY_MS: Final = 60_000
"""The retry interval after a failure to write a snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """The four settings that the module's docstring names, in that order; a negative number means no limit."""

    record_bytes: int = 20 << 20
    interval_ms: int = 3_600_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 604_800_000


class SnapshotSource(Protocol):
    """The image to take snapshots of: a loader's, or the controller's while its whole log is committed."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def bytes_replayed(self) -> int:
        """Bytes of the log since the last snapshot."""
        ...

    def snapshot_taken(self) -> None: ...


class SnapshotKeeper:
    """Takes and deletes the snapshots of one metadata log. Call ``maintain`` after records were replayed."""

    def __init__(
        self,
        runtime: Runtime,
        source: SnapshotSource,
        log: UnifiedLog,
        store: SnapshotStore,
        policy: SnapshotPolicy,
        *,
        node_id: int,
    ) -> None:
        self._runtime = runtime
        self._source = source
        self._log = log
        self._store = store
        self._policy = policy
        self._last_ms = runtime.clock.time_ms()
        self._failed = False
        """Whether the last snapshot could not be written: the next one is due after RETRY_MS."""
        self._logger = get_logger("metadata", node=node_id)

    async def maintain(self) -> None:
        """Take a snapshot if one is due, then delete old snapshots and segments. Must not be called concurrently.
        Raises KafkaError, except KAFKA_STORAGE_ERROR.

        If the disk rejects a write, for example because it is full, the snapshot is retried later: the log still has
        the records.
        """
        try:
            if self._due():
                await self.take()
                self.clean()
            paths = self._log.context.deletions.take_due(self._runtime.clock.time_ms())
            if paths:
                await self._runtime.disk.offload(remove_paths, self._runtime.disk, paths)
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self._failed = True
            self._logger.warning("metadata snapshot not written", reason=str(error), again_in_ms=RETRY_MS)

    def _due(self) -> bool:
        source, policy = self._source, self._policy
        if source.in_transaction:
            return False
        if self._failed:
            return self._runtime.clock.time_ms() - self._last_ms >= RETRY_MS
        if not source.bytes_replayed:
            return False
        if source.bytes_replayed >= policy.record_bytes:
            return True
        return policy.interval_ms > 0 and self._runtime.clock.time_ms() - self._last_ms >= policy.interval_ms

    async def take(self) -> None:
        """Write a snapshot of the current image. Raises OSError."""
        image = self._source.image
        snapshot = image_id(image)
        self._last_ms = self._runtime.clock.time_ms()
        self._source.snapshot_taken()
        if snapshot in self._store:
            self._failed = False
            return
        batches = image_batches(image, self._last_ms)
        await self._runtime.disk.offload(self._store.write, snapshot, batches)
        self._failed = False
        self._logger.info("snapshot taken", end_offset=snapshot.end_offset, epoch=snapshot.epoch)

    def clean(self) -> None:
        """Delete the oldest snapshots that the policy permits, and the log before the oldest remaining one."""
        while len(ids := self._store.ids) > 1 and self._exceeds_retention():
            keep = ids[1]
            if keep.end_offset > self._log.high_watermark:
                return
            self._store.delete_before(keep)
            self._log.increment_log_start(keep.end_offset)
            self._log.delete_old_segments(self._runtime.clock.time_ms())

    def _exceeds_retention(self) -> bool:
        policy, store = self._policy, self._store
        ids = store.ids
        size = self._log.size + sum(store.size(snapshot) for snapshot in ids)
        age = self._runtime.clock.time_ms() - store.modified_ms(ids[0])
        return (0 <= policy.retention_bytes < size) or (0 <= policy.retention_ms < age)
