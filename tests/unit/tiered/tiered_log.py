"""A tiered log in the simulation, with a store that can be stopped in the middle and metadata in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.lab.world.world import World, simulate
from milena.node.metrics import Metrics
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.context import Runtime
from milena.storage.cleaning.throttle import Throttle
from milena.storage.log.context import LogContext
from milena.storage.log.loading import open_log
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)
from milena.tiered.shared.copy_attempts import CopyAttempts
from milena.tiered.shared.meters import TierMeters
from milena.tiered.shared.quota import RateQuota
from milena.tiered.shared.tier import Tier
from milena.tiered.shared.unreliable_segments import UnreliableSegments
from milena.tiered.store.index_cache import RemoteIndexCache
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import RetriableRemoteStorageError, SegmentFiles
from milena.tiered.work.roles import ReplicaRole
from tests.fixtures.remote_log_metadata import InMemoryMetadata
from tests.unit.storage.logs import Events, batch_of

TOPIC_ID = UUID(int=77)
TIER = "/tier"
ROOT = f"{TIER}/kafka-tiered-storage"
UNLIMITED = 1 << 62
FIRST = LeaderEpoch(0)


class Store(LocalTier):
    """A tier in a folder. ``copying`` and ``deleting`` are called before the work, and awaited where they are coroutine
    functions; a copy returns ``custom``."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, TIER, "1")
        self.copying: Callable[[], object] = lambda: None
        self.deleting: Callable[[], object] = lambda: None
        self.custom: bytes | None = None
        self.deleted: list[RemoteLogSegmentMetadata] = []
        self.swept: list[set[UUID]] = []
        """For each sweep, the segments that it must not remove."""

    async def copy(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        waiting = self.copying()
        if isinstance(waiting, Awaitable):
            await waiting
        await super().copy(metadata, files)
        return self.custom

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.deleting()
        self.deleted.append(metadata)
        await super().delete(metadata)

    async def sweep_incomplete(self, partition: TopicIdPartition, known: Collection[UUID]) -> list[RemoteLogSegmentId]:
        self.swept.append(set(known))
        return await super().sweep_incomplete(partition, known)


@dataclass
class HandReplica:
    """A replica whose role is changed by hand."""

    log: UnifiedLog | None
    topic: str = "t"
    index: int = 0
    topic_id: UUID = TOPIC_ID
    is_leader: bool = True
    term: int = 1
    leader_epoch: LeaderEpoch = FIRST


@dataclass
class Bench:
    """One replica, and what works on its tier."""

    world: World
    runtime: Runtime
    log: UnifiedLog
    replica: HandReplica
    store: Store
    metadata: InMemoryMetadata
    tier: Tier
    metrics: Metrics
    events: Events
    keys: dict[str, Any] = field(default_factory=dict)
    """Overrides of the broker's configuration."""

    def role(self) -> ReplicaRole:
        role = ReplicaRole(self.replica, self.runtime.clock)
        self.metadata.assign([role.partition], [])
        return role

    def write(self, segments: int, records: int = 2, *, epoch: int = 0) -> None:
        """So many closed segments of ``records`` batches each, committed, before an empty active one."""
        for _ in range(segments):
            for _ in range(records):
                data = batch_of(b"value", timestamp=self.runtime.clock.time_ms())
                self.log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch))
            self.log.roll()
        self.log.set_high_watermark(self.log.log_end_offset)

    def states(self) -> list[str]:
        """What was published, in order: state and first offset."""
        first = {one.id: one.start_offset for one in self.published_segments()}
        return [f"{one.state.name} {first[one.segment_id.id]}" for one in self.metadata.published]

    def published_segments(self) -> list[RemoteLogSegmentMetadata]:
        return [one for one in self.metadata.published if isinstance(one, RemoteLogSegmentMetadata)]

    def updates(self, state: RemoteLogSegmentState) -> list[RemoteLogSegmentUpdate]:
        published = self.metadata.published
        return [one for one in published if isinstance(one, RemoteLogSegmentUpdate) and one.state is state]

    def stored(self, suffix: str = ".log") -> list[int]:
        """First offsets of the objects of one kind in the tier."""
        names = [path.rpartition("/")[2] for path in self.world.tier.files if path.startswith(ROOT)]
        return sorted(int(name[:20]) for name in names if name.endswith(suffix))

    def counted(self, name: str) -> float:
        return self.metrics.value(f"kafka_server_brokertopicmetrics_{name}persec_total", topic="t")


def open_tiered(runtime: Runtime, config: TopicConfig, events: Events) -> UnifiedLog:
    """The log, as a broker finds it that was killed."""
    return open_log(
        LogContext(runtime.disk, runtime.clock, events, tiered=True),
        "/data/t-0",
        "t",
        0,
        TOPIC_ID,
        config,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        clean=False,
    )


def on_bench(scenario: Callable[[Bench], Awaitable[None]], *, seed: int = 1, **config: Any) -> None:
    """Run ``scenario`` with a tiered log; ``config`` are fields of its TopicConfig."""

    async def run(world: World) -> None:
        runtime = world.machine("broker").start()
        node = configured(())
        given = {"remote_storage_enable": True, "retention_ms": -1, "retention_bytes": -1, **config}
        topic_config = replace(TopicConfig.effective(node, {}), **given)
        events = Events()
        log = open_tiered(runtime, topic_config, events)
        log.assign_epoch(LeaderEpoch(0), Offset(0))
        store, metadata, metrics = Store(runtime), InMemoryMetadata(), Metrics()
        keys: dict[str, Any] = {}
        indexes = RemoteIndexCache(runtime, store, "/data/remote-log-index-cache", capacity=1 << 30, ttl_ms=None)
        tier = Tier(
            runtime,
            NodeId(1),
            lambda: configured(tuple(keys.items())),
            store,
            indexes,
            metadata,
            TierMeters(metrics),
            RateQuota(UNLIMITED, windows=11, window_seconds=1),
            RateQuota(UNLIMITED, windows=11, window_seconds=1),
            events,
            UnreliableSegments(),
            CopyAttempts(runtime.clock, RetriableRemoteStorageError),
            Throttle(runtime.clock, float("inf")),
            lambda: True,
        )
        await store.start()
        await indexes.start()
        replica = HandReplica(log)
        await scenario(Bench(world, runtime, log, replica, store, metadata, tier, metrics, events, keys))
        await indexes.close()

    simulate(run, seed=seed)


@cache
def configured(keys: tuple[tuple[str, object], ...]) -> NodeConfig:
    """A broker with a tier, and these keys beside."""
    return NodeConfig.of(remote_log_storage_system_enable=True, **{key.replace(".", "_"): value for key, value in keys})
