"""One log directory: its lock, its identity, its checkpoints and the logs in it.

::

    open -> formatted -> loaded -> closed        (any of them) -> offline, until the process ends
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final
from uuid import UUID

from milena.config.topic_config import TopicConfig
from milena.protocol.cooperative import Cooperative, YieldBudget, run_now
from milena.protocol.types import METADATA_TOPIC, BrokerEpoch, NodeId, Offset, TopicPartition
from milena.storage.files.checkpoints import (
    CorruptCheckpoint,
    decode_clean_shutdown,
    decode_offsets,
    encode_clean_shutdown,
    encode_offset_lines,
    offset_line,
)
from milena.storage.files.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from milena.storage.files.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    REMOTE_INDEX_CACHE,
    TEMPORARY,
    FolderKind,
    parse_partition_folder,
    partition_folder,
)
from milena.storage.log.context import LogContext
from milena.storage.log.loading import open_log
from milena.storage.log.unified_log import UnifiedLog

LOGS_PER_YIELD: Final = 2_000
"""Logs whose offsets are read between two yields."""
_OTHER_NAMES: Final = ("-checkpoint", TEMPORARY, REMOTE_INDEX_CACHE)
"""Names in a log directory other than folders of logs."""


class DirectoryError(Exception):
    """A log directory that this node must not use. The message has the path and the reason."""


def _is_log(name: str) -> bool:
    try:
        parse_partition_folder(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoint files to write."""

    generation: int
    files: tuple[tuple[str, bytes], ...]
    truncations: tuple[tuple[UnifiedLog, int], ...] = ()
    """The logs that were truncated below their recovery point, each with its number of truncations."""
    high_watermarks: tuple[tuple[UnifiedLog, Offset], ...] = ()
    """The high watermarks in the files, if the file of high watermarks is among them."""


