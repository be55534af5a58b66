"""Fetching a snapshot of the metadata log in chunks (FetchSnapshot, KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.node.links.outgoing import Channel
from milena.node.metadata.fetch_response import FetchRefused, NewLeader, Quorum, StaleAnswer, leader_change
from milena.node.metadata.snapshots import MetadataSnapshotId, PartialSnapshot, SnapshotStore
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.types import METADATA_TOPIC, NodeId
from milena.runtime.logging import get_logger

if TYPE_CHECKING:
    from milena.protocol.apis import FetchSnapshotRequestFields, FetchSnapshotResponse, RequestPartitionSnapshotFields

CHUNK_BYTES: Final = 1 << 20


async def fetch_snapshot(
    channel: Channel,
    store: SnapshotStore,
    snapshot: MetadataSnapshotId,
    quorum: Quorum,
    *,
    node_id: NodeId,
    cluster_id: str | None,
) -> NewLeader | StaleAnswer | FetchRefused | None:
    """Fetch ``snapshot`` into ``store``. Returns None on success, else the reason for the failure; a partial file is
    deleted on failure.

    Raises ChannelError, KafkaError, OSError.
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
            chunk = response.topics[0].partitions[0]
            partial.append(bytes(chunk.unaligned_records or b""))
            if partial.size == chunk.size:
                try:
                    partial.check()
                except ValueError as error:  # including damaged batches and contradictory records
                    get_logger("observer").error("invalid metadata snapshot fetched", reason=str(error))
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
        "max_bytes": CHUNK_BYTES,
        "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
    }


def _problem(
    response: FetchSnapshotResponse, partial: PartialSnapshot, snapshot: MetadataSnapshotId, quorum: Quorum
) -> NewLeader | StaleAnswer | FetchRefused | None:
    """Return why this chunk is not the next one of ``snapshot``; None if it is."""
    if response.error_code:
        return FetchRefused(int(response.error_code))
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return FetchRefused(ErrorCode.INVALID_REQUEST)
    chunk = response.topics[0].partitions[0]
    current = CurrentLeader(int(chunk.current_leader.leader_id), int(chunk.current_leader.leader_epoch))
    endpoints = [
        NodeEndpoint(int(node.node_id), node.host, int(node.port))
        for node in messages.get(response, "node_endpoints", ())
    ]
    changed = leader_change(quorum, current, endpoints)
    if changed is not None:
        return changed
    if chunk.error_code:
        return FetchRefused(int(chunk.error_code))
    received = (int(chunk.snapshot_id.end_offset), int(chunk.snapshot_id.epoch))
    size = len(chunk.unaligned_records or b"")
    if received != (snapshot.end_offset, snapshot.epoch) or chunk.position != partial.size or not size:
        return FetchRefused(ErrorCode.POSITION_OUT_OF_RANGE)
    if partial.size + size > chunk.size:
        return FetchRefused(ErrorCode.POSITION_OUT_OF_RANGE)
    return None
