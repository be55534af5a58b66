"""Future logs: copies of logs that move to another log directory of the same broker (KIP-113).

A copy is in a folder ``topic-partition.<id>-future`` until it is complete. Then its folder gets the name of the log,
and the folder of the old log is renamed for deletion. A crash between these two steps leaves two folders of the same
name with the same records, as far as they were synced. Then the longer log is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.storage.files.names import FolderKind, marked_folder, partition_folder
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir

if TYPE_CHECKING:
    from milena.storage.manager.log_manager import LogManager


class FutureLogs:
    """Part of a LogManager. Methods raise KafkaError KAFKA_STORAGE_ERROR if a disk fails; its directory is then
    offline."""

    def __init__(self, manager: LogManager, runtime: Runtime) -> None:
        self._manager = manager
        self._runtime = runtime
        self._log = get_logger("storage", node=manager.node_id)

    def find(self, topic: str, partition: int) -> UnifiedLog | None:
        """Return the future log of a partition, None if there is none."""
        for directory in self._manager.dirs:
            if (future := directory.futures.get((topic, partition))) is not None:
                return future
        return None

    def create(self, current: UnifiedLog, target: LogDir) -> UnifiedLog:
        """Create an empty future log in ``target``."""
        assert current.topic_id is not None
        unique = self._runtime.random.uuid().hex
        folder = marked_folder(current.topic, current.partition, unique, FolderKind.FUTURE)
        try:
            return target.create(current.topic, current.partition, current.topic_id, current.config, future=folder)
        except OSError as error:
            self._manager.take_offline(target, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path}: {error}") from error

    def drop(self, future: UnifiedLog) -> None:
        """Delete a future log that is no longer needed."""
        self._manager.delete(future)

    def promote(self, current: UnifiedLog, future: UnifiedLog) -> None:
        """Replace ``current`` by ``future``, which has all its records. State that is not in the records is copied:
        leader epochs without records, the bounds, the configuration, verifications of transactions."""
        if future.log_end_offset != current.log_end_offset:
            raise BrokenInvariant(f"{future.folder} ends at {future.log_end_offset}, {current} is to be replaced by it")
        target = self._manager.dir_of(future)
        future.update_config(current.config)
        future.take_epochs(current)
        future.set_high_watermark(current.high_watermark)
        future.increment_log_start(current.log_start_offset)
        future.cleaned_to = current.cleaned_to
        if current.remote_enabled:
            future.take_bounds(current)
        if future.recovery_point < current.recovery_point:
            future.flush()  # before the old folder is deleted, all that was synced there must be synced here
        key = (future.topic, future.partition)
        folder = target.file(partition_folder(*key))
        try:
            self._runtime.disk.rename(future.folder, folder)
        except OSError as error:
            self._manager.take_offline(target, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{future.folder}: {error}") from error
        future.moved_to(folder)
        future.producers.continue_verifications(current.producers)
        del target.futures[key]
        target.logs[key] = future
        self._manager.delete(current)

    def settle(self) -> None:
        """Resolve the results of crashes, after loading. Of two logs of the same name the longer one is kept. A future
        log without a current log is removed, unless that may be in an offline directory."""
        logs: dict[tuple[str, int], UnifiedLog] = {}
        for log in self._manager:
            other = logs.setdefault((log.topic, log.partition), log)
            if other is not log:
                shorter = min(other, log, key=lambda one: one.log_end_offset)
                logs[log.topic, log.partition] = log if shorter is other else other
                self._log.warning("log found in two directories", kept=logs[log.topic, log.partition].folder)
                self._manager.set_aside(shorter)
        if self._manager.offline_dirs:
            return
        for directory in self._manager.online_dirs:
            for key, future in list(directory.futures.items()):
                if key not in logs:
                    self._manager.set_aside(future)