class LogDir:
    """A directory of ``log.dirs``. ``path`` is absolute."""

    def __init__(self, path: str, context: LogContext) -> None:
        self.path = path
        self.context = context
        context.save_checkpoints = self.save
        self.meta: MetaProperties | None = None
        """None until the directory is formatted."""
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.futures: dict[TopicPartition, UnifiedLog] = {}
        """Logs that move here from another directory (``storage.manager.future_logs``)."""
        self.was_clean = False
        """Whether the previous process was shut down cleanly. Known once the directory is open."""
        self.loaded = False
        """Whether all logs are open. Only then the directory may be shut down cleanly."""
        self.previous_broker_epoch: BrokerEpoch | None = None
        self.gone: set[TopicPartition] = set()
        """Removed logs that may still be in the checkpoints on disk."""
        self._unlock: Callable[[], None] | None = None
        self._known: dict[str, bytes] = {}
        self._generation = 0
        self._on_disk: dict[str, int] = {}
        self._writing = Lock()

    @property
    def online(self) -> bool:
        return not self.context.offline

    @property
    def directory_id(self) -> UUID | None:
        return self.meta.directory_id if self.meta is not None else None

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    # Opening

    def open(self) -> None:
        """Create the directory if it is missing, lock it and read which cluster and node it belongs to.

        Raises OSError, DirectoryError if another process has locked it or the properties cannot be read.
        """
        disk = self.context.disk
        disk.make_folders(self.path)
        try:
            self._unlock = disk.lock(self.file(LOCK))
        except BlockingIOError as locked:
            raise DirectoryError(f"log directory {self.path} is in use by another process") from locked
        try:
            self.meta = decode_meta_properties(disk.read(self.file(META_PROPERTIES)))
        except FileNotFoundError:
            self.meta = None
            self._check_new()
        except CorruptMetaProperties as error:
            raise DirectoryError(f"{self.file(META_PROPERTIES)}: {error}") from error
        try:
            self.previous_broker_epoch = decode_clean_shutdown(disk.read(self.file(CLEAN_SHUTDOWN)))
            self.was_clean = True
        except FileNotFoundError:
            self.was_clean = False

    def _check_new(self) -> None:
        """Check that a directory without ``meta.properties`` has no logs. Their node would be unknown, and with a new
        directory id the cluster would not expect them here. Raises OSError, DirectoryError."""
        logs = [name for name in self.context.disk.list(self.path) if not name.endswith(_OTHER_NAMES) and _is_log(name)]
        if logs:
            self.unlock()
            raise DirectoryError(
                f"log directory {self.path} has logs ({logs[0]}{' and others' if logs[1:] else ''}), but there is no "
                f"{META_PROPERTIES} with their cluster and node. Restore that file. If the logs are of this node, "
                f"write the file with the lines cluster.id=CLUSTER, node.id=NODE and version=1"
            )

    def format(self, cluster_id: str, node_id: NodeId, new_id: Callable[[], UUID]) -> None:
        """Write ``meta.properties`` if it is missing, or lacks the directory's id.

        Raises DirectoryError if the directory belongs to another cluster or node, OSError.
        """
        meta = self.meta
        if meta is not None:
            if meta.cluster_id != cluster_id:
                raise DirectoryError(f"{self.path} belongs to cluster {meta.cluster_id}, not {cluster_id}")
            if meta.node_id != node_id:
                raise DirectoryError(f"{self.path} belongs to node {meta.node_id}, not {node_id}")
            if meta.directory_id is not None:
                return
        self.meta = MetaProperties(cluster_id, node_id, new_id())
        self.context.disk.write_atomic(self.file(META_PROPERTIES), encode_meta_properties(self.meta))
        # Sync the parent folder, too: otherwise a power failure may remove the directory with its synced files.
        self.context.disk.sync_folder(self.path.rpartition("/")[0] or "/")

    def load(self, config_of: Callable[[str], TopicConfig], delete_delay_ms: int) -> None:
        """Open all logs; recovers them if the last shutdown was not clean. May run in a worker. Raises OSError."""
        disk = self.context.disk
        disk.remove(self.file(CLEAN_SHUTDOWN))
        disk.sync_folder(self.path)  # if a power failure restored the marker, unsynced logs would count as clean
        recovery_points = self._read_offsets(RECOVERY_POINTS)
        starts = self._read_offsets(LOG_STARTS)
        high_watermarks = self._read_offsets(HIGH_WATERMARKS)
        if cleaned := self._read_offsets(CLEANER_OFFSETS):
            self._known[CLEANER_OFFSETS] = b""  # so that it is written again, even without entries
        for name, key, kind in self._partitions(delete_delay_ms):
            log = open_log(
                self.context,
                self.file(name),
                *key,
                None,
                config_of(key[0]),
                recovery_point=recovery_points.get(key, Offset(0)),
                log_start_offset=starts.get(key, Offset(0)),
                clean=self.was_clean,
                cleaned_to=cleaned.get(key),
            )
            log.set_high_watermark(high_watermarks.get(key, Offset(0)))
            log.checkpointed_high_watermark = high_watermarks.get(key)
            (self.futures if kind is FolderKind.FUTURE else self.logs)[key] = log
        # Logs without a folder: a new log of the same name must not get the offsets of the old one.
        self.gone.update({*recovery_points, *starts, *cleaned}.difference(self.logs, self.futures))

    def _partitions(self, delete_delay_ms: int) -> Iterator[tuple[str, TopicPartition, FolderKind]]:
        """Yield the folders of logs to load. Folders marked for deletion are scheduled for removal."""
        due = self.context.clock.time_ms() + delete_delay_ms
        for name in self.context.disk.list(self.path):
            if "-" not in name or name.endswith(_OTHER_NAMES):
                continue
            try:
                topic, partition, kind = parse_partition_folder(name)
            except ValueError as error:
                self.context.events.warning("folder ignored", path=self.file(name), reason=str(error))
                continue
            if kind is FolderKind.DELETE:
                self.context.deletions.schedule(due, self.file(name))
            elif kind is FolderKind.STRAY:
                self.context.events.warning("folder ignored", path=self.file(name), reason=f"marked {kind.value}")
            elif topic != METADATA_TOPIC:
                yield name, (topic, partition), kind

    def create(
        self, topic: str, partition: int, topic_id: UUID, config: TopicConfig, *, future: str | None = None
    ) -> UnifiedLog:
        """Create a log, or open one whose folder exists but was not loaded. ``future``: the folder name of a future
        log. Raises OSError, KafkaError."""
        key = (topic, partition)
        log = open_log(
            self.context,
            self.file(future or partition_folder(topic, partition)),
            topic,
            partition,
            topic_id,
            config,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            clean=False,
        )
        (self.futures if future else self.logs)[key] = log
        return log

    # Checkpoints

    def checkpoints(self, *, unchanged_too: bool = False) -> Checkpoints:
        """Return the offset checkpoints that have changed since the last call, or all of them."""
        return run_now(self.collect_checkpoints(unchanged_too=unchanged_too))

    def collect_checkpoints(self, *, unchanged_too: bool = False) -> Cooperative[Checkpoints]:
        """Like ``checkpoints``; yields between logs. The offsets of one log are read at once. Returns no files if
        others were collected later, which are newer, or if the directory has gone offline."""
        self._generation += 1
        generation, budget = self._generation, YieldBudget(LOGS_PER_YIELD)
        logs = {**self.futures, **self.logs}
        lines: dict[str, dict[TopicPartition, str]] = {
            name: {} for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        }
        high_watermarks: list[tuple[UnifiedLog, Offset]] = []
        cut: list[tuple[UnifiedLog, int]] = []
        for key, log in logs.items():
            if self._log_of(key) is not log:
                continue
            lines[RECOVERY_POINTS][key] = offset_line(key, log.recovery_point)
            if log.remote_enabled or log.log_start_offset > log.segments[0].base_offset:
                lines[LOG_STARTS][key] = offset_line(key, log.log_start_offset)
            lines[HIGH_WATERMARKS][key] = offset_line(key, log.high_watermark)
            high_watermarks.append((log, log.high_watermark))
            if log.cleaned_to is not None and key in self.logs:
                lines[CLEANER_OFFSETS][key] = offset_line(key, log.cleaned_to)
            if log.checkpoint_is_behind:
                cut.append((log, log.truncations))
            if budget.spend(1):
                yield
        if self._generation != generation or self.context.offline:
            return Checkpoints(generation, ())
        # A new log of the same name must not get the offsets of one that was removed since the collection began.
        removed = [key for key, log in logs.items() if self._log_of(key) is not log]
        for of_file in lines.values():
            for key in removed:
                of_file.pop(key, None)
        if not lines[CLEANER_OFFSETS] and CLEANER_OFFSETS not in self._known:
            del lines[CLEANER_OFFSETS]
        changed = []
        for name, of_file in lines.items():
            data = encode_offset_lines(of_file.values())
            may_be_unwritten = cut and name == RECOVERY_POINTS  # the last write may not be complete
            if unchanged_too or may_be_unwritten or self._known.get(name) != data:
                self._known[name] = data
                changed.append((self.file(name), data))
        if self.file(HIGH_WATERMARKS) not in dict(changed):
            high_watermarks = []
        self.gone.clear()
        return Checkpoints(generation, tuple(changed), tuple(cut), tuple(high_watermarks))

    def _log_of(self, key: TopicPartition) -> UnifiedLog | None:
        """The log whose offsets are in the checkpoints: the present one rather than a future one."""
        log = self.logs.get(key)
        return self.futures.get(key) if log is None else log

    def write(self, checkpoints: Checkpoints) -> None:
        """Write and sync checkpoints, unless newer ones are already written. May run in a worker. Raises OSError."""
        with self._writing:
            for path, data in checkpoints.files:
                if checkpoints.generation > self._on_disk.get(path, 0):
                    self._on_disk[path] = checkpoints.generation
                    self.context.disk.write_atomic(path, data)
                    if path == self.file(HIGH_WATERMARKS):
                        for log, offset in checkpoints.high_watermarks:
                            log.checkpointed_high_watermark = offset
            for log, truncations in checkpoints.truncations:
                log.checkpointed_truncations = max(log.checkpointed_truncations, truncations)

    def save(self) -> None:
        """Write all checkpoints now, on the loop. A worker may still be writing earlier ones."""
        self.write(self.checkpoints(unchanged_too=True))

    def _read_offsets(self, name: str) -> dict[TopicPartition, Offset]:
        """Read an offset checkpoint. A damaged one counts as empty: logs are then recovered from their start."""
        try:
            return decode_offsets(self.context.disk.read(self.file(name)))
        except FileNotFoundError:
            return {}
        except CorruptCheckpoint as error:
            self.context.events.warning("checkpoint unreadable", path=self.file(name), reason=str(error))
            return {}

    # Closing

    def mark_clean(self, broker_epoch: BrokerEpoch | None) -> None:
        """Write the marker of a clean shutdown, after all logs are closed and synced. Raises OSError."""
        self.context.disk.write_atomic(self.file(CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch))

    def go_offline(self) -> list[UnifiedLog]:
        """Take the directory offline: its logs refuse all calls. Returns the logs."""
        self.context.offline = True
        lost = list(self.logs.values())
        for log in (*lost, *self.futures.values()):
            log.release()
        self.logs.clear()
        self.futures.clear()
        self.unlock()
        return lost

    def unlock(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
