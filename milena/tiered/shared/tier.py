"""The context shared by all tasks on one broker's tier, and their view of its replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import LeaderEpoch, NodeId
from milena.runtime.context import Runtime
from milena.storage.cleaning.throttle import Throttle
from milena.storage.log.context import EventLog
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_manager import RemoteLogMetadataError, RemoteLogMetadataManager
from milena.tiered.shared.copy_attempts import CopyAttempts
from milena.tiered.shared.meters import TierMeters
from milena.tiered.shared.quota import RateQuota
from milena.tiered.shared.unreliable_segments import UnreliableSegments
from milena.tiered.store.index_cache import RemoteIndexCache
from milena.tiered.store.remote_storage import RemoteStorage, RemoteStorageError

FAILURES = (RemoteStorageError, RemoteLogMetadataError, KafkaError, CorruptBatch, OSError)
"""The expected errors of a round; the next round retries."""


class HostedReplica(Protocol):
    """A hosted replica; ``broker.replica.partition.Partition`` implements it."""

    @property
    def topic(self) -> str: ...

    @property
    def index(self) -> int: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> int:
        """Counts the times that it became the leader."""
        ...

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    @property
    def log(self) -> UnifiedLog | None: ...


@dataclass(slots=True)
class Tier:
    """The tier as one broker sees it."""

    runtime: Runtime
    node_id: NodeId
    config: Callable[[], NodeConfig]
    """The broker's configuration as it is now."""
    storage: RemoteStorage
    indexes: RemoteIndexCache
    metadata: RemoteLogMetadataManager
    meters: TierMeters
    copy_quota: RateQuota
    fetch_quota: RateQuota
    events: EventLog
    unreliable: UnreliableSegments
    copies: CopyAttempts
    """The attempts to copy of all partitions together, since a store that rejects one copy will probably reject
    others."""
    cleaning: Throttle
    """Limits the bytes per second of all cleanings, in the tier and of local logs."""
    in_session: Callable[[], bool]
    """Whether this broker's session with the controller is certainly valid: otherwise another broker may be the
    leader."""
    may_begin: bool = False
    """Whether a new tier may be created, because the metadata topic was empty when the tier's location was checked."""
    was_seen: bool = False
    """Whether this process has found the tier at its location."""
    work_orders_removed: bool = False
    """Whether this process has removed the work orders of earlier versions, or has tried to."""
    in_use: set[str] = field(default_factory=set)
    """The folders and files that tasks of this broker use beside those of a log. A task that ends late, because it
    waits for the store, and a task of the next role of the same replica must not use the same ones."""

    def report(self, what: str, replica: HostedReplica, error: Exception) -> None:
        """Log that a round has failed."""
        fields = {"topic": replica.topic, "partition": replica.index, "reason": str(error)}
        if isinstance(error, RemoteLogMetadataError):
            self.events.info(what, **fields)
        else:
            self.events.warning(what, **fields)
