"""All logs of a broker, in its log directories, like Kafka's ``LogManager`` (KIP-112, KIP-858).

Call ``open``; when the cluster id is known, ``format``; then ``load``; then ``start`` for the periodic work
(``storage.manager.log_maintenance``). ``stop`` shuts down cleanly. If a disk fails, its directory goes offline with its
logs, and the other directories continue. If all directories are offline, the node ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import BrokerEpoch, NodeId
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.storage.cleaning.settings import CleanerSettings
from milena.storage.files.handle_cache import HandleCache
from milena.storage.files.names import FolderKind, marked_folder
from milena.storage.log.context import DEFAULT_OPEN_FILES, DEFAULT_OPEN_MAPS, EventLog, Log, LogContext, NamedLog
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.future_logs import FutureLogs
from milena.storage.manager.log_cleaner import LogCleaner
from milena.storage.manager.log_dir import DirectoryError, LogDir
from milena.storage.manager.log_maintenance import LogMaintenance, MaintenanceTimes

SLICE: Final = 50
"""The number of logs that are closed before the loop runs other work."""


@dataclass(frozen=True, slots=True)
class ProducerRules:
    """The configuration of producer states, like Kafka's ``ProducerStateManagerConfig``."""

    expiration_ms: int
    verifies_transactions: bool

    @classmethod
    def of(cls, config: NodeConfig) -> ProducerRules:
        return cls(
            config.get_int("producer.id.expiration.ms"), config.get_bool("transaction.partition.verification.enable")
        )


