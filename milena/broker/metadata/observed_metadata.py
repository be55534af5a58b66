"""A broker's own copy of the metadata log, fetched from the controller."""

from __future__ import annotations

from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.node.metadata.copy_damage import truncate_at_damage
from milena.node.metadata.image import MetadataImage
from milena.node.metadata.loader import MetadataLoader, Subscriber
from milena.node.metadata.metadata_folder import metadata_folder, open_metadata_log
from milena.node.metadata.observer import Observer, ObserverOptions
from milena.node.metadata.raft_meters import register_raft
from milena.node.metadata.snapshot_keeper import SnapshotKeeper, SnapshotPolicy
from milena.node.metadata.snapshots import SnapshotStore
from milena.node.metrics import Metrics
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import ZERO_UUID, NodeId, Offset
from milena.runtime.containment import cause_of
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.storage.log.context import LogContext
from milena.storage.manager.log_dir import LogDir


class ObservedMetadata:
    """The metadata log of a broker without a controller in its process: a copy that an observer fetches (KIP-595)."""

    def __init__(self, runtime: Runtime, config: NodeConfig, *, cluster_id: str, directory_id: UUID | None) -> None:
        """Open the copy. ``directory_id``: of the log directory that contains it; None if it has a directory of its
        own, which is then formatted. Blocks. Raises OSError, DirectoryError."""
        self._directory: LogDir | None = None
        if directory_id is None:
            directory = self._directory = LogDir(config.metadata_log_dir, LogContext(runtime.disk, runtime.clock))
            directory.open()
            directory.format(cluster_id, NodeId(config.node_id), runtime.random.uuid)
            directory_id = directory.directory_id
        snapshots = SnapshotStore(runtime.disk, metadata_folder(config))
        snapshots.open()
        latest = snapshots.latest()
        recovery_point = Offset(0) if latest is None else latest.end_offset
        truncate_at_damage(runtime.disk, metadata_folder(config), recovery_point)
        self._log = log = open_metadata_log(runtime, config, recovery_point=recovery_point)
        self._loader = MetadataLoader(log, snapshots, runtime.contained)
        policy = SnapshotPolicy(
            record_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.get_int("metadata.max.retention.bytes"),
            retention_ms=config.get_int("metadata.max.retention.ms"),
        )
        keeper = SnapshotKeeper(runtime, self._loader, log, snapshots, policy, node_id=config.node_id)
        options = ObserverOptions(
            node_id=NodeId(config.node_id),
            cluster_id=cluster_id,
            directory_id=directory_id or ZERO_UUID,
            voters=config.quorum_voters,
            bootstrap=config.quorum_bootstrap,
            fetch_timeout=config.get_int("controller.quorum.fetch.timeout.ms") / 1000,
        )
        self._observer = Observer(runtime, options, log, snapshots, self._loader, keeper)
        self._fatal = runtime.fatal

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def ahead(self) -> bool:
        return self._observer.ahead

    @property
    def current_at(self) -> float:
        return self._observer.current_at

    def register(self, metrics: Metrics) -> None:
        register_raft(metrics, self._observer.view, self._observer.meters)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._loader.subscribe(subscriber)

    def start(self, tasks: Tasks) -> None:
        tasks.keep(self._observe, name="metadata observer")

    async def _observe(self) -> None:
        """Run the observer. If the metadata log fails, the broker ends, as in Kafka, even if other directories are
        online."""
        try:
            await self._observer.run()
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self._fatal("the metadata log has failed", cause_of(error))
        except OSError as failure:
            self._fatal("the metadata log has failed", failure)

    def close(self) -> None:
        """Close the log after the task has ended. If that fails, the log is recovered at the next start as after a
        kill."""
        try:
            self._log.close()
        except KafkaError as error:
            get_logger("observer").error("metadata log not closed cleanly", reason=error.message)
        if self._directory is not None:
            self._directory.unlock()
