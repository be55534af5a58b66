"""What the simulation knows of a run: invariants, voided promises, and the consequences of objects that are lost from
the tier for good. Exactly these consequences are permitted:

- ``.log``, lost or truncated: a leader rejects with an error reads of the records that are in no other segment of its
  lineage and not in its local log: a *hole*. No reader skips them without an error, or reads others in their place.
- ``.leader_epoch_checkpoint``, ``.snapshot``: a follower that has to start after that segment retries forever, and
  stays out of the ISR. Likewise ``.log``, if the producers are rebuilt from its batches.
- ``.index``, ``.timeindex``: only slower reads.

Leaders continue in all cases: they serve, copy and delete. All other final checks hold with losses, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Final

from milena.broker.replica.partition import Partition
from milena.lab.chaos.faults import Step
from milena.lab.chaos.health import NotHealthy
from milena.lab.chaos.holes import Hole
from milena.lab.chaos.observer import Observer
from milena.lab.chaos.simulated.faults import SimulatedFaults
from milena.lab.cluster import SimulatedCluster, host_of
from milena.lab.histories.events import Event
from milena.lab.invariants.logs import check_epochs
from milena.lab.invariants.tiers import Freed
from milena.lab.world.tiering import FOLDER
from milena.protocol.types import NodeId, Offset, TopicPartition
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lineage import epoch_at
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType
from milena.tiered.store.tier_names import ROOT, object_path, parse_folder

BUILDING: Final = "BuildingRemoteLogAux"
LOOKING: Final = 0.5
_SNAPSHOT: Final = IndexType.PRODUCER_SNAPSHOT.value
_CHECKPOINT: Final = IndexType.LEADER_EPOCH.value


class WatchedCluster:
    """Implements ``place.Insight``. The consequences of losses are determined from the state of the present leaders."""

    def __init__(self, cluster: SimulatedCluster, faults: SimulatedFaults | None = None) -> None:
        """``faults``: None if no faults are injected."""
        assert cluster.watch is not None
        self._cluster = cluster
        self._faults = faults
        self._watch = cluster.watch
        self._lost = cluster.watch.tier.lost

    @property
    def freed(self) -> Freed:
        return self._watch.tier.freed

    @property
    def shaken(self) -> Collection[TopicPartition]:
        return self._watch.shaken

    def observe(self, observer: Observer) -> None:
        """Report each image of the controller from now on."""
        self._watch.on_image = observer.image

    async def disturb(self, step: Step) -> Callable[[], Awaitable[None]]:
        assert self._faults is not None
        return await self._faults.inject(step)

    async def copied(self, seconds: float) -> None:
        end = self._cluster.world.loop.time() + seconds
        while missing := _not_copied(self._cluster) + _not_erased(self._cluster):
            if self._cluster.world.loop.time() > end:
                raise NotHealthy(f"after {seconds} seconds: {'; '.join(missing)}")
            await asyncio.sleep(LOOKING)

    def check(self) -> Sequence[Event]:
        for name, machine in self._cluster.world.machines.items():
            for text, error in machine.failures:
                if not isinstance(error, OSError):
                    raise AssertionError(f"{name} has ended: {text}") from error
        self._watch.check_all()
        for number, broker in self._cluster.brokers.items():
            for log in broker.logs:
                if log.config.compacted:
                    storage = self._cluster.world.machine(host_of(number)).storage
                    check_epochs(f"{log} of broker {number}", storage, log)
        return self._watch.voids

    def hole_at(self, partition: TopicPartition, offset: int) -> Hole | None:
        """First and last offset of the hole at ``offset``; None if the record is in the tier or local."""
        if not self._lost:
            return None
        found = self._leader(partition)
        if found is None:
            return None
        log, cache = found
        end = offset
        while log.log_start_offset <= end < log.local_log_start_offset and self._is_lost(log, cache, Offset(end)):
            end += 1
        return (offset, end - 1) if end > offset else None

    def excuses(self, partition: TopicPartition, broker: int) -> bool:
        """Whether a follower needs a lost object before it can fetch its leader's local records."""
        state = self._cluster.brokers[broker].fetchers.describe_partition(*partition)
        found = self._leader(partition) if self._lost and state is not None and state["state"] == BUILDING else None
        return found is not None and any(self._has_lost(*needed) for needed in _needed(*found))

    def _leader(self, partition: TopicPartition) -> tuple[UnifiedLog, RemoteLogMetadataCache] | None:
        """The leader's log and its metadata cache; None if there is no leader, or the cache is not ready."""
        for broker in self._cluster.brokers.values():
            replica = broker.partitions.find(*partition)
            if replica is not None and replica.is_leader and self._is_registered(replica, broker.node_id):
                role = None if broker.tier is None else broker.tier.role_of(replica)
                if broker.tier is None or role is None or replica.log is None:
                    return None
                metadata = broker.tier.tier.metadata
                return (replica.log, metadata.cache(role.partition)) if metadata.is_ready(role.partition) else None
        return None

    def _is_registered(self, replica: Partition, broker: NodeId) -> bool:
        assert self._cluster.controller is not None
        found = self._cluster.controller.state.image.partition(replica.topic, replica.index)
        return found is not None and (found.leader, found.leader_epoch) == (broker, replica.leader_epoch)

    def _is_lost(self, log: UnifiedLog, cache: RemoteLogMetadataCache, offset: Offset) -> bool:
        segments = _holding(log, cache, offset)
        return bool(segments) and all(self._has_lost(segment, LOG_SUFFIX) for segment in segments)

    def _has_lost(self, segment: RemoteLogSegmentMetadata, suffix: str) -> bool:
        return f"{FOLDER}/{object_path(segment, suffix)}" in self._lost


