"""The consequences of objects that are lost from the tier for good: exactly these are permitted.

- ``.log``, lost or truncated: a leader rejects with an error reads of the records that are in no other segment of its
  lineage and not in its local log: a *hole*. No reader skips them without an error, or reads others in their place.
- ``.leader_epoch_checkpoint``, ``.snapshot``: a follower that has to start after that segment retries forever, and
  stays out of the ISR. Likewise ``.log``, if the producers are rebuilt from its batches.
- ``.index``, ``.timeindex``: only slower reads.

Leaders continue in all cases: they serve, copy and delete. All other final checks hold with losses, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from milena.broker.replica.partition import Partition
from milena.lab.cluster import SimulatedCluster
from milena.lab.world.tiering import FOLDER
from milena.protocol.types import NodeId, Offset, TopicPartition
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lineage import epoch_at
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType
from milena.tiered.store.tier_names import object_path

BUILDING: Final = "BuildingRemoteLogAux"
_SNAPSHOT: Final = IndexType.PRODUCER_SNAPSHOT.value
_CHECKPOINT: Final = IndexType.LEADER_EPOCH.value


class Losses:
    """Determined from the state of the present leaders."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        assert cluster.watch is not None
        self._cluster = cluster
        self._lost = cluster.watch.tier.lost

    def hole_at(self, partition: TopicPartition, offset: int) -> tuple[int, int] | None:
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

    def excuse(self, partition: TopicPartition, broker: int) -> bool:
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
