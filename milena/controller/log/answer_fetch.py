"""Decides how the leader of the metadata log answers a Fetch (docs/kafka-semantics.md: Fetches of observers), from
offsets and epochs, without I/O.

Only committed records are returned. Kafka also returns uncommitted ones; with a single voter that has no advantage,
and this way an observer never has records that the controller loses in a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from milena.node.metadata.snapshots import BOOTSTRAP_ID, MetadataSnapshotId, SnapshotStore
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch import FetchPartition, FetchRequest
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class Reject:
    """An error for the partition, or for the whole request (``top_level``)."""

    code: ErrorCode
    top_level: bool = False


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    """The observer must load a snapshot."""

    id: MetadataSnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """The observer's last epoch ends at another offset in this log: the observer must truncate."""

    epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class SendRecords:
    """Records from this offset on; possibly none yet."""

    offset: Offset


Decision: TypeAlias = Reject | SendSnapshot | Diverging | SendRecords


def only_partition(request: FetchRequest) -> FetchPartition | None:
    """Return the metadata partition of the request; None if the request is for anything else."""
    if len(request.topics) != 1 or len(request.topics[0][2]) != 1:
        return None
    name, topic_id, partitions = request.topics[0]
    known = name == METADATA_TOPIC if topic_id is None else topic_id == METADATA_TOPIC_ID
    return partitions[0] if known and partitions[0].partition == 0 else None


def decide(
    request: FetchRequest, *, cluster_id: str, epoch: LeaderEpoch, log: UnifiedLog, snapshots: SnapshotStore
) -> Decision:
    """Return the answer to a Fetch, with Kafka's checks in Kafka's order. ``epoch``: of this leader."""
    if request.cluster_id not in (None, cluster_id):
        return Reject(ErrorCode.INCONSISTENT_CLUSTER_ID, top_level=True)
    partition = only_partition(request)
    if partition is None:
        return Reject(ErrorCode.INVALID_REQUEST, top_level=True)
    if (
        request.max_wait_ms < 0
        or partition.fetch_offset < 0
        or partition.last_fetched_epoch < 0
        or partition.last_fetched_epoch > partition.current_leader_epoch
    ):
        return Reject(ErrorCode.INVALID_REQUEST)
    error = epoch_error(partition.current_leader_epoch, epoch)
    if error is not None:
        return Reject(error)
    return _locate(Offset(partition.fetch_offset), LeaderEpoch(partition.last_fetched_epoch), log, snapshots)


def epoch_error(requested: int, epoch: LeaderEpoch) -> ErrorCode | None:
    """Return the error for a request with leader epoch ``requested`` to the leader of ``epoch``."""
    if requested < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if requested > epoch else None


def _locate(offset: Offset, last_epoch: LeaderEpoch, log: UnifiedLog, snapshots: SnapshotStore) -> Decision:
    latest, earliest = snapshots.latest(), snapshots.earliest()
    # The snapshot of a formatted directory is not sent: the log has its records.
    if offset == 0 and latest is not None and latest != BOOTSTRAP_ID:
        return SendSnapshot(latest)
    start = log.log_start_offset
    if start == 0 and offset == 0:
        return SendRecords(offset)
    if latest is not None and earliest is not None:
        before = offset < start or (offset == start and last_epoch != earliest.epoch)
        if before or last_epoch < earliest.epoch:
            return SendSnapshot(latest)
    epoch, end = _end_of(last_epoch, log, earliest)
    if epoch != last_epoch or end < offset:
        return Diverging(epoch=epoch, end_offset=end)
    return SendRecords(offset)


def _end_of(epoch: LeaderEpoch, log: UnifiedLog, earliest: MetadataSnapshotId | None) -> tuple[LeaderEpoch, Offset]:
    """Return the largest epoch of the log up to ``epoch``, and its end offset. Without such an epoch: the log's last
    epoch (that of the earliest snapshot if the log has none) and the log end offset. If ``epoch`` ends where the
    earliest snapshot ends: the snapshot's epoch and end offset."""
    last_epoch, end = log.leader_epoch_end_offset(epoch)
    if last_epoch is None or end is None:
        last = log.epochs.latest_entry
        if last is not None:
            return last.epoch, log.log_end_offset
        return (LeaderEpoch(0) if earliest is None else earliest.epoch), log.log_end_offset
    if earliest is not None and end == earliest.end_offset and last_epoch == epoch:
        return earliest.epoch, earliest.end_offset
    return last_epoch, end