def _holding(log: UnifiedLog, cache: RemoteLogMetadataCache, offset: Offset) -> list[RemoteLogSegmentMetadata]:
    """The segments with the log's record at ``offset``."""
    index = epoch_at(offset, log.epochs.entries)
    return [] if index is None else cache.find(log.epochs.entries[index].epoch, offset)


def _needed(log: UnifiedLog, cache: RemoteLogMetadataCache) -> Iterator[tuple[RemoteLogSegmentMetadata, str]]:
    """The objects that a follower reads which starts at the local log start: segments, and suffixes of objects."""
    at = log.local_log_start_offset
    for segment in _holding(log, cache, at) or _holding(log, cache, Offset(at - 1)):
        yield segment, _CHECKPOINT
    while at > log.log_start_offset:
        holding = _holding(log, cache, Offset(at - 1))
        ending = [segment for segment in holding if segment.end_offset == at - 1]
        yield from ((segment, _SNAPSHOT) for segment in ending)
        if ending or not holding:
            return
        yield from ((segment, LOG_SUFFIX) for segment in holding)
        at = min(segment.start_offset for segment in holding)


def _not_copied(cluster: SimulatedCluster) -> list[str]:
    found = []
    for number, broker in cluster.brokers.items():
        for partition in broker.partitions:
            log = partition.log
            if log is None or not partition.is_leader or not log.remote_enabled:
                continue
            copied, closed = log.highest_offset_in_remote_storage + 1, _closed(log)
            if max(copied, log.log_start_offset) < closed:
                found.append(f"{log.topic}-{log.partition} of broker {number}: {copied} of {closed} are in the tier")
    return found


def _closed(log: UnifiedLog) -> int:
    """The base offset of the last segment after all committed closed ones."""
    return max(
        (segment.base_offset for segment in log.segments if segment.base_offset <= log.high_watermark), default=0
    )


def _not_erased(cluster: SimulatedCluster) -> list[str]:
    assert cluster.controller is not None
    assert cluster.watch is not None
    topics, deletions = cluster.controller.state.image.topics_by_id, cluster.watch.deletions
    found = []
    for path in cluster.world.tier.files:
        if path.startswith(f"{FOLDER}/{ROOT}/"):
            partition = parse_folder(path.split("/")[-2])
            if partition is None or partition.topic_id in topics:
                continue
            if not deletions.is_excused(partition.topic_id, partition.partition):
                found.append(f"{path} is of a topic that was deleted")
    return found
