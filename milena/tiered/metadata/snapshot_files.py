"""The snapshot files of metadata caches: each is in the folder of its partition's log, and is deleted with it."""

from __future__ import annotations

from collections.abc import Callable

from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.tiered.metadata.snapshot import (
    FILE_NAME,
    CorruptRemoteLogSnapshot,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from milena.tiered.segments.segment_metadata import TopicIdPartition


class SnapshotFiles:
    """``folder`` returns the folder of a partition's log; None if it has none."""

    def __init__(self, runtime: Runtime, folder: Callable[[TopicIdPartition], str | None]) -> None:
        self._disk = runtime.disk
        self._folder = folder
        self._log = get_logger("remote log metadata")

    async def load(self, partition: TopicIdPartition) -> Snapshot | None:
        """Return a partition's snapshot; None if it is missing or damaged."""
        folder = self._folder(partition)
        if folder is None:
            return None
        path = f"{folder}/{FILE_NAME}"
        try:
            return await self._disk.offload(self._read, path, partition)
        except FileNotFoundError:
            return None
        except (OSError, CorruptRemoteLogSnapshot) as error:
            self._log.warning("snapshot of remote log metadata cannot be read", path=path, error=str(error))
            return None

    async def save(self, partition: TopicIdPartition, snapshot: Snapshot) -> None:
        """Write the snapshot; write errors are logged and ignored, since the topic has the same records."""
        folder = self._folder(partition)
        if folder is None:
            return
        path = f"{folder}/{FILE_NAME}"
        try:
            await self._disk.offload(self._write, path, partition, snapshot)
        except OSError as error:
            self._log.info("snapshot of remote log metadata not written", path=path, error=str(error))

    def _read(self, path: str, partition: TopicIdPartition) -> Snapshot:
        return decode_snapshot(self._disk.read(path), partition)

    def _write(self, path: str, partition: TopicIdPartition, snapshot: Snapshot) -> None:
        self._disk.write_atomic(path, encode_snapshot(partition, snapshot), sync=False)
