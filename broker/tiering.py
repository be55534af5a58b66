"""The broker's part in the remote tier: made only where ``remote.log.storage.system.enable`` is true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from runtime.config.node_config import NodeConfig
from runtime.config.values import ConfigError
from runtime.logging import get_logger
from storage.names import REMOTE_FOLDER, REMOTE_INDEX_CACHE
from tiered.copy_attempts import CopyAttempts
from tiered.given_up import GivenUp
from tiered.index_cache import RemoteIndexCache
from tiered.meters import TierMeters
from tiered.quota import RateQuota
from tiered.remote_storage import RemoteStorage, RetriableRemoteStorageError
from tiered.segment_metadata import TopicIdPartition
from tiered.tier import Tier
from tiered.tier_config import remote_storage
from tiered.tier_identity import Claim
from tiered.tier_manager import RemoteLogManager
from tiered.topic_metadata.manager import TopicMetadataManager
from tiered.topic_metadata.settings import MetadataTopicSettings

if TYPE_CHECKING:
    from broker.server import Broker

TOPIC_BASED: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def remote_log_manager(node: Broker, config: NodeConfig) -> RemoteLogManager:
    """Nothing is touched before ``start``. Raises ConfigError."""
    manager: RemoteLogManager
    claim = Claim(lambda: node.logs.cluster_id, lambda: manager.knows_of_no_copy)
    storage = remote_storage(
        node.runtime,
        config.get("remote.log.storage.manager.class.name"),
        config.under(config.get("remote.log.storage.manager.impl.prefix")),
        str(node.node_id),
        memory=f"{config.log_dirs[0]}/{REMOTE_FOLDER}",
        claim=claim,
    )
    tier = Tier(
        node.runtime,
        node.node_id,
        lambda key: node.config.get(key),
        storage,
        _indexes(node, config, storage),
        _metadata(node, config),
        TierMeters(node.metrics),
        _quota(config, "copy"),
        _quota(config, "fetch"),
        get_logger("tier", node=node.node_id),
        GivenUp(),
        CopyAttempts(node.runtime.clock, RetriableRemoteStorageError),
        lambda: node.lifecycle.in_session,
    )
    manager = RemoteLogManager(tier, node.metrics)
    return manager


def _indexes(node: Broker, config: NodeConfig, storage: RemoteStorage) -> RemoteIndexCache:
    ttl = config.get("remote.log.index.file.cache.ttl.ms")
    return RemoteIndexCache(
        node.runtime,
        storage,
        f"{config.log_dirs[0]}/{REMOTE_INDEX_CACHE}",
        capacity=config.get("remote.log.index.file.cache.total.size.bytes"),
        ttl_ms=None if ttl < 0 else ttl,
    )


def _metadata(node: Broker, config: NodeConfig) -> TopicMetadataManager:
    kind = config.get("remote.log.metadata.manager.class.name")
    if kind != TOPIC_BASED:
        raise ConfigError(f"remote.log.metadata.manager.class.name={kind} is not {TOPIC_BASED}, the one there is")
    settings = MetadataTopicSettings.of(config.under(config.get("remote.log.metadata.manager.impl.prefix")))
    listener = config.get("remote.log.metadata.manager.listener.name") or config.inter_broker_listener
    if listener not in {endpoint.name for endpoint in config.broker_listeners}:
        raise ConfigError(f"remote.log.metadata.manager.listener.name={listener} is none of the broker's listeners")

    def addresses() -> Sequence[tuple[str, int]]:
        return [node.bound_listeners[listener]]

    def folder(partition: TopicIdPartition) -> str | None:
        log = node.logs.get(partition.topic, partition.partition)
        return None if log is None or log.topic_id != partition.topic_id else log.folder

    return TopicMetadataManager(node.runtime, node.node_id, settings, addresses, folder)


def _quota(config: NodeConfig, kind: str) -> RateQuota:
    prefix = f"remote.log.manager.{kind}"
    return RateQuota(
        config.get(f"{prefix}.max.bytes.per.second"),
        windows=config.get(f"{prefix}.quota.window.num"),
        window_seconds=config.get(f"{prefix}.quota.window.size.seconds"),
    )
