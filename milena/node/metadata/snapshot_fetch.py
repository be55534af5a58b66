"""Fetching a snapshot of the metadata log in chunks (FetchSnapshot, KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.node.links.outgoing import Channel
from milena.node.metadata.raft_fetch import FetchRefused, NewLeader, Quorum, Stale, leader_change
from milena.node.metadata.snapshots import MetadataSnapshotId, PartialSnapshot, SnapshotStore
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.types import METADATA_TOPIC, NodeId
from milena.runtime.logging import get_logger

if TYPE_CHECKING:
    from milena.protocol.apis import FetchSnapshotRequestFields, FetchSnapshotResponse, RequestPartitionSnapshotFields

PIECE_BYTES: Final = 1 << 20


async def fetch_snapshot(
    channel: Channel,
    store: SnapshotStore,
    snapshot: MetadataSnapshotId,
    quorum: Quorum,
    *,
    node_id: NodeId,
    cluster_id: str | None,
) -> NewLeader | Stale | FetchRefused | None:
    """Fetch ``snapshot`` into ``store``; None on success, else the reason; a partial file is then deleted.

    Raises the errors of a channel, and OSError.
    """
    partial = store.create(snapshot)
    finished = False
    try:
        while True:
            response: FetchSnapshotResponse = await channel.request(
                ApiKey.FETCH_SNAPSHOT,
                **_request(snapshot, partial.size, quorum, node_id=node_id, cluster_id=cluster_id),
            )
            problem = _problem(response, partial, snapshot, quorum)
            if problem is not None:
                return problem
            piece = response.topics[0].partitions[0]
            partial.append(bytes(piece.unaligned_records or b""))
            if partial.size == piece.size:
                try:
                    partial.check()
                except ValueError as error:  # including damaged batches and contradictory records
                    get_logger("observer").error("a fetched snapshot cannot be used", reason=str(error))
                    return FetchRefused(ErrorCode.CORRUPT_MESSAGE)
                partial.finish()
                finished = True
                return None
    finally:
        if not finished:
            partial.abandon()


def _request(
    snapshot: MetadataSnapshotId, position: int, quorum: Quorum, *, node_id: NodeId, cluster_id: str | None
) -> FetchSnapshotRequestFields:
    partition: RequestPartitionSnapshotFields = {
        "partition": 0,
        "current_leader_epoch": quorum.epoch,
        "snapshot_id": {"end_offset": snapshot.end_offset, "epoch": snapshot.epoch},
        "position": position,
    }
    return {
        "cluster_id": cluster_id,
        "replica_id": node_id,
        "max_bytes": PIECE_BYTES,
        "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
    }


def _problem(
    response: FetchSnapshotResponse, partial: PartialSnapshot, snapshot: MetadataSnapshotId, quorum: Quorum
) -> NewLeader | Stale | FetchRefused | None:
    """The reason why this chunk cannot be used; None if it can."""
    if response.error_code:
        return FetchRefused(int(response.error_code))
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return FetchRefused(ErrorCode.INVALID_REQUEST)
    piece = response.topics[0].partitions[0]
    current = CurrentLeader(int(piece.current_leader.leader_id), int(piece.current_leader.leader_epoch))
    endpoints = [
        NodeEndpoint(int(node.node_id), node.host, int(node.port))
        for node in messages.get(response, "node_endpoints", ())
    ]
    changed = leader_change(quorum, current, endpoints)
    if changed is not None:
        return changed
    if piece.error_code:
        return FetchRefused(int(piece.error_code))
    found = (int(piece.snapshot_id.end_offset), int(piece.snapshot_id.epoch))
    size = len(piece.unaligned_records or b"")
    if found != (snapshot.end_offset, snapshot.epoch) or piece.position != partial.size or not size:
        return FetchRefused(ErrorCode.POSITION_OUT_OF_RANGE)
    if partial.size + size > piece.size:
        return FetchRefused(ErrorCode.POSITION_OUT_OF_RANGE)
    return None
