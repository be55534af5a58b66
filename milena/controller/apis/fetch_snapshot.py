"""FetchSnapshot (key 59), versions 0-1: byte ranges of a snapshot of the metadata log (KIP-630).

v1 the fetching replica's directory and the leader's address (KIP-853). Snapshot 0-0 is never returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.controller.log.answer_fetch import epoch_error
from milena.node.api import RequestContext
from milena.node.metadata.snapshots import BOOTSTRAP_ID, MetadataSnapshotId
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import METADATA_TOPIC, LeaderEpoch, Offset

if TYPE_CHECKING:
    from milena.controller.log.metadata_log import MetadataLog
    from milena.protocol.apis import (
        FetchSnapshotRequest,
        FetchSnapshotResponseFields,
        RequestPartitionSnapshot,
        ResponsePartitionSnapshotFields,
    )
    from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
    from milena.runtime.context import Runtime


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def metadata(self) -> MetadataLog: ...
    @property
    def runtime(self) -> Runtime: ...
    def current_leader(self) -> CurrentLeader: ...
    def leader_endpoints(self, listener_name: str) -> tuple[NodeEndpoint, ...]: ...


async def handle(node: Needs, ctx: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponseFields:
    if request.cluster_id not in (None, node.cluster_id):
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    topic, asked = request.topics[0].name, request.topics[0].partitions[0]
    snapshot = MetadataSnapshotId(Offset(asked.snapshot_id.end_offset), LeaderEpoch(asked.snapshot_id.epoch))
    error, size = _locate(node, topic, asked, snapshot)
    data = b""
    if error is ErrorCode.NONE:
        read = node.metadata.snapshots.read_at
        try:
            data = await node.runtime.disk.offload(read, snapshot, asked.position, max(request.max_bytes, 1))
        except FileNotFoundError:  # deleted by retention since it was located
            error, size = ErrorCode.SNAPSHOT_NOT_FOUND, 0
    leader = node.current_leader()
    partition: ResponsePartitionSnapshotFields = {
        "index": asked.partition,
        "error_code": int(error),
        "snapshot_id": {"end_offset": snapshot.end_offset, "epoch": snapshot.epoch},
        "current_leader": {"leader_id": leader.leader_id, "leader_epoch": leader.leader_epoch},
        "size": size,
        "position": asked.position,
        "unaligned_records": data,
    }
    return {
        "error_code": 0,
        "topics": [{"name": topic, "partitions": [partition]}],
        "node_endpoints": [
            {"node_id": e.node_id, "host": e.host, "port": e.port} for e in node.leader_endpoints(ctx.listener_name)
        ],
    }


def _locate(
    node: Needs, topic: str, asked: RequestPartitionSnapshot, snapshot: MetadataSnapshotId
) -> tuple[ErrorCode, int]:
    """Return an error code, or the snapshot's size in bytes."""
    if topic != METADATA_TOPIC or asked.partition != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
    error = epoch_error(asked.current_leader_epoch, node.metadata.epoch)
    if error is not None:
        return error, 0
    if snapshot == BOOTSTRAP_ID or snapshot not in node.metadata.snapshots:
        return ErrorCode.SNAPSHOT_NOT_FOUND, 0
    size = node.metadata.snapshots.size(snapshot)
    if not 0 <= asked.position < size:
        return ErrorCode.POSITION_OUT_OF_RANGE, 0
    return ErrorCode.NONE, size