class LogManager:
    """Owns the log directories. All methods run on the loop."""

    def __init__(
        self,
        runtime: Runtime,
        config: NodeConfig,
        failed: Callable[[LogDir, list[UnifiedLog]], None],
        *,
        events: EventLog | None = None,
    ) -> None:
        """``failed`` is called for each directory that goes offline, with its logs."""
        self.node_id = NodeId(config.node_id)
        self._runtime = runtime
        self._times = MaintenanceTimes.of(config)
        self._producer_rules = ProducerRules.of(config)
        self._events: EventLog = events or get_logger("storage", node=config.node_id)
        self._failed = failed
        self._metadata_dir = config.metadata_log_dir
        self._tiered = config.get_bool("remote.log.storage.system.enable")
        self.cleaner = LogCleaner(self, runtime, CleanerSettings.of(config), self._events)
        self._maintenance = LogMaintenance(self, runtime, self._times)
        self.futures = FutureLogs(self, runtime)
        self.found_logs = False
        """Whether any log was loaded. If not, the broker may have only new disks."""
        self.dirs = [self._directory(path, len(config.log_dirs)) for path in config.log_dirs]

    def _directory(self, path: str, count: int) -> LogDir:
        context = LogContext(
            self._runtime.disk,
            self._runtime.clock,
            self._events,
            HandleCache(max(DEFAULT_OPEN_FILES // count, 8)),
            HandleCache(max(DEFAULT_OPEN_MAPS // count, 8)),
            producer_expiration_ms=self._producer_rules.expiration_ms,
            verifies_transactions=self._producer_rules.verifies_transactions,
            tiered=self._tiered,
            jitter=self._runtime.random.below,
            rolled=self._maintenance.flush_soon,
            truncated=self._maintenance.checkpoint_soon,
            sync_soon=self._maintenance.sync_soon,
        )
        directory = LogDir(path, context)
        context.failed = lambda error: self.take_offline(directory, error)
        return directory

    def set_listeners(self, *, start_moved: Callable[[Log], None], synced: Callable[[Log], None]) -> None:
        """Set the listeners for changes of logs (see ``LogContext``)."""
        for directory in self.dirs:
            directory.context.start_moved, directory.context.synced = start_moved, synced

    def set_ended_listener(self, ended: Callable[[NamedLog, KafkaError], None]) -> None:
        """Set the listener for logs that go offline while their directory is online."""
        for directory in self.dirs:
            directory.context.ended = ended

    # Starting and stopping

    def open(self) -> None:
        """Lock the directories and read which cluster and node they belong to. Blocks briefly.

        Raises DirectoryError if a directory must not be used, or none can be used. A disk that fails goes offline.
        """
        failures = []
        try:
            for directory in self.dirs:
                try:
                    directory.open()
                except OSError as error:
                    self._note_offline(directory, error)
                    failures.append(f"{directory.path}: {error.strerror or error}")
            self._check_opened(failures)
        except DirectoryError:
            self.unlock()
            raise

    def _check_opened(self, failures: Sequence[str]) -> None:
        if not self.online_dirs:
            raise DirectoryError(f"none of the log directories can be used: {'; '.join(failures)}")
        clusters = {directory.meta.cluster_id for directory in self.online_dirs if directory.meta is not None}
        if len(clusters) > 1:
            raise DirectoryError(f"log directories of different clusters: {', '.join(sorted(clusters))}")

    def unlock(self) -> None:
        """Release the locks of the directories, without closing anything."""
        for directory in self.dirs:
            directory.unlock()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id in the directories; None if none is formatted."""
        return next((d.meta.cluster_id for d in self.online_dirs if d.meta is not None), None)

    @property
    def previous_broker_epoch(self) -> BrokerEpoch | None:
        """The broker epoch under which all directories were shut down cleanly, None if one was not (KIP-966)."""
        epochs = {directory.previous_broker_epoch for directory in self.dirs}
        return epochs.pop() if len(epochs) == 1 else None

    def format(self, cluster_id: str) -> None:
        """Assign the directories to this node. Raises DirectoryError if one belongs to another."""
        for directory in self.online_dirs:
            try:
                directory.format(cluster_id, self.node_id, self._runtime.random.uuid)
            except OSError as error:
                self.take_offline(directory, error)
            except DirectoryError:
                self.unlock()
                raise

    async def load(self, config_of: Callable[[str], TopicConfig]) -> None:
        """Open the logs of all directories, in a worker. ``config_of``: the effective configuration of a topic."""
        for directory in self.online_dirs:
            try:
                await self._runtime.disk.offload(directory.load, config_of, self._times.delete_delay_ms)
                directory.loaded = True
            except OSError as error:
                self.take_offline(directory, error)
        self.futures.settle()
        count = sum(len(directory.logs) for directory in self.dirs)
        self.found_logs = count > 0
        recovered = [one.path for one in self.online_dirs if not one.was_clean and (one.logs or one.futures)]
        self._events.info("logs loaded", count=count, unclean=recovered)

    def start(self, tasks: Tasks) -> None:
        """Begin retention, flushing, checkpoints, delayed deletion and compaction."""
        self._maintenance.start(tasks)
        self.cleaner.start(tasks)

    def reconfigure(self, config: NodeConfig) -> None:
        """Apply the dynamic configuration of the log cleaner and of producer states."""
        self.cleaner.reconfigure(CleanerSettings.of(config))
        self._producer_rules = rules = ProducerRules.of(config)
        for directory in self.dirs:
            directory.context.producer_expiration_ms = rules.expiration_ms
            directory.context.verifies_transactions = rules.verifies_transactions

    async def flush(self, *logs: UnifiedLog) -> None:
        """Sync logs, and write the offset checkpoints of all directories. If a disk fails, its directory goes
        offline."""
        await self._maintenance.flush(logs)
        await self._maintenance.write_checkpoints()

    async def stop(self, broker_epoch: BrokerEpoch | None = None) -> None:
        """Close and sync all logs and mark the directories as cleanly shut down. The tasks must have been stopped.

        A directory whose logs are not all loaded is not marked: its checkpoints would lack logs.
        """
        for directory in self.online_dirs:
            try:
                await self._close(directory)
                if directory.online and directory.loaded:
                    await self._runtime.disk.offload(directory.write, directory.checkpoints())
                    await self._runtime.disk.offload(directory.mark_clean, broker_epoch)
            except (OSError, KafkaError) as error:
                self._events.error("log directory not closed cleanly", path=directory.path, reason=str(error))
            directory.unlock()

    def abandon(self) -> None:
        """Close all files without writing anything, and unlock the directories. The tasks must have been stopped."""
        for directory in self.online_dirs:
            directory.go_offline()

    async def _close(self, directory: LogDir) -> None:
        logs = [*directory.logs.values(), *directory.futures.values()]
        for first in range(0, len(logs), SLICE):
            some = logs[first : first + SLICE]
            for log in some:
                log.close()
            await self._maintenance.flush(some)
            await self._runtime.clock.sleep(0)

    # Directories

    @property
    def online_dirs(self) -> list[LogDir]:
        return [directory for directory in self.dirs if directory.online]

    @property
    def offline_dirs(self) -> list[LogDir]:
        return [directory for directory in self.dirs if not directory.online]

    def dir_of(self, log: UnifiedLog) -> LogDir:
        return next(directory for directory in self.dirs if directory.context is log.context)

    def directory_id(self, log: UnifiedLog) -> UUID:
        """The id of the directory that contains ``log``."""
        directory_id = self.dir_of(log).directory_id
        assert directory_id is not None, "a directory with logs is formatted"
        return directory_id

    def has_directory(self, directory_id: UUID) -> bool:
        """Whether this is the id of one of the directories, online or not."""
        return any(directory.directory_id == directory_id for directory in self.dirs)

    def take_offline(self, directory: LogDir, error: OSError) -> None:
        """Take ``directory`` offline after an error of its disk, and notify the owner. Ends the node if it is the last
        directory, or the one with the metadata log."""
        if directory.online:
            lost = self._note_offline(directory, error)
            self._failed(directory, lost)
            if error.filename is None:  # of a file that was open
                error = OSError(error.errno, error.strerror or str(error), directory.path)
            if not self.online_dirs:
                self._runtime.fatal("all log directories have failed", error)
            elif directory.path == self._metadata_dir:
                self._runtime.fatal("the log directory with the metadata log has failed", error)

    def _note_offline(self, directory: LogDir, error: OSError) -> list[UnifiedLog]:
        lost = directory.go_offline()
        self._events.error("log directory offline", path=directory.path, reason=str(error), logs=len(lost))
        return lost

    # Logs

    def is_moving(self, log: UnifiedLog) -> bool:
        """Whether the log is being copied to another directory. It must not be cleaned then: the copy could get a
        record without the tombstone that deletes it."""
        return self.futures.find(log.topic, log.partition) is not None

    def is_left_to_cleaner(self, log: UnifiedLog) -> bool:
        """Whether the cleaner applies retention to this log: it is compacted, or was when a cleaning began. Tiered logs
        are not cleaned here."""
        return (log.config.compacted and not log.remote_enabled) or log in self.cleaner.cleaner.in_progress

    def __iter__(self) -> Iterator[UnifiedLog]:
        for directory in self.dirs:
            yield from list(directory.logs.values())

    def get(self, topic: str, partition: int) -> UnifiedLog | None:
        for directory in self.dirs:
            if (log := directory.logs.get((topic, partition))) is not None:
                return log
        return None

    def get_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: TopicConfig,
        *,
        directory: UUID | None = None,
        is_new: bool = False,
    ) -> UnifiedLog:
        """Return the log of a partition, which is created if it is missing. ``directory``: the id of the directory for
        a new log; by default the online directory with the fewest logs.

        ``is_new``: the partition is new, so its log cannot be in an offline directory. Raises KafkaError
        INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR.
        """
        log = self.get(topic, partition)
        if log is not None:
            if log.topic_id is not None and log.topic_id != topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.folder} has the topic id {log.topic_id}, not {topic_id}"
                )
            if log.topic_id is None:
                log.assign_topic_id(topic_id)
                self._maintenance.sync_id_soon(log)
            log.update_config(config)
            return log
        if self.offline_dirs and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} may be in a log directory that is offline"
            )
        target = self._directory_for(directory)
        try:
            if (topic, partition) in target.gone:  # the checkpoints on disk may still have the old log's offsets
                target.write(target.checkpoints())
            log = target.create(topic, partition, topic_id, config)
        except OSError as error:
            self.take_offline(target, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path}: {error}") from error
        self._maintenance.sync_id_soon(log)
        return log

    def _directory_for(self, directory_id: UUID | None) -> LogDir:
        online = self.online_dirs
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        if directory_id is not None:
            for directory in online:
                if directory.directory_id == directory_id:
                    return directory
        return min(online, key=lambda directory: len(directory.logs))

    def delete(self, log: UnifiedLog) -> None:
        """Delete a log: its folder is renamed now and deleted later. If that fails, the directory goes offline, and the
        log is a stray one at the next start."""
        if self._take_out(log, FolderKind.DELETE):
            due = self._runtime.clock.time_ms() + self._times.delete_delay_ms
            log.context.deletions.schedule(due, log.folder)

    def tidy_soon(self) -> None:
        """Soon remove what was deleted, without waiting for ``file.delete.delay.ms``, and write the checkpoints without
        it. (The first log under the name of a deleted one would have to write them.)"""
        for directory in self.online_dirs:
            directory.context.deletions.hasten()
        self._maintenance.checkpoint_soon()

    def set_aside(self, log: UnifiedLog) -> None:
        """Remove a stray log, which does not belong to this broker according to the metadata. Its folder is renamed and
        kept."""
        if self._take_out(log, FolderKind.STRAY):
            self._events.warning("stray log renamed", folder=log.folder)

    def _take_out(self, log: UnifiedLog, kind: FolderKind) -> bool:
        """Remove ``log`` from its directory, and rename its folder. Returns whether the folder was renamed."""
        directory = self.dir_of(log)
        key = (log.topic, log.partition)
        logs = directory.futures if directory.futures.get(key) is log else directory.logs
        if logs.get(key) is not log:
            return False
        del logs[key]
        directory.gone.add(key)
        folder = directory.file(marked_folder(*key, self._runtime.random.uuid().hex, kind))
        try:
            self._runtime.disk.rename(log.folder, folder, sync=False)
        except OSError as error:
            log.retire(log.folder)  # the directory no longer has it
            self.take_offline(directory, error)
            return False
        log.retire(folder)
        return True
