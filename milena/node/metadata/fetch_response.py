"""An observer's decision about a Fetch response of the metadata log (KIP-595, KIP-630); without side effects.

The epoch is checked first. A response with a lower epoch than ours is from a replaced leader and is ignored. Of a
response with a higher epoch only the new leader is used. Any other response has records, an offset to truncate to, or
the snapshot to fetch.
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
    """The quorum's leader (None while unknown) and the highest epoch seen."""

    leader: NodeId | None
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The leader or the epoch has changed. ``endpoint`` is the leader's address if the response has it."""

    quorum: Quorum
    endpoint: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class StaleAnswer:
    """A response from a replaced leader, to be ignored."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """An error code. The observer retries, possibly at another address."""

    code: int


@dataclass(frozen=True, slots=True)
class Records:
    """Batches that follow our log end (possibly none, possibly an incomplete last one), and the leader's high
    watermark."""

    data: memoryview
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged:
    """Our log diverges from the leader's: the leader's largest epoch that is not above our last epoch, and the end
    offset of that epoch in the leader's log."""

    epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """The leader's log does not contain our log end offset any more."""

    snapshot: MetadataSnapshotId


Outcome: TypeAlias = NewLeader | StaleAnswer | FetchRefused | Records | Diverged | NeedsSnapshot


def fetch_request(
    *,
    cluster_id: str | None,
    node_id: NodeId,
    epoch: LeaderEpoch,
    partition: FetchPartition,
    max_wait_ms: int,
) -> FetchRequest:
    """Return a Fetch of the metadata log, with topic name and id; the version determines which of the two is sent."""
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
    """Decide about ``response`` to a request that was sent while ``quorum`` was known."""
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
) -> NewLeader | StaleAnswer | None:
    """Compare the leader and epoch in a response with the known ones; None if they are equal."""
    if current.leader_epoch < quorum.epoch:
        return StaleAnswer(current.leader_epoch)
    leader = NodeId(current.leader_id) if current.leader_id >= 0 else None
    if current.leader_epoch == quorum.epoch and (leader == quorum.leader or leader is None):
        return None

    endpoint = next(((e.host, e.port) for e in endpoints if e.node_id == leader), None)
    return NewLeader(Quorum(leader, LeaderEpoch(current.leader_epoch)), endpoint)


def _only_partition(response: FetchResponse) -> FetchedPartition | None:
    if len(response.topics) != 1 or len(response.topics[0][2]) != 1:
        return None
    partition = response.topics[0][2][0]
    return partition if partition.partition == 0 else None
