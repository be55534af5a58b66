"""When a node takes a snapshot of its image, and when old ones and the log before them go (KIP-630).

A snapshot is taken after ``metadata.log.max.record.bytes.between.snapshots`` of new records, or
``metadata.log.max.snapshot.interval.ms`` after the last one if there are any. The oldest snapshot goes, and the log's
start moves up to the next one, while there are several and they are together with the log larger than
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
from milena.storage.log.partition_log import PartitionLog

RETRY_MS: Final = 60_000
"""After a snapshot that could not be written."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """Bytes and milliseconds, in the order of the module's description; below zero is without limit."""

    record_bytes: int = 20 << 20
    interval_ms: int = 3_600_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 604_800_000


class SnapshotSource(Protocol):
    """What snapshots are taken of: a loader, or the controller's log when all of it is committed."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def bytes_replayed(self) -> int:
        """Of the log, since the last snapshot."""
        ...

    def snapshot_taken(self) -> None: ...


class SnapshotKeeper:
    """Takes and drops the snapshots of one metadata log. Call ``tend`` after records were replayed."""

    def __init__(
        self,
        runtime: Runtime,
        source: SnapshotSource,
        log: PartitionLog,
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
        """The last one could not be written: the next is not left until its time."""
        self._logger = get_logger("metadata", node=node_id)

    async def tend(self) -> None:
        """Take a snapshot if one is due, then drop what is too old. One call at a time. Raises KafkaError, but not
        KAFKA_STORAGE_ERROR.

        What the disk refuses, as a full one does, is tried again later: the log has all that a snapshot would have.
        """
        try:
            if self._due():
                await self.take()
                self.clean()
            forgotten = self._log.context.deletions.take_due(self._runtime.clock.time_ms())
            if forgotten:
                await self._runtime.disk.offload(remove_paths, self._runtime.disk, forgotten)
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self._failed = True
            self._logger.warning("no snapshot of the metadata", reason=str(error), again_in_ms=RETRY_MS)

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
        """Write a snapshot of the image as it is now. Raises OSError."""
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
        """Let the oldest snapshots go, and the log that lies before the one that is then the oldest."""
        while len(ids := self._store.ids) > 1 and self._too_much():
            keep = ids[1]
            if keep.end_offset > self._log.high_watermark:
                return
            self._store.delete_before(keep)
            self._log.increment_log_start(keep.end_offset)
            self._log.delete_old_segments(self._runtime.clock.time_ms())

    def _too_much(self) -> bool:
        policy, store = self._policy, self._store
        ids = store.ids
        size = self._log.size + sum(store.size(snapshot) for snapshot in ids)
        age = self._runtime.clock.time_ms() - store.modified_ms(ids[0])
        return (0 <= policy.retention_bytes < size) or (0 <= policy.retention_ms < age)
