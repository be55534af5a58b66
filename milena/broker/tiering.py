"""Creates the remote log manager of a broker, if ``remote.log.storage.system.enable`` is true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from milena.config.node_config import NodeConfig
from milena.config.values import ConfigError
from milena.runtime.logging import get_logger
from milena.runtime.tcp.hosts import from_here
from milena.storage.files.names import REMOTE_FOLDER, REMOTE_INDEX_CACHE
from milena.tiered.metadata.settings import MetadataTopicSettings
from milena.tiered.metadata.topic_based_manager import TopicMetadataManager
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.shared.copy_attempts import CopyAttempts
from milena.tiered.shared.meters import TierMeters
from milena.tiered.shared.quota import RateQuota
from milena.tiered.shared.tier import Tier
from milena.tiered.shared.unreliable_segments import UnreliableSegments
from milena.tiered.store.index_cache import RemoteIndexCache
from milena.tiered.store.remote_storage import RemoteStorage, RetriableRemoteStorageError
from milena.tiered.store.tier_config import remote_storage
from milena.tiered.store.tier_identity import Claim
from milena.tiered.work.tier_manager import RemoteLogManager

if TYPE_CHECKING:
    from milena.broker.controller_link.lifecycle import Lifecycle
    from milena.config.node_config import NodeConfig
    from milena.node.metrics import Metrics
    from milena.protocol.types import NodeId
    from milena.runtime.context import Runtime
    from milena.storage.manager.log_manager import LogManager

TOPIC_BASED: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


class TieringNode(Protocol):
    """What the remote log manager uses of its broker."""

    @property
    def bound_listeners(self) -> dict[str, tuple[str, int]]: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def runtime(self) -> Runtime: ...


def remote_log_manager(node: TieringNode, config: NodeConfig) -> RemoteLogManager:
    """Create the remote log manager from the configuration. It does not use the disk or the network before ``start``.
    Raises ConfigError."""
    manager: RemoteLogManager
    claim = Claim(lambda: node.logs.cluster_id, lambda: manager.knows_of_no_copy)
    storage = remote_storage(
        node.runtime,
        config.get_str_or_none("remote.log.storage.manager.class.name"),
        config.under(config.get_str("remote.log.storage.manager.impl.prefix")),
        str(node.node_id),
        memory=f"{config.log_dirs[0]}/{REMOTE_FOLDER}",
        claim=claim,
    )
    tier = Tier(
        node.runtime,
        node.node_id,
        lambda: node.config,
        storage,
        _indexes(node, config, storage),
        _metadata(node, config),
        TierMeters(node.metrics),
        _quota(config, "copy"),
        _quota(config, "fetch"),
        get_logger("tier", node=node.node_id),
        UnreliableSegments(),
        CopyAttempts(node.runtime.clock, RetriableRemoteStorageError),
        node.logs.cleaner.throttle,
        lambda: node.lifecycle.in_session,
    )
    manager = RemoteLogManager(tier, node.metrics)
    return manager


def _indexes(node: TieringNode, config: NodeConfig, storage: RemoteStorage) -> RemoteIndexCache:
    ttl = config.get_int("remote.log.index.file.cache.ttl.ms")
    return RemoteIndexCache(
        node.runtime,
        storage,
        f"{config.log_dirs[0]}/{REMOTE_INDEX_CACHE}",
        capacity=config.get_int("remote.log.index.file.cache.total.size.bytes"),
        ttl_ms=None if ttl < 0 else ttl,
    )


def _metadata(node: TieringNode, config: NodeConfig) -> TopicMetadataManager:
    class_name = config.get_str("remote.log.metadata.manager.class.name")
    if class_name != TOPIC_BASED:
        raise ConfigError(f"remote.log.metadata.manager.class.name={class_name} is not supported, only {TOPIC_BASED}")
    settings = MetadataTopicSettings.of(config.under(config.get_str("remote.log.metadata.manager.impl.prefix")))
    listener = config.get_str_or_none("remote.log.metadata.manager.listener.name") or config.inter_broker_listener
    if listener not in {endpoint.name for endpoint in config.broker_listeners}:
        raise ConfigError(f"remote.log.metadata.manager.listener.name={listener} is not a listener of this broker")

    def addresses() -> Sequence[tuple[str, int]]:
        host, port = node.bound_listeners[listener]
        return [(from_here(host), port)]

    def folder(partition: TopicIdPartition) -> str | None:
        log = node.logs.get(partition.topic, partition.partition)
        return None if log is None or log.topic_id != partition.topic_id else log.folder

    return TopicMetadataManager(node.runtime, node.node_id, settings, addresses, folder)


def _quota(config: NodeConfig, operation: str) -> RateQuota:
    """The quota for ``operation``: copy or fetch."""
    prefix = f"remote.log.manager.{operation}"
    return RateQuota(
        config.get_int(f"{prefix}.max.bytes.per.second"),
        windows=config.get_int(f"{prefix}.quota.window.num"),
        window_seconds=config.get_int(f"{prefix}.quota.window.size.seconds"),
    )
