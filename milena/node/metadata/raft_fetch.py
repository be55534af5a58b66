"""An observer's decisions about a leader's answer (KIP-595, KIP-630); pure.

The epoch rules come first. An answer from a lower epoch than ours is from a replaced leader and is dropped; one from a
higher epoch only announces the new leader, whatever else it contains. Otherwise an answer has records, an offset to
truncate to, or a snapshot to fetch first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from milena.node.metadata.snapshots import MetadataSnapshotId
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, LeaderEpoch, NodeId, Offset

NO_LEADER_KNOWN: Final = CurrentLeader(-1, -1)


@dataclass(frozen=True, slots=True)
class Quorum:
    """The known leader: its id (None while unknown) and the highest epoch seen."""

    leader: NodeId | None
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class NewLeader:
    """A new leader or epoch. ``endpoint`` is set if the answer named one."""

    quorum: Quorum
    endpoint: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Stale:
    """An answer from a replaced leader: its content is ignored."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """An error. The observer can only retry, possibly at another address."""

    code: int


@dataclass(frozen=True, slots=True)
class Records:
    """Batches that follow our log end (possibly none, possibly an incomplete last one), and the leader's high
    watermark."""

    data: memoryview
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged:
    """Our last epoch ends elsewhere at the leader: its largest epoch not above ours, and that epoch's end offset
    there."""

    epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """The leader's log does not contain our log end offset any more."""

    snapshot: MetadataSnapshotId


Outcome: TypeAlias = NewLeader | Stale | FetchRefused | Records | Diverged | NeedsSnapshot


def fetch_request(
    *,
    cluster_id: str | None,
    node_id: NodeId,
    epoch: LeaderEpoch,
    partition: FetchPartition,
    max_wait_ms: int,
) -> FetchRequest:
    """A fetch of the metadata log. It has topic name and id; the version determines which is sent."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=partition.max_bytes,
        topics=[(METADATA_TOPIC, METADATA_TOPIC_ID, [partition._replace(current_leader_epoch=epoch)])],
        session_id=0,
        session_epoch=-1,
        replica_id=node_id,
        replica_epoch=-1,
        cluster_id=cluster_id,
    )


def decide(quorum: Quorum, response: FetchResponse) -> Outcome:
    """The decision about ``response``, fetched under ``quorum``."""
    if response.error_code:
        return FetchRefused(response.error_code)
    partition = _only_partition(response)
    if partition is None:
        return FetchRefused(ErrorCode.INVALID_REQUEST)
    changed = leader_change(quorum, partition.current_leader or NO_LEADER_KNOWN, response.node_endpoints)
    if changed is not None:
        return changed
    if partition.error_code:
        return FetchRefused(partition.error_code)
    if partition.snapshot_id is not None:
        end_offset, epoch = partition.snapshot_id
        return NeedsSnapshot(MetadataSnapshotId(Offset(end_offset), LeaderEpoch(epoch)))
    if partition.diverging_epoch is not None:
        diverging = partition.diverging_epoch
        return Diverged(epoch=LeaderEpoch(diverging.epoch), end_offset=Offset(diverging.end_offset))
    records = partition.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview), "a decoded answer has bytes"
    return Records(memoryview(records or b""), Offset(partition.high_watermark))


def leader_change(
    quorum: Quorum, current: CurrentLeader, endpoints: Sequence[NodeEndpoint]
) -> NewLeader | Stale | None:
    """The leader and epoch in the answer; None if they are the known ones."""
    if current.leader_epoch < quorum.epoch:
        return Stale(current.leader_epoch)
    leader = NodeId(current.leader_id) if current.leader_id >= 0 else None
    if current.leader_epoch == quorum.epoch and (leader == quorum.leader or leader is None):
        return None

    endpoint = next(((e.host, e.port) for e in endpoints if e.node_id == leader), None)
    return NewLeader(Quorum(leader, LeaderEpoch(current.leader_epoch)), endpoint)


def _only_partition(response: FetchResponse) -> FetchedPartition | None:
    if len(response.topics) != 1 or len(response.topics[0][2]) != 1:
        return None
    found = response.topics[0][2][0]
    return found if found.partition == 0 else None
